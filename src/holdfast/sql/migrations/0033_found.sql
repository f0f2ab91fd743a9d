-- Sets that miss nothing: the ids of a bulk operation are gathered at one moment, and jobs that were held before failures
-- had fingerprints are counted among those that fail (docs/decisions/030-failures.md).

-- The open jobs that a bulk operation has still to look at, as they were at one moment: so many ids in a row.
create table bulk_found (
  bulk_id uuid not null,
  part    integer not null,
  ids     uuid[] not null,
  primary key (bulk_id, part)
);
-- Ids are not worth the time that compressing them takes.
alter table bulk_found alter column ids set storage external;

-- Operations that were looking for their jobs begin anew; what they have noted stays.
update bulks
set sources = array(
    select s.source
    from unnest(array['due', 'waiting', 'ready', 'leases', 'letters']) with ordinality as s (source, place)
    where s.source = any (sources)
    order by s.place),
  reached = null
where state = 'fixing' and sources && array['due', 'waiting', 'ready', 'leases'];

-- Walks that are made once, after a migration, and how far they have come. One that has ended has no row.
create table walks (
  name    text collate "C" primary key,
  reached text[]
);
insert into walks (name)
select 'held'
where exists (select from jobs);

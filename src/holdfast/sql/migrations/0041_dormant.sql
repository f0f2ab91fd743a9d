-- Open jobs that neither wait for their turn nor run, in a table of their own, so that bulk operations find them without a
-- walk over `jobs` (docs/decisions/030-failures.md, "Bulk operations").

create table dormant (
  job_id uuid primary key,
  tenant text collate "C" not null
);
create index dormant_of_tenant on dormant (tenant, job_id);

-- Those from before this step are noted by a walk; until it has ended, bulk operations walk over `jobs`.
insert into walks (name)
select 'dormant'
where exists (select from jobs);

-- What a clean-up deletes is counted by state: jobs that succeeded apart from canceled ones. No release has these.
drop function if exists retire_counted(timestamptz, uuid, integer, integer);
drop function if exists clean_up_as(text, boolean, uuid, integer, uuid);

-- Let time pass: what is due becomes eligible, what waited too long goes first, targets that were called
-- get a head. Every duty is correct with two leaders. Roles: worker.

-- Moves: scheduled → queued, retry → queued. Answers how many were due, and when the next one will be.
-- `after` is how far an earlier call has come, so that entries dead but not yet vacuumed are not walked again.
create or replace function promote(max_jobs integer default 500, after timestamptz default '-infinity')
returns table (promoted integer, next_in_seconds double precision, reached timestamptz)
language plpgsql security definer
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
  ids    uuid[];
  times  timestamptz[];
  last   timestamptz;
  strays integer;
begin
  select array_agg(entry.job_id), array_agg(entry.run_at), max(entry.run_at) into ids, times, last
  from (
    select d.job_id, d.run_at
    from due d
    where d.run_at <= now() and d.run_at >= after
    order by d.run_at, d.job_id
    limit max_jobs
    for update skip locked) entry;
  if ids is not null then
    perform promote_jobs(ids);
    -- What is left of the entries belongs to no job that waits for this moment, and would be due for ever.
    delete from due d
    using unnest(ids, times) as entry (job_id, run_at)
    where d.run_at = entry.run_at and d.job_id = entry.job_id;
    get diagnostics strays = row_count;
    if strays > 0 then
      perform note_repair('due-dropped', strays);
    end if;
  end if;
  -- Leaders of older releases do not know that duty.
  if exists (select from parked) then
    perform from admit();
  end if;
  return query
  select coalesce(cardinality(ids), 0), extract(epoch from following.run_at - clock_timestamp())::double precision,
    coalesce(last, after)
  from (select 1) one
  left join lateral (
    select d.run_at
    from due d
    where d.run_at >= coalesce(last, after)
    order by d.run_at
    limit 1) following on true;
end
$$;

create or replace function promote_jobs(job_ids uuid[]) returns void
language plpgsql
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
#variable_conflict use_column
declare
  woken   integer[];
  tenants text[];
  targets text[];
  dropped bigint;
begin
  with entry as materialized (
    select d.run_at, d.job_id
    from jobs j
    join due d on d.run_at = j.run_at and d.job_id = j.id
    where j.id = any (job_ids) and d.run_at <= now()
    order by d.run_at, d.job_id
    for update of d
  ), gone as (
    delete from due d
    using entry
    where d.run_at = entry.run_at and d.job_id = entry.job_id
    returning d.run_at, d.job_id
  ), moved as (
    update jobs j
    set state = 'queued',
      seq = case
        when exists (select from heads h where h.tenant = j.tenant and h.target = j.target and h.job_id = j.id)
          then j.seq
        else nextval('places')
      end,
      reason = 'due',
      updated_at = now()
    from gone
    where j.id = gone.job_id and j.run_at = gone.run_at and j.state in ('scheduled', 'retry')
    returning j.id, j.seq, j.stream, j.priority, j.tenant, j.target
  ), lined as (
    insert into ready (stream, rank, seq, job_id)
    select stream, ready_rank(priority, false), seq, id from moved where target is null
  ), queued_behind as (
    insert into waiting (tenant, target, turn, place, job_id)
    select m.tenant, m.target, 1, m.seq, m.id
    from moved m
    where m.target is not null
      and not exists (
        select from heads h where h.tenant = m.tenant and h.target = m.target and h.job_id = m.id)
  )
  select
    array_agg(distinct stream) filter (where target is null),
    array_agg(tenant) filter (where target is not null),
    array_agg(target) filter (where target is not null),
    (select count(*) from gone) - count(*)
  into woken, tenants, targets, dropped
  from moved;

  if dropped > 0 then
    perform note_repair('due-dropped', dropped);
  end if;
  if targets is not null then
    perform seat(tenants, targets);
  end if;
  if woken is not null then
    perform wake('ready', woken);
  end if;
end
$$;

-- Seat the heads of targets that enqueueing called for. Moves: none.
create or replace function elect(max_targets integer default 500) returns integer
language plpgsql security definer
set search_path from current
as $$
declare
  called_tenants text[];
  called_targets text[];
begin
  with called as (
    delete from calls
    where id in (select c.id from calls c order by c.id limit max_targets for update skip locked)
    returning tenant, target
  )
  select array_agg(c.tenant), array_agg(c.target) into called_tenants, called_targets from called c;
  if called_targets is not null then
    perform seat(called_tenants, called_targets);
  end if;
  return coalesce(cardinality(called_targets), 0);
end
$$;

-- A job that waited longer than AGEING_SECONDS goes first. Only jobs that others can pass are touched. Between tenants
-- that is a trickle, ten of a stream at a time: or the old backlog of one would hold up the new jobs of all others.
create or replace function age(max_jobs integer default 500) returns integer
language plpgsql security definer
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
  oldest timestamptz := now() - make_interval(secs => setting('AGEING_SECONDS')::double precision);
  aged   integer;
begin
  with recursive line as (
    select s.id as stream, first.rank
    from streams s
    cross join lateral (
      select r.rank from ready r where r.stream = s.id order by r.rank limit 1) first
    union all
    select line.stream, following.rank
    from line
    cross join lateral (
      select r.rank from ready r where r.stream = line.stream and r.rank > line.rank order by r.rank limit 1) following
  ), passed as (
    select line.stream, line.rank
    from line
    where line.rank > 0 and (select count(distinct other.rank) from line other) > 1
  ), old as materialized (
    select entry.tid
    from passed
    cross join lateral (
      select r.ctid as tid, r.ready_at
      from ready r
      where r.stream = passed.stream and r.rank = passed.rank
      order by r.seq
      limit case
        when (select count(distinct s.tenant) from line join streams s on s.id = line.stream) > 1 then
          10 - (select count(*) from (select from ready a where a.stream = passed.stream and a.rank = 0 limit 10) first)
        else max_jobs
      end) entry
    where entry.ready_at < oldest
    limit max_jobs
  ), free as materialized (
    select r.ctid as tid
    from ready r
    where r.ctid = any (array(select old.tid from old)) and r.ready_at < oldest
    for update skip locked
  )
  update ready r
  set rank = 0
  from free
  where r.ctid = free.tid;
  get diagnostics aged = row_count;
  return aged;
end
$$;

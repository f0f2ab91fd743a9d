-- What happens as time passes: due jobs become eligible, and targets that were called get a head (ageing.sql lets jobs that
-- waited too long go first). Every duty is correct with two leaders. Roles: worker.

-- Every call looks at a bounded number of rows, whatever the size of the tables and whatever the statistics say.
-- If a duty has more to look at, it answers how far it has come, and the next call goes on from there.

-- Queue scheduled and retrying jobs whose time has come. Moves: scheduled → queued, retry → queued. Answers how many
-- were due, and when the next one will be. `after` is how far an earlier call has come, so that entries which are dead
-- but not yet vacuumed are not walked again.
create or replace function promote_due(max_jobs integer default 500, after timestamptz default '-infinity')
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
    -- A job that somebody has locked is skipped, and does not hold up others; an entry without a job is dropped below.
    select d.job_id, d.run_at
    from due d
    left join lateral (
      select j.id from jobs j where j.id = d.job_id for no key update skip locked) free on true
    where d.run_at <= now()
      and d.run_at >= after
      and (free.id is not null or not exists (select from jobs j where j.id = d.job_id))
    order by d.run_at, d.job_id
    limit max_jobs
    for update of d skip locked) entry;
  if ids is not null then
    perform promote_jobs(ids);
    -- The remaining entries belong to no job that waits for this moment, and would be due for ever.
    delete from due d
    using unnest(ids, times) as entry (job_id, run_at)
    where d.run_at = entry.run_at and d.job_id = entry.job_id;
    get diagnostics strays = row_count;
    perform note_repair('due-dropped', strays);
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

-- Promote due jobs of other tenants behind the backlog of some. Looks at up to `max_looked` due entries, from
-- (from_run_at, from_job_id) on, and deals up to `max_jobs` to the tenants that it meets there, in turns. Tenants in
-- `passed` have something due before that, and get nothing: within a tenant, the order is by time. Answers how many
-- were promoted, whether every due entry was looked at, where to go on, and, for each tenant that has more entries here
-- than it got, the first of them. A job that somebody has locked is left out: `promote_due` comes to it. Moves:
-- scheduled → queued, retry → queued.
create or replace function promote_behind(
  from_run_at timestamptz default '-infinity', from_job_id uuid default '00000000-0000-0000-0000-000000000000',
  passed text[] default '{}', max_jobs integer default 500, max_looked integer default 10000
) returns table (
  promoted integer, ended boolean, reached_run_at timestamptz, reached_job_id uuid,
  left_tenants text[], left_run_at timestamptz[], left_job_ids uuid[])
language plpgsql security definer
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
#variable_conflict use_column
declare
  entries uuid[];
  ids     uuid[];
begin
  select array_agg(entry.job_id), max(entry.run_at), count(*) < max_looked into entries, reached_run_at, ended
  from (
    select d.run_at, d.job_id
    from due d
    where d.run_at <= now() and (d.run_at, d.job_id) >= (from_run_at, from_job_id)
    order by d.run_at, d.job_id
    limit max_looked) entry;
  reached_job_id := entries[max_looked];
  if ended then
    -- Jobs that fall due at this moment may be committed a little later, and are looked for again.
    reached_run_at := now() - interval '0.5 seconds';
    reached_job_id := '00000000-0000-0000-0000-000000000000';
  end if;

  with others as materialized (
    -- One walk over the index for all jobs, not a descent for each. An entry that does not fit its job is left out.
    select j.id, j.run_at, j.tenant
    from jobs j
    where j.id = any (entries) and j.tenant <> all (passed) and j.run_at <= now() and j.state in ('scheduled', 'retry')
  ), turns as (
    select o.*, row_number() over (partition by o.tenant order by o.run_at, o.id) as turn
    from others o
  ), dealt as materialized (
    select t.*, row_number() over (order by t.turn, t.run_at, t.id) <= max_jobs as taken
    from turns t
  ), rest as (
    select distinct on (d.tenant) d.tenant, d.run_at, d.id
    from dealt d
    where not d.taken
    order by d.tenant, d.run_at, d.id
  )
  select array(select d.id from dealt d where d.taken order by d.run_at, d.id),
    array_agg(r.tenant order by r.run_at, r.id), array_agg(r.run_at order by r.run_at, r.id),
    array_agg(r.id order by r.run_at, r.id)
  into ids, left_tenants, left_run_at, left_job_ids
  from rest r;

  -- As in `promote_due`: do not wait for a job or an entry that somebody has locked.
  ids := array(
    select free.id
    from unnest(ids) as chosen (job_id)
    cross join lateral (
      select j.id, j.run_at from jobs j where j.id = chosen.job_id for no key update skip locked) free
    cross join lateral (
      select d.job_id from due d where d.run_at = free.run_at and d.job_id = free.id for update skip locked) entry);
  promoted := cardinality(ids);
  if promoted > 0 then
    perform promote_jobs(ids);
  end if;
  return next;
end
$$;

-- Queue scheduled and retrying jobs whose time has come, in one call. For leaders of older releases, which do not
-- admit parked jobs.
create or replace function promote(max_jobs integer default 500, after timestamptz default '-infinity')
returns table (promoted integer, next_in_seconds double precision, reached timestamptz)
language plpgsql security definer
set search_path from current
as $$
begin
  if exists (select from parked) then
    perform from admit();
  end if;
  return query select * from promote_due(max_jobs, after);
end
$$;

-- Move jobs that are due to where workers or their targets find them.
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

  perform note_repair('due-dropped', dropped);
  if targets is not null then
    perform seat(tenants, targets);
  end if;
  if woken is not null then
    perform wake_again(woken);
  end if;
end
$$;

-- Seat the heads of targets that enqueueing called for. `after` is how far an earlier call has come: calls that were
-- answered but not yet vacuumed are not walked again. A call may commit behind that place: start from 0 now and then.
-- Moves: none.
create or replace function elect_from(after bigint default 0, max_targets integer default 500)
returns table (called integer, reached bigint)
language plpgsql security definer
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
#variable_conflict use_column
declare
  called_tenants text[];
  called_targets text[];
begin
  with answered as (
    delete from calls k
    where k.ctid = any (array(
      select c.ctid
      from calls c
      where c.id > after
      order by c.id
      limit max_targets
      for update skip locked))
    returning k.id, k.tenant, k.target
  )
  select array_agg(a.tenant), array_agg(a.target), max(a.id) into called_tenants, called_targets, reached from answered a;
  if called_targets is not null then
    perform seat(called_tenants, called_targets);
  end if;
  called := coalesce(cardinality(called_targets), 0);
  reached := coalesce(reached, after);
  return next;
end
$$;

-- Seat the heads of targets that enqueueing called for, in one call.
create or replace function elect(max_targets integer default 500) returns integer
language sql security definer
set search_path from current
as $$
  select e.called from elect_from(0, max_targets) e
$$;

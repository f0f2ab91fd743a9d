-- What operators see of schedules. Moves: none. Roles: operator.

-- Schedules by name, after the given tenant and name; only this one if `only_name` says so.
create or replace function list_schedules(
  only_tenant text default null, only_name text default null, after_tenant text default null, after_name text default null,
  max_schedules integer default 50
) returns setof schedules
language sql security definer stable
set search_path from current
as $$
  select s.*
  from schedules s
  where (only_tenant is null or s.tenant = only_tenant)
    and (only_name is null or s.name = only_name)
    and (after_name is null or (s.tenant, s.name) > (after_tenant, after_name))
  order by s.tenant, s.name
  limit max_schedules
$$;

-- What became of the last fire times of a schedule, newest first, with the state of their jobs.
create or replace function list_fires(schedule_id bigint, before timestamptz default null, max_fires integer default 20)
returns table (
  fire_at timestamptz, outcome text, job_id uuid, state text, missed_to timestamptz, by text, decided_at timestamptz)
language sql security definer stable
set search_path from current
as $$
  select f.fire_at, f.outcome, f.job_id, j.state, f.missed_to, f.by, f.decided_at
  from schedule_fires f
  left join jobs j on j.id = f.job_id
  where f.schedule_id = list_fires.schedule_id and (before is null or f.fire_at < before)
  order by f.fire_at desc
  limit max_fires
$$;

-- Targets as operators see them: which job is the head, whether it blocks the others, and how many those are.
-- Moves: none. Roles: operator.

-- The names of one page, by tenant and target, among the `max_visited` targets after (after_tenant, after_target) that
-- have open jobs. (reached_tenant, reached_target) is where to go on, null if there is nothing more. A target is
-- blocked if its head is paused or in error: nothing runs there until somebody resumes or cancels the head.
create or replace function list_targets(
  only_tenant text default null, only_blocked boolean default false, after_tenant text default null,
  after_target text default null, max_targets integer default 50, max_visited integer default 10000
) returns table (tenants text[], targets text[], reached_tenant text, reached_target text)
language plpgsql security definer stable
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set enable_sort = off
set plan_cache_mode = force_custom_plan
as $$
#variable_conflict use_column
declare
  floor_tenant text := coalesce(after_tenant, only_tenant, '');
  floor_target text := case when after_tenant is null then '' else coalesce(after_target, '') end;
begin
  select array_agg(page.tenant order by page.tenant, page.target), array_agg(page.target order by page.tenant, page.target)
  into tenants, targets
  from (
    select visited.tenant, visited.target
    from (
      select h.tenant, h.target, h.job_id
      from heads h
      where (h.tenant, h.target) > (floor_tenant, floor_target) and (only_tenant is null or h.tenant = only_tenant)
      order by h.tenant, h.target
      limit max_visited) visited
    join jobs j on j.id = visited.job_id
    where not only_blocked or j.state in ('paused', 'error')
    limit max_targets) page;
  tenants := coalesce(tenants, '{}');
  targets := coalesce(targets, '{}');
  if cardinality(targets) = max_targets then
    reached_tenant := tenants[max_targets];
    reached_target := targets[max_targets];
  else
    select h.tenant, h.target into reached_tenant, reached_target
    from heads h
    where (h.tenant, h.target) > (floor_tenant, floor_target) and (only_tenant is null or h.tenant = only_tenant)
    order by h.tenant, h.target
    offset max_visited - 1
    limit 1;
  end if;
  return next;
end
$$;

-- Targets by name; no row if nothing is open. The counts of jobs behind the head end at 10 000, and `line` is the first
-- `max_line` of them, in their order.
create or replace function show_targets(
  tenants text[], targets text[], only_tenant text default null, max_line integer default 0
) returns table (
  tenant text, target text, blocked boolean, job_id uuid, type text, state text, since timestamptz, run_at timestamptz,
  worker text, by text, note text, last_error text, waiting bigint, waiting_more boolean, line uuid[])
language sql security definer stable
set search_path from current
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
  select
    asked.tenant, asked.target, coalesce(j.state in ('paused', 'error'), false), j.id, j.type, j.state,
    case when j.state = 'running' then j.started_at else j.updated_at end,
    case when j.state in ('retry', 'scheduled') then j.run_at end,
    l.worker, said.by, said.note, j.last_error, least(behind.count, 10000), behind.count > 10000, behind.line
  from unnest(tenants, targets) as asked (tenant, target)
  left join heads h on h.tenant = asked.tenant and h.target = asked.target
  left join jobs j on j.id = h.job_id
  left join leases l on l.job_id = j.id and l.attempt = j.attempt
  left join lateral (
    select e.by, e.note
    from job_events e
    where e.job_id = j.id and e.event = j.state and j.state in ('paused', 'error')
    order by e.id desc
    limit 1) said on true
  cross join lateral (
    select
      (select count(*)
       from (select from waiting w where w.tenant = asked.tenant and w.target = asked.target limit 10001) counted)
        as count,
      array(
        select w.job_id
        from waiting w
        where w.tenant = asked.tenant and w.target = asked.target
        order by w.turn, w.place
        limit max_line) as line) behind
  where (only_tenant is null or asked.tenant = only_tenant) and (j.id is not null or behind.count > 0)
  order by asked.tenant, asked.target
$$;

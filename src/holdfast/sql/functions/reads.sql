-- What may be read of jobs. Moves: none. Roles: api, worker, operator. Step 11 dropped the view; hence it is made here.

create or replace view job_details as
select
  j.id, j.type, j.queue, coalesce(t.lane, 'general') as lane, j.tenant, j.state, j.reason, j.priority, j.attempt,
  j.failures, attempts_allowed(j.max_attempts, t.max_attempts, setting('MAX_ATTEMPTS_DEFAULT')::integer) as max_attempts,
  j.target, j.idempotency_key, j.dedup_key, coalesce(j.correlation_id, j.id::text) as correlation_id,
  j.parent_id, j.retry_of, j.created_by, j.created_at, j.updated_at, j.run_at, j.started_at, j.finished_at,
  j.last_error, j.last_error_at, j.target_count, l.worker as lease_owner, l.expires_at as lease_expires_at,
  l.interrupt, j.payload, j.result, j.traceparent
from jobs j
left join job_types t on t.name = j.type
left join leases l on l.job_id = j.id and l.attempt = j.attempt;

create or replace function get_jobs(job_ids uuid[], only_tenant text default null) returns setof job_details
language sql security definer stable
set search_path from current
as $$
  select d.*
  from job_details d
  where d.id = any (job_ids) and (only_tenant is null or d.tenant = only_tenant)
$$;

-- Newest first; `before` is the last id of the page before. A page may need to pass over jobs that do not
-- fit: it looks at no more than `max_visited` of them, and then ends early.
create or replace function list_jobs(
  states text[] default null, types text[] default null, queues text[] default null, only_tenant text default null,
  only_target text default null, correlation text default null, before uuid default null,
  max_jobs integer default 50, max_visited integer default 200000
) returns setof job_details
language sql security definer stable
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
  select d.*
  from (
    select recent.id
    from (
      select j.id, j.state, j.type, j.queue, j.tenant, j.target, j.correlation_id
      from jobs j
      where before is null or j.id < before
      order by j.id desc
      limit max_visited) recent
    where (states is null or recent.state = any (states))
      and (types is null or recent.type = any (types))
      and (types is not null or not starts_with(recent.type, 'holdfast.'))
      and (queues is null or recent.queue = any (queues))
      and (only_tenant is null or recent.tenant = only_tenant)
      and (only_target is null or recent.target = only_target)
      and (correlation is null or coalesce(recent.correlation_id, recent.id::text) = correlation)
    limit max_jobs) page
  join job_details d on d.id = page.id
  order by d.id desc
$$;

create or replace function get_attempts(id uuid, only_tenant text default null) returns setof job_attempts
language sql security definer stable
set search_path from current
as $$
  select t.*
  from job_attempts t
  where t.job_id = get_attempts.id
    and (only_tenant is null or exists (select from jobs j where j.id = t.job_id and j.tenant = only_tenant))
  order by t.attempt
$$;

create or replace function get_events(id uuid, only_tenant text default null) returns setof job_events
language sql security definer stable
set search_path from current
as $$
  select e.*
  from job_events e
  where e.job_id = get_events.id
    and (only_tenant is null or exists (select from jobs j where j.id = e.job_id and j.tenant = only_tenant))
  order by e.id
$$;

-- What jobs have reported, those that have. Why a job was done is known when it is.
create or replace function get_progress(job_ids uuid[])
returns table (
  job_id uuid, progress_count bigint, result_count bigint, cursor jsonb, last_progress_at timestamptz, done_reason text)
language sql security definer stable
set search_path from current
as $$
  select p.job_id, p.progress_count, p.result_count, p.cursor, p.last_progress_at,
    case when j.state = 'success' then coalesce(p.done_reason, 'worker_done') end
  from job_progress p
  join jobs j on j.id = p.job_id
  where p.job_id = any (job_ids)
$$;

-- What a job has stored, in the order in which it did; `after` is the last id of the page before.
create or replace function get_items(
  job_id uuid, after bigint default null, max_items integer default 100, only_tenant text default null
) returns table (id bigint, collection text, key text, data jsonb, created_at timestamptz)
language sql security definer stable
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
as $$
  select i.id, i.collection, i.key, i.data, i.created_at
  from job_items i
  where i.job_id = get_items.job_id
    and i.id > coalesce(get_items.after, 0)
    and (only_tenant is null or i.tenant = only_tenant)
  order by i.job_id, i.id
  limit max_items
$$;

-- What stands where, from the small tables: cheap at any number of ended jobs.
create or replace function backlog() returns table (measure text, count bigint)
language sql security definer stable
set search_path from current
as $$
  select 'ready', count(*) from ready
  union all select 'running', count(*) from leases
  union all select 'due', count(*) from due
  union all select 'waiting', count(*) from waiting
  union all select 'dead', count(*) from dead_letters where acknowledged_at is null
  union all select 'repairs', coalesce(sum(r.count), 0)::bigint from repairs r
$$;

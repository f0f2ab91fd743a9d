-- What may be read about jobs. Moves: none. Roles: api, worker, operator. Step 11 dropped the view, so it is created
-- here.

-- Jobs as they may be read, with the lane of their type.
create or replace view job_details as
select
  j.id, j.type, j.queue, coalesce(t.lane, 'general') as lane, j.tenant, j.state, j.reason, j.priority, j.attempt,
  j.failures, attempts_allowed(j.max_attempts, t.max_attempts, setting('MAX_ATTEMPTS_DEFAULT')::integer) as max_attempts,
  j.target, j.idempotency_key, j.dedup_key, coalesce(j.correlation_id, j.id::text) as correlation_id,
  j.parent_id, j.retry_of, j.created_by, readable(j.created_at) as created_at, readable(j.updated_at) as updated_at,
  readable(j.run_at) as run_at, readable(j.started_at) as started_at, readable(j.finished_at) as finished_at,
  j.last_error, readable(j.last_error_at) as last_error_at, j.target_count, l.worker as lease_owner,
  readable(l.expires_at) as lease_expires_at,
  told_interrupt(l.interrupt) as interrupt, j.payload, j.result, j.traceparent
from jobs j
left join job_types t on t.name = j.type
left join leases l on l.job_id = j.id and l.attempt = j.attempt;

-- What lists show of jobs: everything but payload, result and cursor, with texts cut to their maximal length. A row
-- that hand-written SQL or an older release left must not prevent anybody from reading the others. Not a view: the type
-- of a column that a view shows cannot be changed.
create or replace function summaries(job_ids uuid[], only_tenant text default null)
returns table (
  id uuid, type text, queue text, lane text, tenant text, state text, reason text, priority integer, attempt integer,
  failures integer, max_attempts integer, target text, idempotency_key text, dedup_key text, correlation_id text,
  parent_id uuid, retry_of uuid, created_by text, created_at timestamptz, updated_at timestamptz, run_at timestamptz,
  started_at timestamptz, finished_at timestamptz, last_error text, last_error_at timestamptz, target_count bigint,
  lease_owner text, lease_expires_at timestamptz, interrupt text, traceparent text, progress_count bigint,
  result_count bigint, last_progress_at timestamptz, done_reason text)
language sql security definer stable
set search_path from current
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
  select
    j.id, left(j.type, 200), left(j.queue, 200), coalesce(t.lane, 'general'), left(j.tenant, 200), j.state,
    left(j.reason, 255), j.priority, j.attempt, j.failures,
    attempts_allowed(j.max_attempts, t.max_attempts, setting('MAX_ATTEMPTS_DEFAULT')::integer), left(j.target, 255),
    left(j.idempotency_key, 255), left(j.dedup_key, 255), coalesce(left(j.correlation_id, 255), j.id::text), j.parent_id,
    j.retry_of, left(j.created_by, 500), readable(j.created_at), readable(j.updated_at), readable(j.run_at),
    readable(j.started_at), readable(j.finished_at), left(j.last_error, 1000), readable(j.last_error_at), j.target_count,
    left(l.worker, 255), readable(l.expires_at), l.interrupt, left(j.traceparent, 255), p.progress_count, p.result_count,
    readable(p.last_progress_at),
    case when p.job_id is not null and j.state = 'success' then coalesce(p.done_reason, 'worker_done') end
  from unnest(job_ids) as asked (id)
  join jobs j on j.id = asked.id
  left join job_types t on t.name = j.type
  left join leases l on l.job_id = j.id and l.attempt = j.attempt
  left join job_progress p on p.job_id = j.id
  where only_tenant is null or j.tenant = only_tenant
$$;

-- Jobs by their ids, with payload and result.
create or replace function get_jobs(job_ids uuid[], only_tenant text default null) returns setof job_details
language sql security definer stable
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
  select d.*
  from job_details d
  where d.id = any (job_ids) and (only_tenant is null or d.tenant = only_tenant)
$$;

-- The ids of a list, newest first; `before` is the last id of the previous page. A page may have to pass over jobs that
-- do not match: it looks at no more than `max_visited` jobs, and then ends early. Roles: api, worker, operator.
create or replace function listed_ids(
  states text[], types text[], queues text[], only_tenant text, only_target text, correlation text, before uuid,
  max_jobs integer, max_visited integer default 200000
) returns uuid[]
language sql security definer stable
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
as $$
  select array(
    select recent.id
    from (
      select j.id, j.state, j.type, j.queue, j.tenant, j.target, j.correlation_id
      from jobs j
      where before is null or j.id < before
      order by j.id desc
      limit max_visited) recent
    where (states is null or recent.state = any (states))
      and (types is null or recent.type = any (types))
      and (types is not null or not is_request(recent.type))
      and (queues is null or recent.queue = any (queues))
      and (only_tenant is null or recent.tenant = only_tenant)
      and (only_target is null or recent.target = only_target)
      and (correlation is null or coalesce(recent.correlation_id, recent.id::text) = correlation)
    limit max_jobs)
$$;

-- Jobs, newest first, for programs that read few of them in psql or in their own statements. They come with payloads
-- and results of any size.
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
  from unnest(listed_ids(states, types, queues, only_tenant, only_target, correlation, before, max_jobs, max_visited))
    as page (id)
  join job_details d on d.id = page.id
  order by d.id desc
$$;

-- The ended attempts of a job, oldest first.
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

-- A job's history of cancels, pauses and the like, oldest first.
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

-- What jobs have reported; no row for a job without reports. Why a job was done is known once it has succeeded.
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

-- The items of a job, in the order in which it stored them; `after` is the last id of the previous page.
create or replace function get_items(
  job_id uuid, after bigint default null, max_items integer default 100, only_tenant text default null
) returns table (id bigint, collection text, key text, data jsonb, created_at timestamptz)
language sql security definer stable
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
as $$
  select i.id, collection_name(i.collection), i.key, i.data, i.created_at
  from job_items i
  where i.job_id = get_items.job_id
    and i.id > coalesce(get_items.after, 0)
    and (only_tenant is null or i.tenant = only_tenant)
  order by i.job_id, i.id
  limit max_items
$$;

-- Pages of a job's attempts, events and items. A page ends after the given number of rows, or earlier if they are large
-- (`page_bytes`). Every row says whether there is `more` after the page. Texts are cut to their maximal length, and
-- moments are made readable.

-- Ended attempts, oldest first, after the given number. Roles: api, worker, operator.
create or replace function attempts_page(id uuid, only_tenant text, after integer, max_attempts integer)
returns table (
  job_id uuid, attempt integer, started_at timestamptz, finished_at timestamptz, queue_ms integer, duration_ms integer,
  outcome text, worker text, error_type text, error_message text, traceback text, log_excerpt text, more boolean)
language plpgsql security definer stable
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
  bytes bigint;
  spent bigint := 0;
  given integer := 0;
  rest  boolean := false;
begin
  for bytes in
    select octet_length(concat(left(t.error_message, 10000), left(t.traceback, 50000), left(t.log_excerpt, 10000)))
    from job_attempts t
    where t.job_id = attempts_page.id
      and t.attempt > coalesce(attempts_page.after, 0)
      and (only_tenant is null or exists (select from jobs j where j.id = t.job_id and j.tenant = only_tenant))
    order by t.job_id, t.attempt
    limit attempts_page.max_attempts + 1
  loop
    spent := spent + coalesce(bytes, 0);
    rest := given >= attempts_page.max_attempts or (given > 0 and spent > page_bytes());
    exit when rest;
    given := given + 1;
  end loop;
  return query
  select t.job_id, t.attempt, readable(t.started_at), readable(t.finished_at), t.queue_ms, t.duration_ms, t.outcome,
    left(t.worker, 255), left(t.error_type, 200), left(t.error_message, 10000), left(t.traceback, 50000),
    left(t.log_excerpt, 10000), rest
  from job_attempts t
  where t.job_id = attempts_page.id
    and t.attempt > coalesce(attempts_page.after, 0)
    and (only_tenant is null or exists (select from jobs j where j.id = t.job_id and j.tenant = only_tenant))
  order by t.job_id, t.attempt
  limit given;
end
$$;

-- A job's history, oldest first, without the first `after` events: an event's own number would reveal how much happens
-- to the jobs of others. Roles: api, worker, operator.
create or replace function events_page(id uuid, only_tenant text, after bigint, max_events integer)
returns table (job_id uuid, at timestamptz, event text, by text, note text, more boolean)
language plpgsql security definer stable
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
  bytes bigint;
  spent bigint := 0;
  given integer := 0;
  rest  boolean := false;
begin
  for bytes in
    select octet_length(concat(left(e.by, 500), left(e.note, 10000)))
    from job_events e
    where e.job_id = events_page.id
      and (only_tenant is null or exists (select from jobs j where j.id = e.job_id and j.tenant = only_tenant))
    order by e.id
    offset coalesce(events_page.after, 0)
    limit max_events + 1
  loop
    spent := spent + coalesce(bytes, 0);
    rest := given >= max_events or (given > 0 and spent > page_bytes());
    exit when rest;
    given := given + 1;
  end loop;
  return query
  select e.job_id, readable(e.at), left(e.event, 255), left(e.by, 500), left(e.note, 10000), rest
  from job_events e
  where e.job_id = events_page.id
    and (only_tenant is null or exists (select from jobs j where j.id = e.job_id and j.tenant = only_tenant))
  order by e.id
  offset coalesce(events_page.after, 0)
  limit given;
end
$$;

-- The items of a job, in the order in which it stored them, after the item with that id. Roles: api, worker, operator.
create or replace function items_page(job_id uuid, only_tenant text, after bigint, max_items integer)
returns table (id bigint, collection text, key text, data text, created_at timestamptz, more boolean)
language plpgsql security definer stable
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
  bytes bigint;
  spent bigint := 0;
  given integer := 0;
  rest  boolean := false;
begin
  for bytes in
    select octet_length(i.data::text)
    from job_items i
    where i.job_id = items_page.job_id
      and i.id > coalesce(items_page.after, 0)
      and (only_tenant is null or i.tenant = only_tenant)
    order by i.job_id, i.id
    limit max_items + 1
  loop
    spent := spent + coalesce(bytes, 0);
    rest := given >= max_items or (given > 0 and spent > page_bytes());
    exit when rest;
    given := given + 1;
  end loop;
  return query
  select i.id, collection_name(left(i.collection, 237)), left(i.key, 255), i.data::text, readable(i.created_at), rest
  from job_items i
  where i.job_id = items_page.job_id
    and i.id > coalesce(items_page.after, 0)
    and (only_tenant is null or i.tenant = only_tenant)
  order by i.job_id, i.id
  limit given;
end
$$;

-- How many jobs are ready, running, due, waiting and dead, from the small tables: cheap with any number of ended jobs.
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

-- How many jobs of each type wait for a worker, the types with most of them first. Beyond a million jobs, the rest is not
-- counted. Roles: worker.
create or replace function queue_depths() returns table (type text, depth bigint)
language sql security definer stable
set search_path from current
set jit = off
as $$
  select s.type, sum(line.depth)::bigint
  from (
    select stream_of(entry.stream) as stream, count(*) as depth
    from (select r.stream from ready r limit 1000000) entry
    group by 1) line
  join streams s on s.id = line.stream
  where not is_request(s.type)
  group by s.type
  order by 2 desc, 1
  limit 1000
$$;

-- Ended attempts with the names of their jobs, for the log of a process that settled them in place of their worker.
-- Roles: worker.
create or replace function ended_attempts(job_ids uuid[], attempts integer[]) returns table (
  job_id uuid, attempt integer, type text, tenant text, queue text, outcome text, failures integer,
  duration_seconds double precision, queue_seconds double precision, correlation_id text, worker text,
  error_type text, error_message text)
language sql security definer stable
set search_path from current
set enable_seqscan = off
as $$
  select a.job_id, a.attempt, j.type, j.tenant, j.queue, a.outcome, j.failures,
    coalesce(a.duration_ms / 1000.0, greatest(extract(epoch from a.finished_at - a.started_at), 0))::double precision,
    coalesce(a.queue_ms, 0) / 1000.0::double precision, coalesce(j.correlation_id, j.id::text), a.worker,
    a.error_type, left(a.error_message, 10000)
  from unnest(job_ids, attempts) as named (job_id, attempt)
  cross join lateral (
    select a.*
    from job_attempts a
    where a.job_id = named.job_id and a.attempt = named.attempt
    offset 0) a
  join jobs j on j.id = named.job_id
$$;

-- Take back what lapsed. Roles: worker.

-- Moves: running → queued | dead | error | paused | canceled; the attempt is closed as `lost`.
-- No lease is lapsed until the database has been up, and the caller connected, for one full lease: an
-- outage burns no attempt. `after` is how far an earlier sweep has come.
create or replace function sweep(
  connected_seconds double precision, max_jobs integer default 200, after timestamptz default '-infinity'
) returns table (job_id uuid, attempt integer, worker text, state text)
language plpgsql security definer
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
  patience double precision := least(
    connected_seconds, extract(epoch from clock_timestamp() - pg_postmaster_start_time()));
  ids uuid[];
begin
  select array_agg(entry.job_id) into ids
  from (
    select l.job_id
    from leases l
    where l.expires_at < now() and l.expires_at >= after and l.lease_seconds <= patience
    order by l.expires_at
    limit max_jobs
    for update skip locked) entry;
  if ids is not null then
    return query select * from lapse(ids, patience);
  end if;
end
$$;

-- For how long both the server and this session have been there.
create or replace function session_seconds() returns double precision
language sql stable
set search_path from current
as $$
  select extract(epoch from clock_timestamp() - greatest(pg_postmaster_start_time(), a.backend_start))::double precision
  from pg_stat_activity a
  where a.pid = pg_backend_pid()
$$;

-- Close lapsed leases among the given jobs, whoever held them. A job whose row somebody has locked is left for the next
-- sweep, so that it holds up no other.
create or replace function lapse(job_ids uuid[], patience double precision)
returns table (job_id uuid, attempt integer, worker text, state text)
language plpgsql
set search_path from current
as $$
#variable_conflict use_column
declare
  ids     uuid[];
  numbers integer[];
  holders text[];
begin
  select array_agg(entry.job_id), array_agg(entry.attempt), array_agg(entry.worker)
  into ids, numbers, holders
  from (
    select l.job_id, l.attempt, l.worker
    from leases l
    join jobs j on j.id = l.job_id
    where l.job_id = any (job_ids)
      and l.expires_at < now()
      and l.lease_seconds <= coalesce(patience, session_seconds())
    order by l.job_id
    for update of l skip locked
    for no key update of j skip locked) entry;
  if ids is null then
    return;
  end if;
  return query
  select s.job_id, s.attempt, held.worker, s.state
  from settle(
    null, ids, numbers, array_fill('lost'::text, array[cardinality(ids)]), null,
    array_fill('LeaseLost'::text, array[cardinality(ids)]),
    array_fill('the worker stopped renewing its lease'::text, array[cardinality(ids)]), null, null, null, null) s
  join unnest(ids, holders) as held (job_id, worker) on held.job_id = s.job_id;
end
$$;

-- Lease jobs by id, or from whole streams (see claim.sql). Moves: queued → running (attempt + 1). Roles: worker.

-- Claim from whole streams.
create or replace function claim_streams(
  worker text, streams integer[], max_jobs integer, lease_seconds double precision
) returns table (
  job_id uuid, attempt integer, stream integer, rank integer, seq bigint, payload jsonb, correlation_id text,
  target text, failures integer, max_attempts integer, created_at timestamptz, ready_at timestamptz,
  claimed_at timestamptz, lease_seconds_given double precision)
language sql
set search_path from current
as $$
  select *
  from claim_from(
    worker, max_jobs, lease_seconds, streams,
    array_fill(-1, array[cardinality(streams)]),
    array_fill(0::bigint, array[cardinality(streams)]),
    array_fill(2147483647, array[cardinality(streams)]))
$$;

-- Claim one job by its id: when queued (and head of its target), when its retry is due, or when its lease
-- has lapsed. No row when it cannot be claimed.
create or replace function claim_by_id(
  worker text, id uuid, lease_seconds double precision default null, only_tenant text default null
) returns table (
  job_id uuid, attempt integer, type text, queue text, tenant text, payload jsonb, correlation_id text,
  target text, lease_expires_at timestamptz)
language plpgsql security definer
set search_path from current
as $$
#variable_conflict use_column
declare
  job   jobs;
  entry record;
begin
  select j.* into job
  from jobs j
  where j.id = claim_by_id.id
    and (only_tenant is null or j.tenant = only_tenant)
    and not is_request(j.type);
  if not found then
    return;
  end if;
  if job.state = 'running' then
    perform lapse(array[job.id], null);
  elsif job.state = 'retry' and job.run_at <= now() then
    perform promote_jobs(array[job.id]);
  end if;

  select j.* into job from jobs j where j.id = claim_by_id.id and j.state = 'queued';
  if not found then
    return;
  end if;
  -- Pauses and limits are looked up by stream.
  perform serve_streams(array[job.stream], array[job.id]);
  if not all_open(array[job.stream]) then
    return;
  end if;
  select r.rank, r.seq into entry
  from ready_entry(job.stream, job.priority, ready_seq(job)) spot
  join ready r on r.stream = spot.stream and r.rank = spot.rank and r.seq = spot.seq
  where r.job_id = job.id and not is_parked(r.stream)
  for update of r skip locked;
  if not found then
    return;
  end if;
  -- A claim passes over a job that somebody has locked, and takes the next one.
  perform from jobs j where j.id = job.id and j.state = 'queued' for no key update skip locked;
  if not found then
    return;
  end if;
  -- If its key had no permit, this job would be parked, and the claim would take the job behind it.
  if exists (
    select from key_gates(job.type, job.tenant, job.payload) g
    where cardinality(grab(g.gate, g.capacity, g.seconds, 1, '{}')) = 0
  ) then
    return;
  end if;
  -- The entry is the first of the range, and both it and its job are already locked by this transaction.
  return query
  select c.job_id, c.attempt, job.type, job.queue, job.tenant, c.payload, c.correlation_id, c.target,
    c.claimed_at + make_interval(secs => c.lease_seconds_given)
  from claim_from(
    worker, 1, claim_by_id.lease_seconds, array[job.stream], array[entry.rank], array[entry.seq - 1],
    array[entry.rank + 1]) c;
end
$$;

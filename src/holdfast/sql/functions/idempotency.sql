-- Idempotency and dedup keys that already have a job: see enqueue.sql. Moves: none.

-- Record the idempotency keys of a batch for the ids of its future jobs, in the order of the keys, so that no two
-- batches wait for each other. Answers the positions whose key belongs to another request or an earlier position.
create or replace function taken_keys(types text[], payloads jsonb[], options jsonb[], tenant text, ids uuid[])
returns integer[]
language sql
set search_path from current
as $$
  with wish as materialized (
    select
      job.position::integer as position,
      job.id,
      job.option ->> 'idempotency_key' as key,
      job_fingerprint(job.type, job.payload) as fingerprint
    from unnest(types, payloads, options, ids) with ordinality as job (type, payload, option, id, position)
    where job.option ->> 'idempotency_key' is not null
  ), first as (
    select distinct on (key) key, id, fingerprint
    from wish
    order by key, position
  ), recorded as (
    insert into idempotency_keys (tenant, key, job_id, fingerprint)
    select taken_keys.tenant, key, id, fingerprint
    from first
    order by key
    on conflict do nothing
    returning key, job_id
  )
  select coalesce(array_agg(wish.position), '{}')
  from wish
  where not exists (select from recorded r where r.key = wish.key and r.job_id = wish.id)
$$;

-- The job that answers an intent whose key was taken, or whose insert conflicted. If that job has gone in the meantime,
-- the intent is recorded again.
create or replace function existing_job(
  type text, payload jsonb, option jsonb, tenant text, created_by text, id uuid
) returns table (job_id uuid, state text, outcome text)
language plpgsql
set search_path from current
as $$
#variable_conflict use_column
declare
  asked    text := option ->> 'idempotency_key';
  bound_to uuid;
  print    bytea;
  standing text;
  other    jobs;
begin
  if asked is not null then
    select k.job_id, k.fingerprint, j.state into bound_to, print, standing
    from idempotency_keys k
    left join jobs j on j.id = k.job_id and j.tenant = k.tenant
    where k.tenant = existing_job.tenant and k.key = asked;
    if standing is not null then
      return query select bound_to, standing, case
        when print = job_fingerprint(existing_job.type, existing_job.payload) then 'existing'
        else 'conflict'
      end;
      return;
    end if;
  end if;

  -- By id first: a batch that is sent again asks for the job that it created, not for a later one.
  select j.* into other
  from jobs j
  where j.id = existing_job.id and j.tenant = existing_job.tenant and j.type = existing_job.type;
  if not found then
    select j.* into other
    from jobs j
    where j.tenant = existing_job.tenant and j.type = existing_job.type and j.dedup_key = option ->> 'dedup_key';
  end if;
  if found and (asked is null or bound_to = existing_job.id) then
    if asked is not null and other.id <> existing_job.id then
      -- The key belongs to this request, and had no job so far.
      update idempotency_keys k
      set job_id = other.id
      where k.tenant = existing_job.tenant and k.key = asked;
    end if;
    return query select other.id, other.state, 'existing';
    return;
  end if;

  if exists (select from jobs j where j.id = existing_job.id) then
    raise exception 'the id % belongs to another job', existing_job.id using errcode = 'HF002';
  end if;
  -- A key without a job is our own, or was left behind by retention: it is recorded again with the intent.
  delete from idempotency_keys k
  where k.tenant = existing_job.tenant and k.key = asked and k.job_id = bound_to;
  return query
  select r.job_id, r.state, r.outcome
  from record_jobs(
    array[existing_job.type], array[existing_job.payload], array[existing_job.option], existing_job.tenant,
    existing_job.created_by, array[existing_job.id]) r;
end
$$;

-- The identity of an intent: a hash of its type and payload.
create or replace function job_fingerprint(type text, payload jsonb) returns bytea
language sql immutable parallel safe
as $$
  select sha256(convert_to(type || ' ' || payload::text, 'UTF8'))
$$;

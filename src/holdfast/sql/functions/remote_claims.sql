-- Pulls of remote workers: workers in any language, over HTTP (docs/decisions/035-remote-workers.md). Moves: queued → running.
-- Roles: remote.
--
-- 1. Everything is claimed by `claim_jobs`, as for all other workers: lanes, targets, limits, pauses, circuits and shares
--    are those of the claim.
-- 2. Each function answers many requests at once, each for its own tenant. What goes wrong with one of them is its own
--    answer: its work is undone, and that of the others is not.
-- 3. A pull with a request id notes what it was given before anybody can know of it, in the same transaction. A repeat on
--    another server waits for that transaction, and then gets the same jobs.
-- 4. A worker is listed from its first pull on, with kind `remote`. One that has been silent for as long as a worker is
--    lost starts anew when it comes back: it is no longer quiet.

-- Claim jobs for many workers. `wishes` are objects: types, queues (null for all), max, lease_sec (null for the default).
-- Answers a row for each job, and one without a job for a pull that gets none. `repeated`: this request id was given the
-- jobs before. A `fault` is a SQLSTATE, explained by `detail`.
create or replace function remote_pull(tenants text[], workers text[], request_ids text[], wishes jsonb[])
returns table (
  item integer, fault text, detail text, directive text, repeated boolean, job_id uuid, attempt integer, type text,
  queue text, payload text, max_attempts integer, correlation_id text, target text, cursor text, progress_count bigint,
  result_count bigint, target_count bigint, traceparent text, timeout_seconds double precision,
  lease_seconds double precision, lease_expires_at timestamptz, lease_remaining double precision)
language plpgsql security definer
set search_path from current
set lock_timeout = '250ms'
as $$
#variable_conflict use_column
declare
  wish    jsonb;
  quiet   boolean;
  given   record;
begin
  for position in 1 .. coalesce(cardinality(workers), 0) loop
    wish := wishes[position];
    begin
      perform check_remote(tenants[position], workers[position]);
      quiet := remote_present(tenants[position], workers[position], texts_of(wish -> 'types'), texts_of(wish -> 'queues'));
      select g.* into given
      from remote_give(tenants[position], workers[position], request_ids[position], wish, quiet) g;
      return query
      select position, null::text, null::text, case when quiet then 'drain' else 'continue' end, given.repeated, d.*
      from (select 1) one
      left join remote_details(workers[position], given.job_ids, given.attempts) d on true;
    exception
      when lock_not_available or deadlock_detected or serialization_failure
        or sqlstate 'HF001' or sqlstate 'HF002' or sqlstate 'HF003' or data_exception then
        item := position;
        fault := sqlstate;
        detail := sqlerrm;
        return next;
        fault := null;
        detail := null;
    end;
  end loop;
end
$$;

-- What one pull is given: the jobs that its request id was given before, as far as they are still its own, or new ones.
create or replace function remote_give(
  tenant text, worker text, request_id text, wish jsonb, quiet boolean,
  out job_ids uuid[], out attempts integer[], out repeated boolean)
language plpgsql
set search_path from current
as $$
#variable_conflict use_column
declare
  streams integer[];
begin
  repeated := false;
  -- First the streams, then earlier answers: whoever takes the last jobs in between has noted it.
  if not quiet then
    streams := remote_streams(tenant, texts_of(wish -> 'types'), texts_of(wish -> 'queues'));
  end if;
  if request_id is not null then
    select k.job_ids, k.attempts into job_ids, attempts from remote_kept(tenant, worker, request_id) k;
    if job_ids is not null then
      repeated := true;
      return;
    end if;
  end if;
  if streams is null then
    return;
  end if;
  if request_id is not null then
    insert into remote_pulls as p (tenant, worker, request_id)
    values (remote_give.tenant, remote_give.worker, remote_give.request_id)
    on conflict on constraint remote_pulls_pkey do nothing;
    if not found then
      -- A repeat has come meanwhile, or the earlier answer holds no longer.
      perform from remote_pulls p
      where p.tenant = remote_give.tenant and p.worker = remote_give.worker and p.request_id = remote_give.request_id
      for update;
      select k.job_ids, k.attempts into job_ids, attempts from remote_kept(tenant, worker, request_id) k;
      if job_ids is not null then
        repeated := true;
        return;
      end if;
    end if;
  end if;

  select array_agg(c.job_id), array_agg(c.attempt) into job_ids, attempts
  from claim_jobs(
    worker, (wish ->> 'max')::integer, (wish ->> 'lease_sec')::double precision, streams,
    array_fill(-1, array[cardinality(streams)]), array_fill(0::bigint, array[cardinality(streams)]),
    array_fill(2147483647, array[cardinality(streams)]), (wish ->> 'max')::integer, null, false) c;
  if job_ids is not null then
    perform serve_streams(array(select distinct l.stream from leases l where l.job_id = any (remote_give.job_ids)));
    perform remote_shorten(worker, job_ids);
    select t.job_ids, t.attempts into job_ids, attempts from remote_trim(worker, job_ids, attempts) t;
  end if;
  if request_id is not null then
    if job_ids is null then
      delete from remote_pulls p
      where p.tenant = remote_give.tenant and p.worker = remote_give.worker and p.request_id = remote_give.request_id;
    else
      update remote_pulls p
      set job_ids = remote_give.job_ids, attempts = remote_give.attempts, pulled_at = now()
      where p.tenant = remote_give.tenant and p.worker = remote_give.worker and p.request_id = remote_give.request_id;
    end if;
  end if;
end
$$;

-- The jobs that a request id was given in the last five minutes, those of them that the worker still owns; nulls if there
-- are none.
create or replace function remote_kept(tenant text, worker text, request_id text)
returns table (job_ids uuid[], attempts integer[])
language sql volatile
set search_path from current
as $$
  select array_agg(l.job_id order by given.place), array_agg(l.attempt order by given.place)
  from remote_pulls p
  cross join lateral unnest(p.job_ids, p.attempts) with ordinality as given (job_id, attempt, place)
  join leases l on l.job_id = given.job_id and l.attempt = given.attempt and l.worker = remote_kept.worker
  where p.tenant = remote_kept.tenant and p.worker = remote_kept.worker and p.request_id = remote_kept.request_id
    and p.pulled_at > now() - interval '5 minutes'
$$;

-- Those of a tenant's streams from which this can be claimed now: open ones with something ready. Null if there is none.
create or replace function remote_streams(tenant text, types text[], queues text[]) returns integer[]
language sql stable
set search_path from current
as $$
  select array_agg(s.id)
  from open_streams(types, queues, array[tenant]) s
  where s.id in (select r.id from ready_streams(array(
    select e.id from eligible_streams(types, queues, array[tenant]) e)) r)
$$;

-- What remote workers are told about jobs that they have claimed.
create or replace function remote_details(worker text, job_ids uuid[], attempts integer[])
returns table (
  job_id uuid, attempt integer, type text, queue text, payload text, max_attempts integer, correlation_id text,
  target text, cursor text, progress_count bigint, result_count bigint, target_count bigint, traceparent text,
  timeout_seconds double precision, lease_seconds double precision, lease_expires_at timestamptz,
  lease_remaining double precision)
language sql stable
set search_path from current
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
  select l.job_id, l.attempt, j.type, j.queue, j.payload::text,
    attempts_allowed(j.max_attempts, t.max_attempts, setting('MAX_ATTEMPTS_DEFAULT')::integer),
    coalesce(j.correlation_id, j.id::text), j.target, p.cursor::text, coalesce(p.progress_count, 0),
    coalesce(p.result_count, 0), j.target_count, left(j.traceparent, 255), timeout_of(j.type),
    l.lease_seconds::double precision, readable(l.expires_at),
    extract(epoch from l.expires_at - clock_timestamp())::double precision
  from unnest(job_ids, attempts) with ordinality as asked (job_id, attempt, place)
  join leases l on l.job_id = asked.job_id and l.attempt = asked.attempt and l.worker = remote_details.worker
  join jobs j on j.id = l.job_id
  left join job_types t on t.name = j.type
  left join job_progress p on p.job_id = l.job_id
  order by asked.place
$$;

-- Hand back the jobs of a pull whose payloads would make its answer too large: all of them together have 4 MiB at most, or
-- it is only one.
create or replace function remote_trim(worker text, inout job_ids uuid[], inout attempts integer[])
language plpgsql
set search_path from current
as $$
#variable_conflict use_column
declare
  kept integer;
begin
  if cardinality(job_ids) > 1
    and (select sum(pg_column_size(j.payload)) from jobs j where j.id = any (remote_trim.job_ids)) > 16384 then
    select count(*) into kept
    from (
      select c.place, sum(octet_length(j.payload::text)) over (order by c.place) as bytes
      from unnest(job_ids) with ordinality as c (job_id, place)
      join jobs j on j.id = c.job_id) line
    where line.place = 1 or line.bytes <= 4194304;
    if kept < cardinality(job_ids) then
      perform from hand_back(worker, job_ids[kept + 1:], attempts[kept + 1:], 'the answer to the pull would be too large');
      job_ids := job_ids[:kept];
      attempts := attempts[:kept];
    end if;
  end if;
end
$$;

-- Shorten leases that were claimed just now for longer than their job may run.
create or replace function remote_shorten(worker text, job_ids uuid[]) returns void
language sql
set search_path from current
as $$
  update leases l
  set expires_at = remote_end(l.claimed_at, s.type)
  from streams s
  where l.job_id = any (job_ids) and l.worker = remote_shorten.worker and s.id = l.stream
    and l.expires_at > remote_end(l.claimed_at, s.type)
$$;

-- Up to when the lease of an attempt can last at most: its timeout, and a moment to report.
create or replace function remote_end(claimed_at timestamptz, type text) returns timestamptz
language sql stable
set search_path from current
as $$
  select claimed_at + make_interval(secs => timeout_of(type) + 15)
$$;

-- How long an attempt of a job type may run: what the type declares, else what the settings say for its lane.
create or replace function timeout_of(type text) returns double precision
language sql stable
set search_path from current
as $$
  select coalesce(
    nullif(t.timeout_seconds, 0)::double precision,
    case
      when t.lane = 'fast' then setting('FAST_TIMEOUT_SECONDS')::double precision
      when t.lane <> 'general' then (
        select split_part(part, '=', 2)::double precision
        from regexp_split_to_table(setting('LANE_TIMEOUTS'), ',') as part
        where split_part(part, '=', 1) = t.lane)
    end,
    setting('GENERAL_TIMEOUT_SECONDS')::double precision)
  from (select 1) one
  left join job_types t on t.name = timeout_of.type
$$;

-- Note that a worker is there, with what it can run. Answers whether it is to claim no more.
create or replace function remote_present(tenant text, worker text, types text[], queues text[]) returns boolean
language plpgsql
set search_path from current
as $$
#variable_conflict use_column
declare
  known workers;
begin
  select w.* into known from workers w where w.id = worker;
  if found and known.heartbeat_at between now() - interval '45 seconds' and now() + interval '5 seconds'
    and known.types = remote_present.types and known.queues is not distinct from remote_present.queues then
    return known.quiet_at is not null;
  end if;
  perform check_worker(worker, '', '', types, queues, array[tenant]);
  insert into workers as w (id, host, pid, version, lanes, types, queues, tenants, kind)
  values (worker, '', 0, '', '{}', remote_present.types, remote_present.queues, array[tenant], 'remote')
  on conflict on constraint workers_pkey do update
    set types = excluded.types, queues = excluded.queues, heartbeat_at = now(),
      started_at = case when is_lost(w) then now() else w.started_at end,
      quiet_at = case when is_lost(w) then null else w.quiet_at end,
      quiet_by = case when is_lost(w) then null else w.quiet_by end,
      quiet_note = case when is_lost(w) then null else w.quiet_note end
  returning w.quiet_at is not null into known.draining;
  return known.draining;
end
$$;

-- Refuse a request without a tenant, or of a worker that is none of those who come over HTTP.
create or replace function check_remote(tenant text, worker text) returns void
language plpgsql immutable
as $$
begin
  if coalesce(tenant, '') = '' then
    raise exception 'no tenant was named' using errcode = 'HF003';
  elsif worker is null or not starts_with(worker, 'remote:') then
    raise exception 'the name of a remote worker begins with "remote:"' using errcode = 'HF002';
  end if;
end
$$;

-- The texts of a JSON array; null if it is none.
create or replace function texts_of(list jsonb) returns text[]
language sql immutable parallel safe
as $$
  select case when jsonb_typeof(list) = 'array' then array(select jsonb_array_elements_text(list)) end
$$;

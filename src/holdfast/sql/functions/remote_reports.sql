-- Reports of remote workers (docs/decisions/035-remote-workers.md). Moves: those of `report`, `complete`, `fail`, `snooze`
-- and `hand_back`, which do the work. Roles: remote.
--
-- 1. A report is one transaction: fence, duplicates, items, cursor, progress, lease and state. It counts only while its
--    worker has the lease of its attempt.
-- 2. A final report leaves its digest with the attempt: the same again is a repeat, whatever else comes is too late, and is
--    told how the attempt ended.
-- 3. An attempt may not run for longer than its timeout. After that its lease is not prolonged, its worker is told to
--    cancel, and an ending other than success is a timeout.
-- 4. Many reports are recorded in one transaction, each in a subtransaction of its own. None waits long for a row that
--    somebody else has locked: it fails with the SQLSTATE of that, and its server sends it again by itself.

-- Record reports of many workers. A `fault` is a SQLSTATE, explained by `detail` and, where the report itself is wrong, by
-- the place in it (`pointer`). `verdict` says what became of a report: counted, repeated, lease-lost or already-reported;
-- with the latter, `outcome` is how the attempt ended.
create or replace function remote_report(
  tenants text[], workers text[], job_ids uuid[], attempts integer[], reports text[]
) returns table (
  item integer, fault text, detail text, pointer text, verdict text, state text, owned boolean, directive text,
  lease_expires_at timestamptz, lease_remaining double precision, progress_count bigint, result_count bigint,
  outcome text)
language plpgsql security definer
set search_path from current
set enable_seqscan = off
set lock_timeout = '250ms'
as $$
#variable_conflict use_column
declare
  plain integer[] := settle_plain(tenants, workers, job_ids, attempts, reports);
begin
  return query
  select p.place, null::text, null::text, null::text, 'counted', 'success', false,
    remote_directive(workers[p.place], null, false), null::timestamptz, null::double precision, 0::bigint, 0::bigint,
    null::text
  from unnest(plain) as p (place);
  for position in 1 .. coalesce(cardinality(workers), 0) loop
    continue when position = any (plain);
    begin
      return query
      select position, null::text, null::text, null::text, t.*
      from take_report(
        tenants[position], workers[position], job_ids[position], attempts[position], reports[position]::jsonb) t;
    exception
      when lock_not_available or deadlock_detected or serialization_failure or program_limit_exceeded or check_violation
        or sqlstate 'HF001' or sqlstate 'HF002' or sqlstate 'HF003' or data_exception or statement_too_complex then
        item := position;
        get stacked diagnostics fault = returned_sqlstate, detail = message_text, pointer = column_name;
        return next;
    end;
  end loop;
end
$$;

-- Record one report.
create or replace function take_report(tenant text, worker text, job_id uuid, attempt integer, report jsonb)
returns table (
  verdict text, state text, owned boolean, directive text, lease_expires_at timestamptz, lease_remaining double precision,
  progress_count bigint, result_count bigint, outcome text)
language plpgsql
set search_path from current
as $$
#variable_conflict use_column
declare
  final   boolean := coalesce((report ->> 'done')::boolean, false) or report ? 'error';
  error   jsonb := report -> 'error';
  seq     integer := (report ->> 'seq')::integer;
  log     text := right(report ->> 'log', 10000);
  lease   leases;
  job     record;
  known   job_progress;
  counted record;
begin
  perform check_remote(tenant, worker);
  select l.* into lease
  from leases l
  where l.job_id = take_report.job_id and l.attempt = take_report.attempt and l.worker = take_report.worker
  for update;
  owned := found;
  select j.state, j.type, j.failures, j.target_count into job
  from jobs j
  where j.id = take_report.job_id and j.tenant = take_report.tenant;
  if not found then
    verdict := 'lease-lost';
    owned := false;
    return next;
    return;
  end if;
  select p.* into known from job_progress p where p.job_id = take_report.job_id;
  if not owned or job.state <> 'running' then
    return query select * from late_report(worker, job_id, attempt, report, final, seq, job.state, known);
    return;
  end if;

  if final or job.target_count is not null then
    perform from jobs j where j.id = take_report.job_id for no key update;  -- no long wait for whoever has it
  end if;
  if final and known.attempt = attempt and known.seqs @> seq::bigint then
    raise exception 'seq % was used by a report that was not final: give a final one the next number', seq
      using errcode = 'HF002', column = '/seq';
  end if;
  perform check_remote_report(report);
  if known.attempt = attempt then
    log := right(concat_ws(e'\n', known.log_excerpt, log), 10000);
  end if;
  state := 'running';
  if final and error is null then
    perform remote_call_succeeded(lease, tenant, job.type);
  end if;
  -- One without a number (`/api/report_results`) gets the next one: it cannot be told from another report.
  if seq is not null or report ?| array['items', 'cursor', 'progress', 'done_reason']
    or (final and known.attempt = attempt)
  then
    select r.* into counted
    from report(
      worker, job_id, attempt, coalesce(seq, case when known.attempt = attempt then upper(known.seqs)::integer end, 1),
      report -> 'items', report ->> 'collection', report -> 'cursor', coalesce((report ->> 'progress')::bigint, 0),
      report ->> 'done_reason', case when final and error is null then 'now' else 'at-target' end, report -> 'result',
      log) r;
    state := counted.state;
    verdict := case when counted.duplicate then 'repeated' end;
    known.progress_count := counted.progress_count;
    known.result_count := counted.result_count;
  elsif final and error is null then
    select c.state into state
    from complete(worker, array[job_id], array[attempt], array[report -> 'result'], null, array[log]) c;
  end if;
  if state = 'running' and error is not null then
    state := end_with_error(lease, tenant, job.type, job.failures, error, log);
  elsif state = 'running' and report ? 'log' and verdict is null then
    perform keep_log(job_id, attempt, log);
  end if;

  verdict := coalesce(verdict, 'counted');
  progress_count := coalesce(known.progress_count, 0);
  result_count := coalesce(known.result_count, 0);
  owned := state = 'running';
  if owned then
    select h.* into directive, lease_expires_at, lease_remaining
    from hold_on(lease, job.type, (report ->> 'extend_lease_sec')::double precision, false) h;
  else
    directive := remote_directive(worker, null, false);
    if known.log_excerpt is not null then
      update job_progress p set log_excerpt = null where p.job_id = take_report.job_id;  -- the attempt has it now
    end if;
    if final then
      update job_attempts t
      set report_digest = remote_digest(report)
      where t.job_id = take_report.job_id and t.attempt = take_report.attempt;
    end if;
  end if;
  return next;
end
$$;

-- The answer to a report about an attempt that its worker does not own any more: a repeat of what ended it, or of what it
-- reported before; too late; or of a lease that was lost.
create or replace function late_report(
  worker text, job_id uuid, attempt integer, report jsonb, final boolean, seq integer, job_state text, known job_progress
) returns table (
  verdict text, state text, owned boolean, directive text, lease_expires_at timestamptz, lease_remaining double precision,
  progress_count bigint, result_count bigint, outcome text)
language plpgsql
set search_path from current
as $$
#variable_conflict use_column
declare
  ended job_attempts;
begin
  perform vouch();
  owned := false;
  select t.* into ended
  from job_attempts t
  where t.job_id = late_report.job_id and t.attempt = late_report.attempt and t.worker = late_report.worker;
  if not found or ended.outcome = 'lost' or ended.taken_back is true then
    verdict := 'lease-lost';
  elsif (final and ended.report_digest = remote_digest(report))
    or (not final and known.attempt = late_report.attempt and known.seqs @> seq::bigint) then
    verdict := 'repeated';
    state := job_state;
    directive := remote_directive(worker, null, false);
    progress_count := coalesce(known.progress_count, 0);
    result_count := coalesce(known.result_count, 0);
  else
    verdict := 'already-reported';
    outcome := ended.outcome;
  end if;
  return next;
end
$$;

-- End an attempt as its worker says it failed. Answers the job's state.
create or replace function end_with_error(
  lease leases, tenant text, type text, failures integer, error jsonb, log text
) returns text
language plpgsql
set search_path from current
as $$
#variable_conflict use_column
declare
  late    boolean := is_late(lease, type);
  kind    text := coalesce(error ->> 'kind', 'retryable');
  delay   double precision := (error ->> 'delay_sec')::double precision;
  circuit text := error ->> 'circuit';
  snoozed boolean;
  barred  double precision;
  told    text;
begin
  perform check_seconds('delay_sec', 'delay', array[delay]);
  if circuit is not null and kind <> 'snooze' then
    barred := remote_call_failed(lease, tenant, type, circuit, error ->> 'message');
    if barred is not null and kind = 'retryable' then
      kind := 'snooze';
      delay := greatest(delay, barred);
    end if;
  elsif kind = 'snooze' then
    delay := coalesce(delay, remote_circuit_delay(tenant, circuit), 0);
  end if;
  snoozed := kind = 'snooze' and not late;
  select s.state into told
  from settle(
    lease.worker, array[lease.job_id], array[lease.attempt],
    array[case when snoozed then 'snoozed' when late then 'timeout' else 'failed' end],
    array[case
      when kind = 'snooze' then null
      when kind = 'retryable' and delay is not null and not late then 'retry'
      else kind
    end],
    array[coalesce(error ->> 'type', case
      when snoozed and circuit is not null then 'CircuitOpen'
      when snoozed then null
      when late then 'TimeoutError'
      else 'RemoteError'
    end)],
    array[error ->> 'message'], array[error ->> 'traceback'], array[log],
    array[case when snoozed then delay when kind <> 'snooze' and delay is not null then delay
      else remote_backoff(type, failures) end],
    null) s;
  return told;
end
$$;

-- How long a job that a remote worker ran waits until it is tried again: as its type declares, else by the settings
-- BACKOFF_BASE_SEC and BACKOFF_MAX_SEC, doubled with each failure, and up to a fifth more.
create or replace function remote_backoff(type text, failures integer) returns double precision
language sql volatile
set search_path from current
as $$
  select backoff_seconds(
    failures_after('failed', remote_backoff.failures),
    coalesce(t.backoff_base, (select setting('BACKOFF_BASE_SEC')::double precision)),
    coalesce(t.backoff_factor, 2), coalesce(t.backoff_max, (select setting('BACKOFF_MAX_SEC')::double precision)),
    coalesce(t.backoff_jitter, 0.2))
  from (select 1) one
  left join job_types t on t.name = remote_backoff.type
$$;

-- Keep what an attempt has logged until it ends.
create or replace function keep_log(job_id uuid, attempt integer, log text) returns void
language sql
set search_path from current
as $$
  insert into job_progress as p (job_id, attempt, seqs, progress_count, result_count, log_excerpt)
  values (keep_log.job_id, keep_log.attempt, '{}', 0, 0, keep_log.log)
  on conflict on constraint job_progress_pkey do update
    set log_excerpt = excluded.log_excerpt, attempt = excluded.attempt,
      seqs = case when p.attempt = excluded.attempt then p.seqs else '{}' end
$$;

-- Prolong a lease that its worker still has, and say what the worker is to do. Without `seconds`, a lease is prolonged by
-- its own length once less than half of it is left, or in any case (`always`).
create or replace function hold_on(lease leases, type text, seconds double precision, always boolean)
returns table (directive text, lease_expires_at timestamptz, lease_remaining double precision)
language plpgsql
set search_path from current
as $$
#variable_conflict use_column
declare
  moment  timestamptz := clock_timestamp();
  expires timestamptz := lease.expires_at;
begin
  perform check_seconds('the length of a lease', 'lease', array[seconds]);
  if not is_late(lease, type) and (
    seconds is not null or always or expires - moment < make_interval(secs => lease.lease_seconds / 2))
  then
    expires := greatest(expires, least(
      moment + make_interval(secs => coalesce(seconds, lease.lease_seconds)), remote_end(lease.claimed_at, type)));
    update leases l set expires_at = expires where l.job_id = lease.job_id;
  end if;
  directive := remote_directive(lease.worker, told_interrupt(lease.interrupt), is_late(lease, type));
  lease_expires_at := readable(expires);
  lease_remaining := extract(epoch from expires - moment);
  return next;
end
$$;

-- Whether an attempt has run for longer than it may.
create or replace function is_late(lease leases, type text) returns boolean
language sql stable
set search_path from current
as $$
  select clock_timestamp() > lease.claimed_at + make_interval(secs => timeout_of(type))
$$;

-- What a worker is to do with a job: what somebody decided about it, stop when its time is over, or what concerns the worker.
create or replace function remote_directive(worker text, interrupt text, late boolean) returns text
language sql stable
set search_path from current
as $$
  select coalesce(interrupt, case
    when late then 'cancel'
    when is_quiet(worker) then 'drain'
    else 'continue'
  end)
$$;

-- What is kept of a final report. Equal jsonb values have the same text.
create or replace function remote_digest(report jsonb) returns bytea
language sql immutable
as $$
  select sha256(convert_to(report::text, 'UTF8'))
$$;

-- Refuse a report with something that is too large to be stored, and say where it stands.
create or replace function check_remote_report(report jsonb) returns void
language plpgsql stable
set search_path from current
as $$
declare
  most  bigint := result_limit();
  wrong record;
begin
  if octet_length(report::text) < 1024 and is_small(report) then
    return;
  end if;
  select part.pointer, fault.text into wrong
  from (
    select '/items/' || (i.place - 1) || '/data', 'the data of an item', i.value -> 'data'
    from jsonb_array_elements(case when jsonb_typeof(report -> 'items') = 'array' then report -> 'items' else '[]' end)
      with ordinality as i (value, place)
    union all
    select '/cursor', 'the cursor', report -> 'cursor'
    union all
    select '/result', 'the result', report -> 'result') as part (pointer, what, value)
  cross join lateral (
    select json_fault(
      part.what, part.value, most, 'RESULT_MAX_BYTES', 'store it elsewhere and report where it is') as text
    offset 0) fault
  where fault.text is not null
  limit 1;
  if found then
    raise exception '%', wrong.text using errcode = 'HF002', column = wrong.pointer;
  end if;
end
$$;

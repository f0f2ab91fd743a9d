-- Record how attempts ended. Every settlement names job, attempt and worker: it counts only while that worker has that
-- lease, even past its expiry. Once the lease was swept or taken over, the answer is `lease-lost` and nothing changes.
-- The attempt number alone is not enough: after a failover to a standby that lagged behind, the same number can be
-- granted again, to another worker. A settlement that already counted and is sent again (its answer was lost) gets the
-- same answer.
--
-- A settlement that meets a lock waits for two seconds, and then fails: meanwhile it keeps the other leases of its
-- batch locked, which cannot be renewed. The caller then sends smaller batches.

-- A length of time in milliseconds, from 0 to the largest integer.
create or replace function milliseconds(length interval) returns integer
language sql immutable parallel safe
as $$
  select greatest(0, least(2147483647, date_part('epoch', length) * 1000))::integer
$$;

-- Record failures of all kinds. `kind` is retryable (the default), retry (the handler asked for one), fatal or hold;
-- `outcome` is failed or timeout. Moves: running → retry | dead | error | paused | canceled. Roles: worker.
create or replace function fail(
  worker         text,
  job_ids        uuid[],
  attempts       integer[],
  kinds          text[] default null,
  error_types    text[] default null,
  error_messages text[] default null,
  tracebacks     text[] default null,
  log_excerpts   text[] default null,
  delays         double precision[] default null,
  outcomes       text[] default null,
  durations_ms   integer[] default null
) returns table (job_id uuid, attempt integer, state text)
language plpgsql security definer
set search_path from current
as $$
begin
  if exists (select from unnest(outcomes) as o (outcome) where coalesce(outcome, '') not in ('failed', 'timeout'))
    or exists (select from unnest(kinds) as k (kind) where kind not in ('retryable', 'retry', 'fatal', 'hold')) then
    raise exception 'the outcome of a failure must be failed or timeout, and its kind retryable, retry, fatal or hold' using errcode = 'HF002';
  end if;
  perform check_seconds('the delay of a retry', 'delay', delays);
  return query
  select * from settle(
    named(worker), job_ids, attempts, coalesce(outcomes, array_fill('failed'::text, array[cardinality(job_ids)])),
    kinds, error_types, error_messages, tracebacks, log_excerpts, delays, durations_ms);
end
$$;

-- Put jobs off until later, without costing an attempt. Moves: running → scheduled | queued | paused | canceled.
-- Roles: worker.
create or replace function snooze(
  worker text, job_ids uuid[], attempts integer[], delays double precision[], notes text[] default null
) returns table (job_id uuid, attempt integer, state text)
language sql security definer
set search_path from current
as $$
  select check_seconds('the delay of a snooze', 'delay', delays);
  select * from settle(
    named(worker), job_ids, attempts, array_fill('snoozed'::text, array[cardinality(job_ids)]),
    null, null, notes, null, null, delays, null)
$$;

-- Hand back jobs that were not run, or not to their end. Costs no attempt, and the job goes before newer jobs of the
-- same priority. Moves: running → queued | paused | canceled. Roles: worker.
create or replace function hand_back(worker text, job_ids uuid[], attempts integer[], reason text default null)
returns table (job_id uuid, attempt integer, state text)
language sql security definer
set search_path from current
as $$
  select * from settle(
    named(worker), job_ids, attempts, array_fill('released'::text, array[cardinality(job_ids)]),
    null, null, array_fill(reason, array[cardinality(job_ids)]), null, null, null, null)
$$;

-- Record that handlers ended because they were told to. Moves: running → canceled | paused. Roles: worker.
create or replace function stop(
  worker text, job_ids uuid[], attempts integer[], outcomes text[], notes text[] default null
) returns table (job_id uuid, attempt integer, state text)
language plpgsql security definer
set search_path from current
as $$
begin
  if exists (select from unnest(outcomes) as o (outcome) where coalesce(outcome, '') not in ('canceled', 'paused')) then
    raise exception 'the outcome of a stopped attempt must be canceled or paused' using errcode = 'HF002';
  end if;
  return query
  select * from settle(named(worker), job_ids, attempts, outcomes, null, null, notes, null, null, null, null);
end
$$;

-- The name of a worker. A missing name becomes an empty one, so that no caller can pass for the engine.
create or replace function named(worker text) returns text
language sql immutable parallel safe
as $$
  select coalesce(worker, '')
$$;

-- Record any ending except success, for callers that were checked: lock and drop the leases, decide, move, log. Without
-- a worker, the engine itself ends the attempt, whichever worker has claimed it.
create or replace function settle(
  worker text, job_ids uuid[], attempts integer[], outcomes text[], kinds text[], error_types text[],
  error_messages text[], tracebacks text[], log_excerpts text[], delays double precision[], durations_ms integer[]
) returns table (job_id uuid, attempt integer, state text)
language plpgsql
set search_path from current
set jit = off
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set lock_timeout = '2s'
as $$
#variable_conflict use_column
declare
  default_attempts integer := setting('MAX_ATTEMPTS_DEFAULT');
  settled uuid[];
  numbers integer[];
  states  text[];
  tenants text[];
  targets text[];
  woken   integer[];
  soon    boolean;
begin
  with report as (
    select r.job_id, r.attempt, r.outcome, r.kind, left(r.error_type, 200) as error_type,
      left(r.error_message, 10000) as error_message, left(r.traceback, 50000) as traceback,
      left(r.log_excerpt, 10000) as log_excerpt, r.delay, r.duration_ms
    from unnest(job_ids, attempts, outcomes, kinds, error_types, error_messages, tracebacks, log_excerpts,
      delays, durations_ms)
      as r (job_id, attempt, outcome, kind, error_type, error_message, traceback, log_excerpt, delay, duration_ms)
  ), claimed as materialized (
    select l.job_id, l.attempt, l.claimed_at, l.ready_at, l.worker, l.interrupt, l.verdict, l.interrupted_by,
      l.interrupt_note, l.interrupt_message, report.outcome, report.kind, report.error_type, report.error_message,
      report.traceback, report.log_excerpt, report.delay, report.duration_ms
    from report
    join leases l on l.job_id = report.job_id and l.attempt = report.attempt
      and (settle.worker is null or l.worker = settle.worker)
    order by l.job_id
    for update of l
  ), gone as (
    delete from leases l
    using claimed
    where l.job_id = claimed.job_id and l.attempt = claimed.attempt
    returning claimed.*
  ), asked as materialized (
    -- Looked up all at once, because there is hardly ever one.
    select distinct on (d.job_id) d.job_id, d.decision, d.by, d.note, d.message
    from pending_decisions d
    where d.job_id = any (job_ids) and d.settled_by is null
    order by d.job_id, firmness(d.decision) desc, d.place
  ), told as materialized (
    -- A decision that was accepted before this attempt began holds like one that its lease has (see pending.sql).
    -- Materialized, because the terms below would otherwise be computed again for each column that depends on them.
    select gone.job_id, gone.attempt, gone.claimed_at, gone.ready_at, gone.worker,
      case when not earlier.holds then gone.interrupt when is_verdict(asked.decision) then 'cancel' else asked.decision
      end as interrupt,
      case when not earlier.holds then gone.verdict when is_verdict(asked.decision) then asked.decision end as verdict,
      case when earlier.holds then asked.by else gone.interrupted_by end as interrupted_by,
      case when earlier.holds then asked.note else gone.interrupt_note end as interrupt_note,
      case when earlier.holds then asked.message else gone.interrupt_message end as interrupt_message,
      gone.outcome, gone.kind, gone.error_type, gone.error_message, gone.traceback, gone.log_excerpt, gone.delay,
      gone.duration_ms
    from gone
    left join asked on asked.job_id = gone.job_id
    cross join lateral (
      select firmness(asked.decision) > firmness(coalesce(gone.verdict, gone.interrupt)) as holds) earlier
  ), judged as (
    -- Under an operator's verdict, the attempt has failed, however it ended, and the operator's words say why.
    select t.job_id, t.attempt, t.claimed_at, t.ready_at, t.worker, t.interrupt, t.verdict, t.interrupted_by,
      t.interrupt_note, t.interrupt_message, case when operator.judged then 'failed' else t.outcome end as outcome,
      case when not operator.judged then t.kind end as kind,
      case when operator.judged then operator_error(t.verdict) else t.error_type end as error_type,
      case when operator.judged then operator_words(t.verdict, t.interrupted_by, t.interrupt_note) else t.error_message
      end as error_message,
      t.traceback, t.log_excerpt, case when not operator.judged then t.delay end as delay, t.duration_ms
    from told t
    cross join lateral (select t.verdict is not null as judged) operator
  ), verdict as materialized (
    -- What a type does not declare is read at most once, and only if a job is retried: subqueries wait until then.
    select judged.*, cost.failures, next.state,
      case next.state
        when 'retry' then now() + make_interval(secs => coalesce(judged.delay, backoff_seconds(
          cost.failures,
          coalesce(t.backoff_base, (select setting('RETRY_BASE_SECONDS')::double precision)),
          coalesce(t.backoff_factor, (select setting('RETRY_FACTOR')::double precision)),
          coalesce(t.backoff_max, (select setting('RETRY_MAX_SECONDS')::double precision)),
          coalesce(t.backoff_jitter, (select setting('RETRY_JITTER')::double precision)))))
        when 'scheduled' then now() + make_interval(secs => judged.delay)
        else now()
      end as run_at,
      costs_attempt(judged.outcome) or next.state = 'error' as faulty
    from judged
    join jobs j on j.id = judged.job_id
    left join job_types t on t.name = j.type
    cross join lateral (
      select failures_after(judged.outcome, j.failures) as failures,
        attempts_allowed(j.max_attempts, t.max_attempts, default_attempts) as max_attempts) cost
    cross join lateral (
      select next_state(judged.outcome, judged.kind, coalesce(judged.verdict, judged.interrupt),
        coalesce(t.on_failure, 'retry'), cost.failures, cost.max_attempts, judged.delay) as state) next
  ), moved as (
    update jobs j
    set state = v.state,
      failures = v.failures,
      run_at = case when v.state in ('retry', 'scheduled') then v.run_at else j.run_at end,
      seq = case when v.state = 'queued' and j.target is null then nextval('places') else j.seq end,
      reason = case
        when v.state = 'canceled' and v.interrupt = 'resolve' then 'resolved'
        when v.state = 'paused' and v.interrupt is null then 'drained'
        when v.verdict = 'kill' then 'killed'
        else v.outcome
      end,
      updated_at = now(),
      finished_at = case when v.state in ('dead', 'canceled') then now() end,
      dedup_key = case when v.state in ('dead', 'canceled') then null else j.dedup_key end,
      last_error = case when v.faulty then coalesce(v.error_message, j.last_error) else j.last_error end,
      last_error_at = case when v.faulty then now() else j.last_error_at end
    from verdict v
    where j.id = v.job_id and j.state = 'running' and j.attempt = v.attempt
    returning j.id, j.attempt, j.state, j.seq, j.stream, j.priority, j.tenant, j.target, j.type, j.run_at,
      v.outcome, v.kind, v.claimed_at, v.ready_at, v.worker, v.error_type, v.error_message, v.traceback, v.log_excerpt,
      v.duration_ms, v.interrupt, v.verdict, v.interrupted_by, v.interrupt_note, v.interrupt_message,
      case when v.faulty then fingerprint_of(j.type, v.error_type, coalesce(v.error_message, v.outcome)) end as fingerprint
  ), lined as (
    insert into ready (stream, rank, seq, job_id)
    select stream, ready_rank(priority, true), seq, id from moved where state = 'queued' and target is null
  ), deferred as (
    insert into due (run_at, job_id)
    select run_at, id from moved where state in ('retry', 'scheduled')
  ), buried as (
    insert into dead_letters (job_id, tenant, type, error_type, error_message, fingerprint)
    select id, tenant, type, error_type, coalesce(error_message, outcome), fingerprint from moved where state = 'dead'
    on conflict do nothing
  ), counted as (
    -- Only appended: no row is shared, whatever the messages.
    insert into failures (job_id, attempt, fingerprint)
    select id, attempt, fingerprint from moved where fingerprint is not null
  ), noted as (
    -- An error or a drain is not anybody's request: the worker is named then.
    insert into job_events (job_id, event, by, note, message)
    select id,
      case
        when verdict is not null then verdict_event(verdict)
        when state = 'canceled' and interrupt = 'resolve' then 'resolved'
        else state
      end,
      case when verdict is null and (state = 'error' or interrupt is null) then worker else interrupted_by end,
      case when state = 'error' then error_message else coalesce(interrupt_note, error_message) end,
      client_message(state, outcome, kind, error_type, error_message, interrupt_message)
    from moved
    where state in ('paused', 'canceled', 'error') or verdict is not null
  ), logged as (
    insert into job_attempts (
      job_id, attempt, started_at, queue_ms, duration_ms, outcome, worker, error_type, error_message, traceback,
      log_excerpt, taken_back)
    select id, attempt, claimed_at, milliseconds(claimed_at - ready_at),
      greatest(coalesce(duration_ms, milliseconds(now() - claimed_at)), 0), outcome, worker, error_type, error_message,
      traceback, log_excerpt, case when settle.worker is null then true end
    from moved
    on conflict do nothing
  ), done as (
    -- Maintenance, which may have locked the row, then finds its request carried out. A handler that holds its job is
    -- not what was asked for, and neither is a retry: such a decision stays pending.
    update pending_decisions d
    set settled_by = asked.attempt
    from (
      select e.job_id, e.request_id, m.attempt
      from moved m
      join pending_decisions e on e.job_id = m.id and e.settled_by is null
      where m.interrupt is not null and m.state in ('paused', 'canceled', 'dead')
      for update of e skip locked) asked
    where d.job_id = asked.job_id and d.request_id = asked.request_id
  )
  select
    array_agg(id),
    array_agg(attempt),
    array_agg(state),
    array_agg(tenant) filter (where target is not null),
    array_agg(target) filter (where target is not null),
    array_agg(distinct stream) filter (where state = 'queued' and target is null),
    coalesce(bool_or(state in ('retry', 'scheduled') and run_at < now() + interval '2 seconds'), false)
  into settled, numbers, states, tenants, targets, woken, soon
  from moved;

  if targets is not null then
    perform seat(tenants, targets);
  end if;
  if exists (select from limited_types()) then
    perform make_room(settled);
  end if;
  if woken is not null then
    perform wake_again(woken);
  end if;
  if soon then
    perform wake('duty', array[0]);
  end if;

  if cardinality(settled) = cardinality(job_ids) then
    return query
    select a.id, a.number, s.state
    from unnest(job_ids, attempts) as a (id, number)
    join unnest(settled, numbers, states) as s (id, number, state) on s.id = a.id;
  else
    perform vouch();
    return query select * from settlement_answer(worker, job_ids, attempts, settled, numbers, states);
  end if;
end
$$;

-- What clients are told about an attempt that ended paused, held or canceled: what somebody asked for in their name,
-- the text of the handler's `Hold`, or that the attempt was interrupted. A payload that does not fit its handler also
-- holds the job, but its message is that of an exception, which is not for clients.
create or replace function client_message(
  state text, outcome text, kind text, error_type text, error_message text, interrupt_message text
) returns text
language sql immutable parallel safe
as $$
  select case
    when state = 'error' then
      case
        when kind = 'hold' and coalesce(error_type, '') not in ('InvalidInput', 'InvalidPayload', 'PayloadTooLarge')
        then error_message
      end
    else coalesce(interrupt_message, case when state = 'paused' and outcome = 'paused' then error_message end)
  end
$$;

-- The state of each attempt that was settled now. If the lease was gone, an attempt that this worker closed itself is a
-- repeat; any other attempt is lost.
create or replace function settlement_answer(
  worker text, job_ids uuid[], attempts integer[], settled uuid[], numbers integer[], states text[]
) returns table (job_id uuid, attempt integer, state text)
language sql
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = on
set enable_nestloop = off
set enable_mergejoin = off
as $$
  select a.id, a.number, case
    when s.id is not null then s.state
    when (
      select t.worker = settlement_answer.worker and t.outcome <> 'lost' and t.taken_back is not true
      from job_attempts t
      where t.job_id = a.id and t.attempt = a.number)
    then (select j.state from jobs j where j.id = a.id)
    else 'lease-lost'
  end
  from unnest(job_ids, attempts) as a (id, number)
  left join unnest(settled, numbers, states) as s (id, number, state) on s.id = a.id and s.number = a.number
$$;

-- Hand back jobs whose claim the worker never heard of. A worker whose claim broke off cannot know what it was given.
-- It asks for a mark, and then names the jobs that it knows of: its other leases from before that mark are handed back.
-- This call may arrive late, when the worker has given up on it and claimed more jobs, which it cannot name; hence the
-- mark. A mark is a moment and a transaction number, and a lease has to be older by both: the clock may be set back
-- meanwhile, and numbers are used again after a failover to a standby that lagged behind. A lease that was renewed
-- counts as younger, and lapses. Moves: running → queued | paused | canceled. Roles: worker.
create or replace function hand_back_unheard(
  worker text, job_ids uuid[], claimed_until timestamptz, before_number bigint
) returns integer
language plpgsql security definer
set search_path from current
as $$
declare
  ids     uuid[];
  numbers integer[];
begin
  select array_agg(l.job_id), array_agg(l.attempt) into ids, numbers
  from leases l
  where l.worker = hand_back_unheard.worker
    and l.job_id <> all (job_ids)
    and l.claimed_at <= claimed_until
    and (before_number is null or age(l.xmin) > age((before_number % 4294967296)::text::xid));
  if ids is null then
    return 0;
  end if;
  perform from hand_back(hand_back_unheard.worker, ids, numbers, 'the answer to the claim was lost');
  return cardinality(ids);
end
$$;

-- A mark: every lease that is claimed after this call is younger. Roles: worker.
create or replace function claim_mark(out claimed_until timestamptz, out before_number bigint)
language sql stable security definer
set search_path from current
as $$
  select now(), pg_snapshot_xmax(pg_current_snapshot())::text::bigint
$$;

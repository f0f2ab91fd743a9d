-- What operators decide about one job: to fail or kill it, to end its lease, to change its priority. Each decision is
-- recorded as a request that maintenance carries out (see requests.sql). The attempt of a running job is told at once.
--
-- 1. A verdict is `retry` (fail, and retry), `fail` (fail for good) or `kill`. The lease of a running attempt keeps it,
--    and the worker is told to cancel, which every release knows. Success wins. However else the attempt ends, it has
--    failed, with the operator's words as its error, and `next_state` reads the verdict.
-- 2. A job that waits for its retry, or is held in error, dies at once. All other states forbid it: `hand_answer`.
-- 3. If several decisions meet one attempt, the firmer one holds, else the first (`firmness`), also if the job was not
--    running yet (see pending.sql). A decision that comes too late is answered with the one that holds, and who made it (`overruled`).
--    The same verdict again is the same request.
-- 4. Of several priorities, the one that was asked for last holds.

-- The verbs. Clients may not ask for them: `request` does not know them.
create or replace function hand_verbs() returns text[]
language sql immutable parallel safe
as $$
  select array['fail', 'kill', 'expire-lease', 'reprioritize']
$$;

-- The error that an attempt has failed with under a verdict.
create or replace function operator_error(verdict text) returns text
language sql immutable parallel safe
as $$
  select case verdict when 'kill' then 'KilledByOperator' else 'FailedByOperator' end
$$;

-- What the history of a job calls a verdict.
create or replace function verdict_event(verdict text) returns text
language sql immutable parallel safe
as $$
  select case when verdict = 'kill' then 'killed' when verdict is not null then 'failed' end
$$;

-- The message of that error.
create or replace function operator_words(verdict text, by text, words text) returns text
language sql immutable parallel safe
set search_path from current
as $$
  select coalesce(nullif(words, ''), format('%s by %s', verdict_event(verdict), coalesce(by, 'an operator')))
$$;

-- Decide something about a job in an operator's name, and write down who did. `words` are the message of a failure, or
-- a reason. Answers `accepted`, or why not: `not-found`, `already-final`, `not-possible`, or `overruled` by an earlier
-- decision about the same attempt. Roles: operator.
create or replace function act_by_hand(
  verb text, id uuid, by text, words text, will_retry boolean, priority integer, only_tenant text, by_key uuid
) returns table (outcome text, state text, decided text, decided_by text)
language plpgsql security definer
set search_path from current
as $$
#variable_conflict use_column
declare
  job     jobs;
  verdict text := case when verb = 'kill' then 'kill' when verb = 'fail' and will_retry then 'retry' when verb = 'fail' then 'fail' end;
  flagged integer;
  request uuid;
  event   bigint;
begin
  if verb is null or verb <> all (hand_verbs()) then
    raise exception 'unknown verb %; known are %', verb, array_to_string(hand_verbs(), ', ') using errcode = 'HF002';
  elsif verb = 'reprioritize' and (priority is null or not is_number(to_jsonb(priority), 0, 1000000000, true)) then
    raise exception 'priority must be 0 or more, at most 1000000000, a whole number' using errcode = 'HF002';
  end if;
  perform check_texts(by, words);
  -- If the attempt ends while its lease is looked for, the job is looked at again.
  for round in 1..5 loop
    if verdict is not null then
      perform keep_waiting(act_by_hand.id, only_tenant);
    end if;
    select j.* into job
    from jobs j
    where j.id = act_by_hand.id and (only_tenant is null or j.tenant = only_tenant) and not is_request(j.type);
    outcome := case when not found then 'not-found' else hand_answer(verb, verdict, job.state) end;
    exit when outcome <> 'accepted' or verdict is null;
    if job.state <> 'running' then
      select d.decision, d.by into decided, decided_by
      from pending_decision(job.id) d
      where firmness(d.decision) >= firmness(verdict);
      exit;
    end if;
    flagged := flag_attempt(job.id, verdict, by, words, null);
    select coalesce(l.verdict, l.interrupt), l.interrupted_by into decided, decided_by
    from leases l
    where l.job_id = job.id and l.attempt = flagged;
    exit when found;
    flagged := null;
  end loop;
  state := job.state;
  if decided <> verdict then
    outcome := 'overruled';
  elsif outcome = 'accepted' then
    decided := null;
    decided_by := null;
    if verb = 'reprioritize' then
      insert into job_events (job_id, event, by, note)
      values (job.id, 'reprioritized', act_by_hand.by, concat_ws(': ', format('priority %s', priority), nullif(words, '')))
      returning job_events.id into event;
    end if;
    select r.job_id into request
    from record_jobs(
      array['holdfast.' || verb],
      array[jsonb_strip_nulls(jsonb_build_object(
        'job_id', job.id, 'by', by, 'note', words, 'verdict', verdict, 'priority', priority, 'event', event,
        'attempt', case when verb = 'expire-lease' then job.attempt else flagged end))],
      array[jsonb_strip_nulls(jsonb_build_object(
        'queue', 'holdfast', 'priority', 100,
        'dedup_key', case
          when verb = 'expire-lease' then concat_ws(' ', job.id, job.attempt)
          when verdict is not null then concat_ws(' ', job.id, verdict, flagged)
        end))],
      job.tenant, by, null) r;
    if verdict is not null and flagged is null then
      perform note_decision(job.id, request, verdict, by, words, null);
    end if;
    perform wake('duty', array[0]);
    perform note_audit(by, by_key, job.tenant, 'job.' || verb, job.id::text, jsonb_strip_nulls(jsonb_build_object(
      'note', words, 'will_retry', case when verb = 'fail' then will_retry end, 'priority', priority,
      'priority_before', case when verb = 'reprioritize' then job.priority end)));
  end if;
  perform vouch();
  return next;
end
$$;

-- Whether a job in this state may be failed, killed and so on. The state machine says what can become of it.
create or replace function hand_answer(verb text, verdict text, state text) returns text
language sql immutable parallel safe
as $$
  select case
    when has_ended(state) then 'already-final'
    when state = 'running' or verb = 'reprioritize' then 'accepted'
    when verdict in ('fail', 'kill') and state in ('retry', 'error') then 'accepted'
    else 'not-possible'
  end
$$;

-- Carry out one decision on one job: as `carry_out`, with the same order of locks. Only a verdict that was recorded
-- while the job waited for its retry can meet it queued or scheduled: it then waits for the next attempt.
create or replace function carry_out_by_hand(verb text, ask jsonb) returns text
language plpgsql
set search_path from current
as $$
#variable_conflict use_column
declare
  wanted  uuid := ask ->> 'job_id';
  verdict text := ask ->> 'verdict';
  who     text := ask ->> 'by';
  words   text := ask ->> 'note';
  flagged integer := ask ->> 'attempt';
  job     jobs;
begin
  for round in 1..5 loop
    select j.* into job from jobs j where j.id = wanted;
    if not found then
      return 'not-found';
    elsif verb = 'expire-lease' and (job.state <> 'running' or job.attempt <> flagged) then
      return 'already-ended';
    elsif has_ended(job.state) then
      return 'already-final';
    elsif verb = 'expire-lease' then
      if lease_expired(job.id, who, words) then
        return 'expired';
      end if;
    elsif verb = 'reprioritize' then
      if exists (
        select from job_events e
        where e.job_id = job.id and e.id > (ask ->> 'event')::bigint and e.event = 'reprioritized') then
        return 'superseded';
      elsif reprioritized(job, (ask ->> 'priority')::integer) then
        return 'reprioritized';
      end if;
    elsif flagged is not null then
      return 'flagged';
    elsif job.state = 'running' then
      if flag_attempt(job.id, verdict, who, words, null) is not null then
        return 'flagged';
      end if;
    elsif hand_answer(verb, verdict, job.state) = 'accepted' then
      if move_waiting(job, 'dead', who, words, null, false) then
        perform bury(job, verdict, who, words);
        return 'dead';
      end if;
    else
      return case when job.state in ('queued', 'scheduled') then 'when-ended' else 'not-possible' end;
    end if;
  end loop;
  return 'later';
end
$$;

-- Write the dead letter of a job that an operator ended while it waited, and its history. It counts as a failure, but
-- not of any attempt.
create or replace function bury(job jobs, verdict text, by text, words text) returns void
language sql
set search_path from current
as $$
  update jobs j
  set reason = verdict_event(verdict), last_error = operator_words(verdict, by, words), last_error_at = now()
  where j.id = job.id;
  insert into dead_letters (job_id, tenant, type, error_type, error_message, fingerprint)
  select job.id, job.tenant, job.type, said.error, said.words, fingerprint_of(job.type, said.error, said.words)
  from (select operator_error(verdict) as error, operator_words(verdict, by, words) as words) said
  on conflict do nothing;
  insert into failures (job_id, attempt, fingerprint)
  select d.job_id, 0, d.fingerprint from dead_letters d where d.job_id = job.id and d.fingerprint is not null;
  insert into job_events (job_id, event, by, note) values (job.id, verdict_event(verdict), by, words);
$$;

-- Close the attempt of a running job as lost, although its lease has not lapsed. False if somebody has locked its rows.
-- Moves: as a sweep.
create or replace function lease_expired(id uuid, by text, words text) returns boolean
language plpgsql
set search_path from current
as $$
begin
  perform from take_back(array[id], 'LeaseLost', format(
    'its lease was ended by %s%s', coalesce(lease_expired.by, 'an operator'), ': ' || nullif(words, '')));
  if found then
    insert into job_events (job_id, event, by, note)
    values (lease_expired.id, 'lease-expired', lease_expired.by, words);
    -- Its worker may live, and is told at once that this attempt is not its own any more.
    perform pg_notify(current_schema() || '.interrupt', lease_expired.id::text);
    return true;
  end if;
  return false;
end
$$;

-- Give an open job another priority. Its entry in `ready` moves at once; a job that waits elsewhere, or runs, keeps its
-- place, and uses the priority when it is queued. False if the job moved meanwhile, or if a claim has locked its entry.
-- Moves: none.
create or replace function reprioritized(job jobs, priority integer) returns boolean
language plpgsql
set search_path from current
as $$
#variable_conflict use_column
begin
  if job.priority = reprioritized.priority then
    return true;
  end if;
  -- As in `move_waiting`: whoever seats a target reads the priority of its head.
  if job.state = 'queued' and job.target is not null then
    insert into heads (tenant, target) values (job.tenant, job.target) on conflict do nothing;
    perform from heads h where h.tenant = job.tenant and h.target = job.target for update;
    if not found then
      return false;
    end if;
  end if;
  if job.state = 'queued' and not exists (
    select from waiting w
    where w.tenant = job.tenant and w.target = job.target and w.turn = 1 and w.place = job.seq
  ) and not entry_moved(job, reprioritized.priority) then
    return false;
  end if;
  update jobs j
  set priority = reprioritized.priority
  where j.id = job.id and j.state = job.state and j.attempt = job.attempt and j.seq = job.seq and j.run_at = job.run_at
    and j.priority = job.priority;
  if not found then
    raise exception 'job % changed while its entry was locked', job.id using errcode = '40001';
  end if;
  if job.state = 'queued' then
    if job.target is not null then
      perform seat(array[job.tenant], array[job.target]);
    end if;
    perform wake_again(array[job.stream]);
  end if;
  return true;
end
$$;

-- Move the entry of a queued job to the rank of another priority. It keeps its place among jobs of the same rank. An
-- entry that has aged goes first anyway: it stays there, unless its job becomes less urgent; then it starts to wait
-- anew, because it would age again at once. A parked entry comes back, and a claim parks it again if need be.
create or replace function entry_moved(job jobs, priority integer) returns boolean
language plpgsql
set search_path from current
set enable_seqscan = off
set enable_nestloop = on
set enable_hashjoin = off
set enable_mergejoin = off
as $$
#variable_conflict use_column
declare
  moved boolean;
begin
  with taken as (
    delete from ready r
    where r.ctid in (
      select e.ctid
      from ready_entry(job.stream, job.priority, ready_seq(job)) spot
      join ready e on e.stream = spot.stream and e.rank = spot.rank and e.seq = spot.seq
      where e.job_id = job.id
      for update of e skip locked)
    returning r.stream, r.rank, r.seq, r.job_id, r.ready_at
  ), shown as (
    -- If somebody has locked this row, it is left: one without an entry is dropped when its turn comes.
    delete from parked p
    where p.ctid in (
      select k.ctid
      from taken t
      join parked k on k.stream = stream_of(t.stream) and k.rank = t.rank and k.seq = t.seq
      where is_parked(t.stream)
      for update of k skip locked)
  ), placed as (
    insert into ready (stream, rank, seq, job_id, ready_at)
    select stream_of(t.stream),
      case
        when t.rank = 0 and entry_moved.priority < job.priority then 0
        else ready_rank(entry_moved.priority, t.rank = ready_rank(job.priority, true))
      end,
      t.seq, t.job_id,
      case when t.rank = 0 and entry_moved.priority > job.priority then now() else t.ready_at end
    from taken t
    on conflict do nothing
  )
  select count(*) > 0 into moved from taken;
  return moved;
end
$$;

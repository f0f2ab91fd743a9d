-- Carry out what was asked of jobs (see requests.sql), for the duty `requests`. Roles: worker.

-- Execute recorded requests. A request that cannot be executed yet is snoozed, one that raises becomes dead; none of
-- them holds up the others. Roles: worker.
create or replace function execute_requests(max_requests integer default 10) returns integer
language plpgsql security definer
set search_path from current
set lock_timeout = '200ms'
as $$
#variable_conflict use_column
declare
  ask     record;
  verb    text;
  verdict text;
  done    integer := 0;
  fault   text;
begin
  for ask in
    select c.job_id, c.attempt, s.type, c.payload
    from claim_streams('maintenance', request_streams(), max_requests, null) c
    join streams s on s.id = c.stream
  loop
    verb := substr(ask.type, 10);
    begin
      verdict := foregone_answer(verb, (ask.payload ->> 'job_id')::uuid, ask.job_id);
      if verdict is null then
        verdict := case
          when verb = any (hand_verbs()) then carry_out_by_hand(verb, ask.payload)
          else carry_out(
            case when (ask.payload ->> 'resolves')::boolean then 'resolve' else verb end,
            (ask.payload ->> 'job_id')::uuid, (ask.payload ->> 'attempt')::integer, ask.payload ->> 'by',
            ask.payload ->> 'note', ask.payload ->> 'message')
        end;
      end if;
      if verdict not in ('later', 'when-ended') then
        perform forget_decision((ask.payload ->> 'job_id')::uuid, ask.job_id, verdict);
      end if;
    exception
      when serialization_failure or deadlock_detected or lock_not_available then
        verdict := 'later';
      when others then
        get stacked diagnostics fault = message_text;
        verdict := null;
    end;
    if verdict is null then
      delete from pending_decisions d where d.request_id = ask.job_id;
      perform fail('maintenance', array[ask.job_id], array[ask.attempt], array['fatal'], array['RequestFailed'], array[fault]);
    elsif verdict in ('later', 'when-ended') then
      -- A handler may run on for days before its job can be erased, and each look leaves a row. So the next look comes
      -- after as long as this request has waited by now.
      perform snooze('maintenance', array[ask.job_id], array[ask.attempt], array[case verdict
        when 'later' then 0.5 else least(60, 0.25 * 2 ^ least(ask.attempt, 10)) end]);
    else
      perform complete('maintenance', array[ask.job_id], array[ask.attempt], array[jsonb_build_object('outcome', verdict)]);
    end if;
    done := done + 1;
  end loop;
  return done;
end
$$;

-- Execute one request on one job. The target's head is locked first, then side rows, which are skipped if somebody else
-- has locked them, then the job's row: nobody who has locked a job's row waits for a lock that is taken here. Every
-- update names the state that was seen, so that a job which moved meanwhile is looked at again. If a cancel or pause
-- flagged an attempt when it was recorded, the end of that attempt decided it: a handler that held its job keeps it
-- held, and a job that was resumed since is not stopped again.
create or replace function carry_out(
  verb text, id uuid, flagged integer, by text, note text, message text
) returns text
language plpgsql
set search_path from current
as $$
#variable_conflict use_column
declare
  job  jobs;
  goal text;
begin
  for round in 1..5 loop
    select j.* into job from jobs j where j.id = carry_out.id;
    if not found then
      return 'not-found';
    elsif has_ended(job.state) then
      if verb = 'delete' then
        return case when forgotten(job.id, by) then 'erased' else 'later' end;
      end if;
      return 'already-final';
    elsif verb in ('cancel', 'resolve', 'pause') and flagged is not null then
      return 'flagged';
    elsif job.state = 'running' then
      if verb in ('resume', 'retry') then
        return 'not-possible';
      elsif flag_attempt(
        job.id, case verb when 'delete' then 'cancel' else verb end, by, note, message) is not null then
        return case when verb = 'delete' then 'when-ended' else 'flagged' end;
      elsif exists (select from leases l where l.job_id = job.id and l.verdict = 'retry') then
        return 'when-ended';
      end if;
      continue;
    end if;

    goal := case
      when verb in ('cancel', 'resolve', 'delete') then 'canceled'
      when verb = 'pause' and job.state in ('scheduled', 'queued', 'retry') then 'paused'
      when verb in ('resume', 'retry') and job.state = 'error' then 'queued'
      when verb in ('resume', 'retry') and job.state = 'paused' then
        case when verb = 'resume' and job.run_at > now() then 'scheduled' else 'queued' end
      when verb = 'retry' and job.state in ('scheduled', 'retry') then 'queued'
    end;
    if goal is null then
      return 'not-possible';
    elsif move_waiting(job, goal, by, note, message, verb = 'resolve') then
      if verb = 'delete' and not forgotten(job.id, by) then
        return 'later';
      end if;
      return goal;
    end if;
  end loop;
  return 'later';
end
$$;

-- Move a job that is not running. False if it moved meanwhile, or if a claim has locked its entry. The caller writes the
-- letter and the history of a job that dies (see `bury`).
create or replace function move_waiting(
  job jobs, goal text, by text, note text, message text, resolves boolean
) returns boolean
language plpgsql
set search_path from current
as $$
#variable_conflict use_column
declare
  moved    jobs;
  heads_it boolean := false;
begin
  -- The line of a target may change only while its row in `heads` is locked.
  if job.target is not null then
    insert into heads (tenant, target) values (job.tenant, job.target) on conflict do nothing;
    perform from heads h where h.tenant = job.tenant and h.target = job.target for update;
    if not found then
      return false;
    end if;
    heads_it := exists (
      select from heads h where h.tenant = job.tenant and h.target = job.target and h.job_id = job.id);
  end if;

  if job.state = 'queued' then
    perform from waiting w
    where w.tenant = job.tenant and w.target = job.target and w.turn in (0, 1) and w.place = job.seq
    for update skip locked;
    if (not found or job.target is null) and not take_entry(job.stream, job.priority, ready_seq(job)) then
      return false;
    end if;
  elsif job.state in ('scheduled', 'retry') then
    delete from due d
    where d.ctid in (
      select e.ctid from due e where e.run_at = job.run_at and e.job_id = job.id for update skip locked);
    if not found then
      return false;
    end if;
  end if;

  update jobs j
  set state = goal,
    seq = case
      when goal = 'queued' and (job.target is null or (job.state = 'scheduled' and not heads_it)) then nextval('places')
      else j.seq
    end,
    run_at = case when goal = 'queued' then least(j.run_at, now()) else j.run_at end,
    failures = case when job.state in ('paused', 'error') and goal not in ('canceled', 'dead') then 0 else j.failures end,
    reason = case
      when resolves then 'resolved'
      when goal in ('canceled', 'dead', 'paused') then goal
      else 'resumed' end,
    updated_at = now(),
    finished_at = case when goal in ('canceled', 'dead') then now() end,
    dedup_key = case when goal in ('canceled', 'dead') then null else j.dedup_key end
  where j.id = job.id and j.state = job.state and j.seq = job.seq and j.run_at = job.run_at
  returning j.* into moved;
  if not found then
    raise exception 'job % changed while its entry was locked', job.id using errcode = '40001';
  end if;

  if goal <> 'dead' then
    insert into job_events (job_id, event, by, note, message)
    values (
      job.id, case when resolves then 'resolved' when goal in ('queued', 'scheduled') then 'resumed' else goal end,
      move_waiting.by, move_waiting.note, move_waiting.message);
  end if;

  if goal = 'scheduled' then
    insert into due (run_at, job_id) values (moved.run_at, moved.id);
  elsif goal = 'queued' and moved.target is null then
    insert into ready (stream, rank, seq, job_id)
    values (moved.stream, ready_rank(moved.priority, false), moved.seq, moved.id);
    perform wake_again(array[moved.stream]);
  end if;

  if job.target is not null then
    if not heads_it then
      delete from waiting w
      where w.tenant = job.tenant and w.target = job.target and w.turn in (0, 1) and w.place = job.seq;
      if goal in ('queued', 'paused') then
        insert into waiting (tenant, target, turn, place, job_id)
        values (job.tenant, job.target, case goal when 'paused' then 0 else 1 end, moved.seq, moved.id);
      end if;
    end if;
    perform seat(array[job.tenant], array[job.target]);
  end if;
  return true;
end
$$;

-- Erase the content of an ended job, or as much of it as one call may, and keep its tombstone. Answers whether it is
-- done. A repeated call adds nothing to the history. A request that polls by snoozing has an attempt for each look, so
-- how far it came is stored in `erasures`. Moves: none.
create or replace function forgotten(id uuid, by text, max_rows integer default 5000) returns boolean
language plpgsql
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
  start      erasures;
  attempts   integer;
  events     integer;
  to_attempt integer;
  to_event   bigint;
begin
  -- Locked, so that nobody deletes it meanwhile.
  perform from jobs j where j.id = forgotten.id and has_ended(j.state) for update;
  if not found or not drop_items(array[id]) then
    return false;
  end if;
  select e.* into start from erasures e where e.job_id = forgotten.id;
  start.attempt := coalesce(start.attempt, -2147483648);
  start.event := coalesce(start.event, -9223372036854775808);

  select count(*), max(portion.attempt) into attempts, to_attempt
  from (
    select t.attempt
    from job_attempts t
    where t.job_id = forgotten.id and t.attempt > start.attempt
    order by t.attempt
    limit max_rows) portion;
  update job_attempts t
  set error_message = null, traceback = null, log_excerpt = null
  where t.job_id = forgotten.id and t.attempt > start.attempt and t.attempt <= to_attempt
    and (t.error_message is not null or t.traceback is not null or t.log_excerpt is not null);
  select count(*), max(portion.id) into events, to_event
  from (
    select e.id
    from job_events e
    where e.job_id = forgotten.id and e.id > start.event
    order by e.id
    limit max_rows) portion;
  update job_events e
  set note = null, message = null
  where e.job_id = forgotten.id and e.id > start.event and e.id <= to_event
    and (e.note is not null or e.message is not null);

  if attempts = max_rows or events = max_rows then
    insert into erasures (job_id, attempt, event)
    values (forgotten.id, coalesce(to_attempt, start.attempt), coalesce(to_event, start.event))
    on conflict (job_id) do update set attempt = excluded.attempt, event = excluded.event;
    return false;
  end if;
  delete from erasures e where e.job_id = forgotten.id;
  update jobs j
  set payload = '{}', result = null, last_error = null, updated_at = now()
  where j.id = forgotten.id;
  update dead_letters d set error_message = null, note = null where d.job_id = forgotten.id;
  -- Whoever adds up failures and whoever erases their messages take turns: only if there was a failure.
  perform forget_message(forgotten.id) from jobs j where j.id = forgotten.id and j.last_error_at is not null;
  delete from job_progress p where p.job_id = forgotten.id;
  insert into job_events (job_id, event, by)
  select forgotten.id, 'erased', forgotten.by
  where not is_erased(forgotten.id);
  return true;
end
$$;

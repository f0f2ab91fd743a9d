-- Decisions that were accepted while no attempt ran that could have been told: to cancel, resolve, pause, delete, fail
-- or kill a job. Maintenance carries them out within moments, but meanwhile the job may be claimed.
--
-- 1. A decision is written down in the transaction of its request, so it binds from the moment of its acknowledgement.
--    Until that transaction ends, the job is not claimed (`keep_waiting`).
-- 2. However an attempt ends, except with success, its settlement reads what is pending and decides by it, as if the
--    lease had the flag (`settle`). Claims and successes do not look.
-- 3. A decision about a running attempt also passes on to its lease what was decided before (`flag_attempt`), so that
--    the firmer decision holds, else the first.
-- 4. The row is deleted when its request has been executed.

-- Lock a job that does not run, so that claims pass over it until this transaction ends: an attempt that began and
-- ended meanwhile would not see what is decided now. A claim that is under way is waited for, others not for long.
create or replace function keep_waiting(id uuid, only_tenant text) returns void
language plpgsql
set search_path from current
set lock_timeout = '100ms'
as $$
#variable_conflict use_column
begin
  perform
  from jobs j
  where j.id = keep_waiting.id and (only_tenant is null or j.tenant = only_tenant)
    and j.state <> 'running'
    and not has_ended(j.state)
  for no key update;
exception
  when lock_not_available then
    null;
end
$$;

-- Write down a decision, unless its request is known: a repeat is the same request.
create or replace function note_decision(
  id uuid, request_id uuid, decision text, by text, note text, message text
) returns void
language sql
set search_path from current
as $$
  insert into pending_decisions (job_id, request_id, decision, by, note, message)
  values (note_decision.id, note_decision.request_id, decision, by, note, message)
  on conflict do nothing
$$;

-- Which of the pending decisions about a job holds: the firmest one, else the first. No row if none is pending.
create or replace function pending_decision(id uuid) returns setof pending_decisions
language sql stable
set search_path from current
set enable_seqscan = off
as $$
  select d.*
  from pending_decisions d
  where d.job_id = pending_decision.id and d.settled_by is null
  order by firmness(d.decision) desc, d.place
  limit 1
$$;

-- In which state a decision leaves a job.
create or replace function decided_state(decision text) returns text
language sql immutable parallel safe
as $$
  select case
    when decision = 'pause' then 'paused'
    when decision in ('cancel', 'resolve') then 'canceled'
    when decision in ('fail', 'kill') then 'dead'
  end
$$;

-- What maintenance has to answer to a request without carrying it out; null if it has to. `at-settlement`: the end of an
-- attempt has done it, and a job that was resumed since is not stopped again. `later`: another decision came first, and
-- can be carried out; a queued job cannot die.
create or replace function foregone_answer(verb text, id uuid, request_id uuid) returns text
language sql
set search_path from current
set enable_seqscan = off
as $$
  select case
    when d.settled_by is not null and verb <> 'delete' and (
      j.state = decided_state(d.decision) or not has_ended(j.state)) then 'at-settlement'
    when j.state <> 'running' and not has_ended(j.state) and exists (
      select
      from pending_decisions e
      join jobs r on r.id = e.request_id and not has_ended(r.state)
      where e.job_id = d.job_id and e.settled_by is null and e.place < d.place and e.decision <> d.decision
        and firmness(e.decision) = firmness(d.decision)
        and (decided_state(e.decision) <> 'dead' or j.state in ('retry', 'error'))) then 'later'
  end
  from pending_decisions d
  join jobs j on j.id = d.job_id
  where d.job_id = foregone_answer.id and d.request_id = foregone_answer.request_id
$$;

-- What the history says of a decision that came too late.
create or replace function too_late_note(decision text, note text) returns text
language sql immutable parallel safe
as $$
  select concat_ws(': ', case decision when 'retry' then 'fail' else decision end, nullif(note, ''))
$$;

-- Forget a decision whose request has been executed. If the job ended otherwise before, its history says that the
-- decision came too late, unless the attempt's success has said so, because its lease had the decision (`complete`).
create or replace function forget_decision(id uuid, request_id uuid, answer text) returns void
language sql
set search_path from current
set enable_seqscan = off
as $$
  with over as (
    delete from pending_decisions d
    where d.job_id = forget_decision.id and d.request_id = forget_decision.request_id
    returning d.job_id, d.decision, d.by, d.note
  )
  insert into job_events (job_id, event, by, note)
  select over.job_id, 'too-late', over.by,
    too_late_note(over.decision, case when not is_erased(over.job_id) then over.note end)
  from over
  join jobs j on j.id = over.job_id
  where answer = 'already-final' and j.state <> decided_state(over.decision)
    and not exists (
      select from job_events e
      where e.job_id = over.job_id and e.event = 'too-late' and e.by is not distinct from over.by
        and e.note = too_late_note(over.decision, over.note))
$$;

-- Drop decisions whose request has ended: hand-written SQL ended it, or a repeat met it in its last moment. Answers how
-- many there were.
create or replace function drop_stray_decisions(max_rows integer) returns integer
language plpgsql
set search_path from current
as $$
#variable_conflict use_column
declare
  dropped integer;
begin
  delete from pending_decisions d
  where d.ctid = any (array(
    select e.ctid
    from (select s.ctid, s.request_id from pending_decisions s limit max_rows) e
    where not exists (
      select from jobs r where r.id = e.request_id and not has_ended(r.state))));
  get diagnostics dropped = row_count;
  perform note_repair('decision-dropped', dropped);
  return dropped;
end
$$;

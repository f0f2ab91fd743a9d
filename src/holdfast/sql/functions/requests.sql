-- What clients may ask of a job: cancel, pause, resume, delete, retry. A request is a job of its own (type
-- `holdfast.<verb>`) that maintenance executes. Recording it flags the lease of a running job at once; if no attempt
-- was flagged, the decision is pending (see pending.sql). The roles api, worker and operator may ask; only maintenance
-- moves jobs. Inside a longer transaction pass at_once => false: then the lease is not touched until maintenance
-- executes the request after the commit, and its worker does not have to wait for that transaction to settle. What only
-- operators may ask for is in by_hand.sql.

-- The verbs that may be asked for.
create or replace function request_verbs() returns text[]
language sql immutable parallel safe
as $$
  select array['cancel', 'pause', 'resume', 'delete', 'retry']
$$;

-- The streams that contain requests, found by their types: most streams of a large system have none.
create or replace function request_streams() returns integer[]
language sql stable
set search_path from current
set enable_seqscan = off
as $$
  select array(
    select s.id
    from streams s
    where s.type = any (array(select 'holdfast.' || v.verb from unnest(request_verbs() || hand_verbs()) as v (verb)))
      and s.queue = 'holdfast'
      and s.closed_in is null)
$$;

-- Ask that jobs be canceled, paused, resumed, retried or deleted. Requests for more than a hundred jobs at once come
-- after all others of their tenant.
create or replace function request(
  verb text, job_ids uuid[], by text default null, note text default null, only_tenant text default null,
  at_once boolean default true
) returns table (job_id uuid, outcome text, request_id uuid)
language sql security definer
set search_path from current
as $$
  select r.job_id, r.outcome, r.request_id
  from record_requests(verb, job_ids, by, note, null, only_tenant, at_once, false) r
$$;

-- Record requests. `message` is what clients are told while the job is paused or canceled (`GET /jobs/{jobId}`): a note
-- that somebody wrote for them, else null. A cancel that `resolves` is asked for because a person has dealt with what
-- the job was about. Cancel and delete cannot be undone: while one of them is pending, repeating it answers the pending
-- request. How a running attempt ends decides its cancel, so a cancel of the next attempt is not a repeat.
create or replace function record_requests(
  verb text, job_ids uuid[], by text, note text, message text, only_tenant text, at_once boolean, resolves boolean
) returns table (job_id uuid, outcome text, request_id uuid)
language plpgsql
set search_path from current
as $$
#variable_conflict use_column
declare
  job      jobs;
  decision text;
  wanted   uuid;
  answer   text;
  created  uuid;
  flagged  integer;
begin
  if verb <> all (request_verbs()) then
    raise exception 'unknown request %; known are %', verb, array_to_string(request_verbs(), ', ') using errcode = 'HF002';
  end if;
  perform check_texts(by, note);
  decision := case when verb = 'pause' then 'pause' when resolves then 'resolve' when verb in ('cancel', 'delete') then 'cancel' end;
  -- In order, so that no two callers wait for each other.
  foreach wanted in array array(select i.id from unnest(job_ids) as i (id) order by i.id) loop
    flagged := null;
    -- If the attempt ends while its lease is looked for, the job is looked at again.
    for round in 1..5 loop
      if decision is not null and at_once then
        perform keep_waiting(wanted, only_tenant);
      end if;
      select j.* into job
      from jobs j
      where j.id = wanted and (only_tenant is null or j.tenant = only_tenant) and not is_request(j.type);
      answer := case
        when not found then 'not-found'
        when verb = 'retry' and job.state <> 'dead' and is_erased(job.id) then 'not-possible'
        when verb in ('delete', 'retry') and has_ended(job.state) then 'accepted'
        when has_ended(job.state) then 'already-final'
        when verb in ('cancel', 'delete') then 'accepted'
        when verb = 'pause' and job.state in ('scheduled', 'queued', 'running', 'retry', 'paused') then 'accepted'
        when verb = 'resume' and job.state in ('paused', 'error') then 'accepted'
        when verb = 'retry' and job.state in ('scheduled', 'queued', 'retry', 'paused', 'error') then 'accepted'
        else 'not-possible'
      end;
      exit when answer <> 'accepted' or decision is null or not at_once;
      flagged := flag_attempt(wanted, decision, by, note, message);
      exit when flagged is not null or job.state <> 'running';
    end loop;
    created := null;
    if answer = 'accepted' and verb = 'retry' and job.state = 'dead' then
      select case
          when r.runs_as is not null then 'new-job' when r.outcome = 'not-found' then r.outcome else 'not-possible'
        end, r.runs_as
      into answer, created
      from requeue_letter(wanted, null, null, by, note) r;
    elsif answer = 'accepted' and verb = 'retry' and job.state in ('success', 'canceled') then
      created := run_again(job, by);
      answer := 'new-job';
    elsif answer = 'accepted' then
      select r.job_id into created
      from record_jobs(
        array['holdfast.' || verb],
        array[jsonb_strip_nulls(jsonb_build_object(
          'job_id', wanted, 'by', by, 'note', note, 'message', message, 'attempt', flagged,
          'resolves', nullif(resolves, false)))],
        array[jsonb_strip_nulls(jsonb_build_object(
          'queue', 'holdfast', 'priority', case when cardinality(job_ids) > 100 then 200 else 100 end,
          'dedup_key', case verb
            when 'delete' then wanted::text
            when 'cancel' then concat_ws(' ', wanted, case when resolves then 'resolve' end, flagged)
          end))],
        job.tenant, by, null) r;
      if decision is not null and flagged is null and not has_ended(job.state) then
        perform note_decision(wanted, created, decision, by, note, message);
      end if;
      perform wake('duty', array[0]);
    end if;
    return query select wanted, answer, created;
  end loop;
  perform vouch();
end
$$;

-- Record a new job with the intent of one that has ended.
create or replace function run_again(job jobs, by text) returns uuid
language sql
set search_path from current
as $$
  select run_again_with(job, by, null, null)
$$;

-- Record a new job with the intent of one that has ended, with another payload or other options if they are given. An
-- option that is given as null is left to the job type and the settings.
create or replace function run_again_with(job jobs, by text, payload jsonb, options jsonb) returns uuid
language sql
set search_path from current
as $$
  select r.job_id
  from record_jobs(
    array[job.type], array[coalesce(run_again_with.payload, job.payload)],
    array[jsonb_strip_nulls(jsonb_build_object(
      'priority', job.priority, 'queue', job.queue, 'target', job.target, 'max_attempts', job.max_attempts,
      'target_count', job.target_count, 'traceparent', job.traceparent)
      || coalesce(run_again_with.options, '{}')
      || jsonb_build_object(
        'correlation_id', coalesce(job.correlation_id, job.id::text), 'parent_id', job.parent_id, 'retry_of', job.id))],
    job.tenant, coalesce(by, job.created_by), null) r
$$;

-- Whether the content of a job was erased on request.
create or replace function is_erased(id uuid) returns boolean
language sql stable
set search_path from current
as $$
  select exists (select from job_events e where e.job_id = is_erased.id and e.event = 'erased')
$$;

-- Ask the worker that runs a job to stop. A wish overrides a weaker one (`firmness`); the flag ends with its attempt.
-- What was decided before, and is pending, takes precedence. Answers the attempt that has the flag, null if none runs.
-- A pause beside a verdict `retry` also answers null: it is carried out when that attempt has ended.
create or replace function flag_attempt(id uuid, wish text, by text, note text, message text) returns integer
language plpgsql
set search_path from current
as $$
#variable_conflict use_column
declare
  number integer;
  held   record;
begin
  select choice.decision, choice.who, choice.note, choice.message into held
  from (
    select d.decision, d.by, d.note, d.message, d.place from pending_decision(flag_attempt.id) d
    union all
    select wish, flag_attempt.by, flag_attempt.note, flag_attempt.message, null) choice (decision, who, note, message, place)
  order by firmness(choice.decision) desc, choice.place nulls last
  limit 1;
  update leases l
  set interrupt = case when is_verdict(held.decision) then 'cancel' else held.decision end,
    verdict = case when is_verdict(held.decision) then held.decision end,
    interrupted_by = held.who, interrupt_note = held.note, interrupt_message = held.message
  where l.job_id = flag_attempt.id and firmness(coalesce(l.verdict, l.interrupt)) < firmness(held.decision)
  returning l.attempt into number;
  if found then
    perform pg_notify(current_schema() || '.interrupt', flag_attempt.id::text);
  else
    select l.attempt into number
    from leases l
    where l.job_id = flag_attempt.id and not (wish = 'pause' and l.verdict is not distinct from 'retry');
  end if;
  return number;
end
$$;

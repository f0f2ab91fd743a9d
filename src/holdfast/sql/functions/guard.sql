-- The state machine, enforced for every writer. This is the one place in SQL that holds the transition table;
-- holdfast.model.states is the one in Python, and a test proves them equal.
--
-- The WHEN clause of an update lets the two moves of every plain job through; the function checks all others. The
-- clause is short because the server parses it again for every statement. The trigger runs after the update because one
-- before it would lock each row first, which is written to the WAL.

-- Refuse a change of a job that the state machine forbids; note which jobs are dormant (see dormant.sql).
create or replace function refuse_move() returns trigger
language plpgsql
set search_path from current
as $$
declare
  leased boolean;
begin
  if tg_op = 'INSERT' and new.fingerprint is not null then
    -- Written by a call that began before the migration that moved the keys to a table of their own.
    raise exception 'the engine was upgraded while this was recorded; try again' using errcode = '40001';
  elsif tg_op = 'INSERT' then
    raise exception 'a job cannot be inserted as %, only as created, scheduled or queued', new.state
      using errcode = 'HF001', hint = 'Use the function enqueue.';
  elsif tg_op = 'DELETE' then
    raise exception 'job % is % and cannot be deleted before it has ended', old.id, old.state
      using errcode = 'HF001', hint = 'Cancel it first.';
  elsif tg_op = 'TRUNCATE' then
    raise exception 'jobs cannot be truncated' using errcode = 'HF001';
  elsif old.id is distinct from new.id then
    raise exception 'the id of job % cannot be changed', old.id using errcode = 'HF001';
  elsif old.state = 'running' and new.state = 'running' and new.attempt = old.attempt + 1 then
    -- The only move that needs a look at another table; none of the engine's own functions makes it. The lease is
    -- locked, not only read: the snapshot of a long transaction may be older than the last renewal, and PostgreSQL then
    -- refuses the lock.
    select l.expires_at >= now() into leased from leases l where l.job_id = old.id for share;
    if leased is not true then
      return new;
    end if;
    raise exception 'job % runs under a lease that has not lapsed', old.id using errcode = 'HF001';
  elsif old.state = new.state then
    raise exception 'job %: attempt cannot go from % to % while it is %', old.id, old.attempt, new.attempt, old.state
      using errcode = 'HF001';
  elsif new.attempt = old.attempt + (new.state = 'running')::integer and new.state = any ((case old.state
      when 'created' then array['scheduled', 'queued', 'canceled']
      when 'scheduled' then array['queued', 'paused', 'canceled']
      when 'queued' then array['running', 'paused', 'canceled']
      when 'running' then
        array['success', 'retry', 'dead', 'error', 'paused', 'canceled', 'queued', 'scheduled']
      when 'retry' then array['running', 'queued', 'dead', 'paused', 'canceled']
      when 'paused' then array['queued', 'scheduled', 'canceled']
      when 'error' then array['queued', 'dead', 'canceled']
    end)::text[]) then
    -- Written here because this function sees these moves anyway, whoever makes them.
    if is_dormant(new.state) or is_dormant(old.state) then
      perform note_dormancy(new, old.state);
    end if;
    return new;
  end if;
  raise exception 'job % cannot go from % to %', old.id, old.state, new.state
    using errcode = 'HF001', hint = 'Use the functions of this schema to move jobs.';
end
$$;

create or replace trigger guard_insert before insert on jobs
  for each row
  when (new.state not in ('queued', 'scheduled', 'created') or new.attempt <> 0 or new.fingerprint is not null)
  execute function refuse_move();

create or replace trigger guard_update after update on jobs
  for each row
  when (old.id <> new.id or not (
    old.state = new.state and new.attempt = old.attempt
    or old.state = 'queued' and new.state = 'running' and new.attempt = old.attempt + 1
    or old.state = 'running' and new.state = 'success' and new.attempt = old.attempt))
  execute function refuse_move();

-- Side tables know the tenant, type and queue of a job by its stream. None of the engine's own functions changes these
-- columns, so this trigger costs them nothing. Before an update of jobs, it would cost each of them a lock.
create or replace function refuse_renaming() returns trigger
language plpgsql
set search_path from current
as $$
begin
  if tg_op = 'DELETE' then
    if not exists (select from ready r where r.stream = any (entry_streams(old.id)))
      and not exists (select from leases l where l.stream = old.id) then
      return old;
    end if;
    raise exception 'stream % has open jobs', old.id
      using errcode = 'HF001', hint = 'Idle streams are forgotten by themselves (STREAM_IDLE_SECONDS).';
  end if;
  raise exception 'tenant, queue and type of % % cannot be changed',
    case tg_table_name when 'jobs' then 'job' else 'stream' end, old.id
    using errcode = 'HF001', hint = 'Cancel the job and enqueue another one.';
end
$$;

create or replace trigger guard_names after update of tenant, queue, type, stream on jobs
  for each row
  when ((old.tenant, old.queue, old.type, old.stream) is distinct from (new.tenant, new.queue, new.type, new.stream))
  execute function refuse_renaming();

create or replace trigger guard_names before update of tenant, queue, type on streams
  for each row
  when ((old.tenant, old.queue, old.type) is distinct from (new.tenant, new.queue, new.type))
  execute function refuse_renaming();

-- A job that waits elsewhere brings its stream back when it returns (see streams.sql, which also checks closed
-- streams).
create or replace trigger guard_delete before delete on streams
  for each row
  when (old.closed_in is null)
  execute function refuse_renaming();

create or replace trigger guard_delete before delete on jobs
  for each row
  when (old.state not in ('success', 'dead', 'canceled'))
  execute function refuse_move();

create or replace trigger guard_truncate before truncate on jobs
  for each statement
  execute function refuse_move();

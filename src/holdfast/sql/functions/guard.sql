-- The state machine, for whoever writes. This is the one place in SQL that holds the transition table;
-- holdfast.model.states is the one in Python, and a test proves them equal.
-- The WHEN clauses keep a legal move almost free: the function is called only to refuse, and for a new
-- attempt over a lapsed lease.

create or replace function refuse_move() returns trigger
language plpgsql
set search_path from current
as $$
begin
  if tg_op = 'INSERT' then
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
    -- The one move that needs a look elsewhere; none of the engine's own functions makes it.
    if not exists (select from leases l where l.job_id = old.id and l.expires_at >= now()) then
      return new;
    end if;
    raise exception 'job % runs under a lease that has not lapsed', old.id using errcode = 'HF001';
  elsif old.state = new.state then
    raise exception 'job %: attempt cannot go from % to % while it is %', old.id, old.attempt, new.attempt, old.state
      using errcode = 'HF001';
  end if;
  raise exception 'job % cannot go from % to %', old.id, old.state, new.state
    using errcode = 'HF001', hint = 'Use the functions of this schema to move jobs.';
end
$$;

create or replace trigger guard_insert before insert on jobs
  for each row
  when (new.state not in ('queued', 'scheduled', 'created') or new.attempt <> 0)
  execute function refuse_move();

create or replace trigger guard_update before update on jobs
  for each row
  when (not coalesce(
    old.id = new.id and case
      when old.state = new.state then new.attempt = old.attempt
      when new.state = 'running' then
        new.attempt = old.attempt + 1 and old.state in ('queued', 'retry')
      when new.attempt <> old.attempt then
        false
      else case old.state
        when 'running' then
          new.state in ('success', 'retry', 'dead', 'error', 'paused', 'canceled', 'queued', 'scheduled')
        when 'queued' then new.state in ('paused', 'canceled')
        when 'scheduled' then new.state in ('queued', 'paused', 'canceled')
        when 'retry' then new.state in ('queued', 'dead', 'paused', 'canceled')
        when 'created' then new.state in ('scheduled', 'queued', 'canceled')
        when 'paused' then new.state in ('queued', 'scheduled', 'canceled')
        when 'error' then new.state in ('queued', 'dead', 'canceled')
        else false
      end
    end, false))
  execute function refuse_move();

create or replace trigger guard_delete before delete on jobs
  for each row
  when (old.state not in ('success', 'dead', 'canceled'))
  execute function refuse_move();

create or replace trigger guard_truncate before truncate on jobs
  for each statement
  execute function refuse_move();

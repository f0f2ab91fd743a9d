-- Small pieces that the verbs share. None of them moves a job.

-- A UUID of version 7: milliseconds since the epoch, then a fraction of them, then random bits.
create or replace function uuid_v7() returns uuid
language plpgsql volatile parallel safe
as $$
declare
  micros bigint := extract(epoch from clock_timestamp()) * 1000000;
begin
  return encode(
    overlay(
      overlay(uuid_send(gen_random_uuid()) placing substring(int8send(micros / 1000) from 3) from 1 for 6)
      placing int2send((28672 + (micros % 1000) * 4)::int2) from 7 for 2),
    'hex')::uuid;
end
$$;

-- The value in force of a setting: the row, else the session's environment, else the default.
create or replace function setting(name text) returns text
language sql stable parallel safe
set search_path from current
as $$
  select coalesce(s.value, own_setting(s.name), s.default_value) from settings s where s.name = setting.name
$$;

-- What the session's environment says about a setting; null if that is nothing, or nothing that the engine can use.
-- An expression, which the planner puts into its callers: claims read settings.
create or replace function own_setting(name text) returns text
language sql stable parallel safe
as $$
  select case
    when setting_fault(name, nullif(current_setting('holdfast.' || lower(name), true), '')) is null then
      nullif(current_setting('holdfast.' || lower(name), true), '')
  end
$$;

-- A moment that every client can read, whatever hand-written SQL has stored.
create or replace function readable(moment timestamptz) returns timestamptz
language sql immutable parallel safe
as $$
  select case when moment is not null then least(greatest(moment, '0002-01-01 00:00+00'), '9999-12-30 00:00+00') end
$$;

-- The rank of a job within its stream; lower ranks go first. Aged jobs have rank 0, and a job that came back goes
-- before the new ones of its priority.
create or replace function ready_rank(priority integer, returned boolean) returns integer
language sql immutable parallel safe
as $$
  select 2 * priority + case when returned then 1 else 2 end
$$;

-- All ranks that a job of this priority can have.
create or replace function ready_ranks(priority integer) returns integer[]
language sql immutable parallel safe
as $$
  select array[0, ready_rank(priority, true), ready_rank(priority, false)]
$$;

-- The delay before the next attempt: min(max, base × factor^(failures - 1)), plus up to `jitter` of it.
create or replace function backoff_seconds(
  failures integer, base double precision, factor double precision, max double precision, jitter double precision
) returns double precision
language sql volatile parallel safe
as $$
  select least(max, base * power(factor, least(failures - 1, 100))) * (1 + random() * jitter)
$$;

-- How many failures end a job: its own number, else that of its type, else the default.
create or replace function attempts_allowed(of_job integer, of_type integer, by_default integer) returns integer
language sql immutable parallel safe
as $$
  select coalesce(of_job, of_type, by_default)
$$;

-- Whether an attempt with this outcome counts against `max_attempts`. Pure; holdfast.model.outcome says the same in
-- Python, and a test proves them equal.
create or replace function costs_attempt(outcome text) returns boolean
language sql immutable parallel safe
as $$
  select outcome in ('failed', 'timeout', 'lost')
$$;

-- How many failures a job has after an attempt with this outcome. The result is at most the largest integer: an
-- overflow would refuse a whole batch because of one odd row.
create or replace function failures_after(outcome text, failures integer) returns integer
language sql immutable parallel safe
as $$
  select case
    when costs_attempt(outcome) then least(failures::bigint + 1, 2147483647)::integer
    else failures
  end
$$;

-- Whether a job in this state has ended: nothing moves it any more. The guard and `verify`, which judge all others, say so
-- by themselves; holdfast.model.states has the same in Python, and a test proves them equal. Pure.
create or replace function has_ended(state text) returns boolean
language sql immutable parallel safe
as $$
  select state in ('success', 'dead', 'canceled')
$$;

-- Whether jobs of this type are requests (see requests.sql). Clients cannot use such a name. Pure.
create or replace function is_request(type text) returns boolean
language sql immutable parallel safe
as $$
  select starts_with(type, 'holdfast.')
$$;

-- What becomes of a running job, given what happened to its attempt. `interrupt` is what somebody has decided about it
-- meanwhile: pause, cancel or resolve, or an operator's verdict (see by_hand.sql). Pure; every rule is here.
create or replace function next_state(
  outcome text, kind text, interrupt text, on_failure text,
  failures integer, max_attempts integer, delay_seconds double precision
) returns text
language sql immutable parallel safe
as $$
  select case
    when outcome = 'success' then 'success'
    when interrupt in ('fail', 'kill') then 'dead'
    when interrupt = 'retry' then
      case when failures < max_attempts then 'retry' when on_failure = 'hold' then 'error' else 'dead' end
    when kind = 'hold' then 'error'
    when outcome = 'canceled' or interrupt in ('cancel', 'resolve') then 'canceled'
    when outcome = 'paused' or interrupt = 'pause' then 'paused'
    when outcome = 'released' then 'queued'
    when outcome = 'snoozed' then case when delay_seconds > 0 then 'scheduled' else 'queued' end
    when kind = 'fatal' then 'dead'
    when on_failure = 'hold' and (kind is distinct from 'retry' or failures >= max_attempts) then 'error'
    when failures >= max_attempts then 'dead'
    when outcome = 'lost' then 'queued'
    else 'retry'
  end
$$;

-- Which of two decisions about an attempt holds: the firmer one, else the first. A pause gives way to everything else,
-- and a retry to whatever is final.
create or replace function firmness(decision text) returns integer
language sql immutable parallel safe
as $$
  select case decision
    when 'pause' then 1
    when 'retry' then 2
    when 'cancel' then 3
    when 'resolve' then 3
    when 'fail' then 3
    when 'kill' then 3
    else 0
  end
$$;

-- Whether a decision is an operator's verdict, which workers do not know: they are told to cancel.
create or replace function is_verdict(decision text) returns boolean
language sql immutable parallel safe
as $$
  select decision in ('retry', 'fail', 'kill')
$$;

-- The interrupt as workers are told it: they know only cancel and pause, and resolving a job means canceling it.
create or replace function told_interrupt(interrupt text) returns text
language sql immutable parallel safe
as $$
  select case interrupt when 'resolve' then 'cancel' else interrupt end
$$;

-- Whether this statement is probably a transaction of its own: then the two began within microseconds.
-- PostgreSQL does not say so directly. A wrong guess costs a moment, never a job.
create or replace function stands_alone() returns boolean
language sql stable parallel safe
as $$
  select statement_timestamp() - transaction_timestamp() < interval '50 microseconds'
$$;

-- A notification is a hint: nothing depends on its arrival. A NOTIFY serialises commits, so in an implicit transaction
-- at most one per topic is under way at a time. A transaction that sends none may commit after the notification of
-- another was heard. For `ready`, workers therefore look again shortly after each notification. For `duty`, every
-- transaction shares the lock `-1` until it commits, and takes it before it tries the other lock. A leader that hears a
-- notification, finds neither lock held, and looks only then has missed no transaction (see `unheard`).
create or replace function wake(channel text, topics integer[]) returns void
language plpgsql
set search_path from current
as $$
declare
  heard text;
begin
  if channel = 'duty' then
    if not stands_alone()
      or not pg_try_advisory_xact_lock_shared(hashtext(current_schema() || '.duty'), -1)
      or pg_try_advisory_xact_lock(hashtext(current_schema() || '.duty'), 0) then
      heard := topics[1];
    end if;
  elsif cardinality(topics) = 1 then
    -- The same in fewer steps: almost all calls are for one topic.
    if not stands_alone() or pg_try_advisory_xact_lock(hashtext(current_schema() || '.' || channel), topics[1]) then
      heard := topics[1];
    end if;
  elsif stands_alone() then
    select string_agg(topic::text, ',') into heard
    from unnest(topics[1:64]) as topic
    where pg_try_advisory_xact_lock(hashtext(current_schema() || '.' || channel), topic);
  else
    heard := array_to_string(topics[1:64], ',');
  end if;
  if cardinality(topics) > 64 then
    heard := '';
  end if;
  if heard is not null then
    perform pg_notify(current_schema() || '.' || channel, heard);
  end if;
end
$$;

-- Whether an open transaction has work for the leader and may have sent no notification. Roles: worker.
create or replace function unheard(channel text default 'duty') returns boolean
language sql volatile security definer
set search_path from current
as $$
  select exists (
    select
    from pg_locks l
    where l.locktype = 'advisory'
      and l.database = (select d.oid from pg_database d where d.datname = current_database())
      and l.classid = hashtext(current_schema() || '.' || unheard.channel)::oid
      and l.objid in (0, (-1)::oid)
      and l.objsubid = 2)
$$;

-- Count rows that were found inconsistent, if there were any.
create or replace function note_repair(kind text, times bigint) returns void
language sql
set search_path from current
as $$
  insert into repairs as r (kind, count)
  select note_repair.kind, times
  where times > 0
  on conflict on constraint repairs_pkey do update
    set count = r.count + excluded.count, last_at = now()
$$;

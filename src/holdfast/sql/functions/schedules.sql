-- Schedules: who makes, changes, pauses and removes them (docs/decisions/034-schedules.md). What fires is in
-- schedule_fires.sql. Moves: none; `run_schedule` records a job. Roles: operator; worker declares what its code says.
--
-- 1. A schedule belongs to the code that declares it (it has a digest), or to operators. Neither changes the other's;
--    but operators may pause and run any.
-- 2. A change keeps the last fire time. A fire time that is due already stays due; later ones follow the new definition.
-- 3. While workers of two releases live, the newer definition stays: one that was replaced comes back only when no live
--    worker declares its successor any more.

-- Raise unless this is the definition of a schedule.
create or replace function check_schedule(definition jsonb, tenant text) returns void
language plpgsql stable
set search_path from current
as $$
declare
  name  text := definition ->> 'name';
  wrong text;
begin
  if jsonb_typeof(definition) is distinct from 'object' then
    raise exception 'a schedule must be a JSON object' using errcode = 'HF002';
  end if;
  select format('unknown field %s of a schedule', quote_ident(field)) into wrong
  from jsonb_object_keys(definition) as field
  where field not in ('name', 'tenant', 'cron', 'every', 'tz', 'type', 'payload', 'options', 'overlap', 'catch_up', 'jitter')
  limit 1;
  wrong := coalesce(wrong, case
    when jsonb_typeof(definition -> 'name') is distinct from 'string' or length(name) not between 1 and 200
      or unprintable(name) or strpos(name, '/') > 0
      then 'the name of a schedule must have 1 to 200 characters, no control characters and no slash'
    when num_nonnulls(definition ->> 'cron', definition ->> 'every') <> 1 then 'a schedule needs either cron or every'
    when jsonb_typeof(coalesce(definition -> 'cron', '""')) not in ('string', 'null') or length(definition ->> 'cron') not between 1 and 200
      then 'cron must be a string of 1 to 200 characters'
    when jsonb_typeof(coalesce(definition -> 'every', '0')) not in ('number', 'null') then 'every must be a number of seconds'
    when jsonb_typeof(definition -> 'tz') is distinct from 'string' or length(definition ->> 'tz') not between 1 and 100
      then 'tz must be the name of a time zone'
    when definition ->> 'overlap' is null or definition ->> 'overlap' not in ('skip', 'queue', 'allow')
      then 'overlap must be skip, queue or allow'
    when jsonb_typeof(definition -> 'catch_up') is distinct from 'number' then 'catch_up must be a number of seconds'
    when jsonb_typeof(definition -> 'jitter') is distinct from 'number' then 'jitter must be a number of seconds'
    else coalesce(
      bounds_fault('every', 'every', (definition ->> 'every')::numeric),
      bounds_fault('catch_up', 'catch_up', (definition ->> 'catch_up')::numeric),
      bounds_fault('jitter', 'jitter', (definition ->> 'jitter')::numeric))
  end);
  if wrong is null then
    select format('a schedule does not take the option %s: it would be the same for all of its jobs', option) into wrong
    from unnest(array['run_at', 'delay', 'idempotency_key', 'parent_id', 'hold', 'traceparent']) as option
    where definition -> 'options' ? option
    limit 1;
  end if;
  if wrong is not null then
    raise exception '%', wrong using errcode = 'HF002';
  end if;
  perform check_enqueue(
    array[definition ->> 'type'], array[definition -> 'payload'], array[definition -> 'options'], tenant);
end
$$;

-- Raise if the tenant has as many schedules as it may. Retired ones do not count. Those who make schedules take turns, so
-- that none is overlooked.
create or replace function check_room_for_schedule(tenant text) returns void
language plpgsql
set search_path from current
as $$
declare
  most  integer := setting('SCHEDULES_PER_TENANT');
  found integer := (
    select count(*)
    from (
      select
      from schedules s
      where s.tenant = check_room_for_schedule.tenant and s.retired_at is null
      limit most) counted);
begin
  if found >= most then
    raise exception
      'tenant % has % schedules, and may have % (SCHEDULES_PER_TENANT): delete schedules that nobody needs, or raise the limit',
      tenant, found, most
      using errcode = 'HF002', constraint = 'schedules_per_tenant';
  end if;
end
$$;

-- Store a new definition, or change the one that is there. The caller has checked it and locked the row.
create or replace function store_schedule(definition jsonb, tenant text, by text, digest text) returns void
language plpgsql
set search_path from current
as $$
#variable_conflict use_column
declare
  old   schedules;
  times boolean;
begin
  select s.* into old
  from schedules s
  where s.tenant = store_schedule.tenant and s.name = definition ->> 'name'
  for update;
  if old.id is null or old.retired_at is not null then
    perform check_room_for_schedule(tenant);
  end if;
  if old.id is null then
    insert into schedules (
      tenant, name, cron, every_seconds, tz, type, payload, options, overlap, catch_up, jitter, digest, declared_at,
      created_by, updated_by)
    values (
      store_schedule.tenant, definition ->> 'name', definition ->> 'cron', (definition ->> 'every')::double precision,
      definition ->> 'tz', definition ->> 'type', definition -> 'payload', coalesce(definition -> 'options', '{}'),
      definition ->> 'overlap', (definition ->> 'catch_up')::double precision, (definition ->> 'jitter')::double precision,
      store_schedule.digest, case when store_schedule.digest is not null then now() end, by, by);
    perform wake('duty', array[0]);
    return;
  end if;
  times := (old.cron, old.every_seconds, old.tz)
    is distinct from (definition ->> 'cron', (definition ->> 'every')::double precision, definition ->> 'tz')
    or old.retired_at is not null;
  update schedules s
  set cron = definition ->> 'cron',
    every_seconds = (definition ->> 'every')::double precision,
    anchor = case
      when old.every_seconds is distinct from (definition ->> 'every')::double precision then least(coalesce(old.last_fire_at, now()), now())
      else old.anchor
    end,
    tz = definition ->> 'tz',
    type = definition ->> 'type',
    payload = definition -> 'payload',
    options = coalesce(definition -> 'options', '{}'),
    overlap = definition ->> 'overlap',
    catch_up = (definition ->> 'catch_up')::double precision,
    jitter = (definition ->> 'jitter')::double precision,
    revision = old.revision + 1,
    digest = store_schedule.digest,
    -- The last twenty: who declares an older one has waited for long.
    replaced = case
      when old.digest is not null and store_schedule.digest is not null
        then (array_remove(old.replaced, store_schedule.digest) || old.digest)[greatest(1, cardinality(old.replaced) - 18):]
      else '{}'
    end,
    declared_at = case when store_schedule.digest is not null then now() end,
    retired_at = null,
    -- What is due already stays due.
    next_fire_at = case
      when old.retired_at is null and (not times or old.next_fire_at <= now()) then old.next_fire_at
    end,
    reckoned_from = case when times then now() else old.reckoned_from end,
    reckoned_at = case when times then now() else old.reckoned_at end,
    look_at = case when old.paused_at is null then now() end,
    failures = 0,
    last_error = null,
    last_error_at = null,
    updated_at = now(),
    updated_by = by
  where s.id = old.id;
  perform wake('duty', array[0]);
end
$$;

-- What the code of a live worker declares. Answers the schedules that were refused, and why. A definition that is not
-- new changes nothing but, now and then, the moment at which it was last declared.
create or replace function declare_schedules(worker text, definitions jsonb)
returns table (tenant text, name text, fault text)
language plpgsql security definer
set search_path from current
set lock_timeout = '5s'
as $$
#variable_conflict use_column
declare
  asked record;
begin
  if jsonb_typeof(definitions) is distinct from 'array' or jsonb_array_length(definitions) > 100000 then
    raise exception 'schedules must be a list of at most 100000 objects' using errcode = 'HF002';
  end if;
  update workers w
  set schedules = array(select md5(d.value::text) from jsonb_array_elements(definitions) as d)
  where w.id = declare_schedules.worker;

  update schedules s
  set declared_at = now()
  from (
    select same.id
    from jsonb_array_elements(definitions) as d
    join schedules same on same.tenant = d.value ->> 'tenant' and same.name = d.value ->> 'name'
    where same.digest = md5(d.value::text) and same.retired_at is null
      and (same.declared_at < now() - interval '30 minutes' or same.declared_at > now())
    order by same.id
    for update of same skip locked) known
  where s.id = known.id;

  -- One at a time: two that make the same schedule at once would collide.
  if exists (
    select from jsonb_array_elements(definitions) as d
    where not exists (
      select from schedules s
      where s.tenant = d.value ->> 'tenant' and s.name = d.value ->> 'name' and s.digest = md5(d.value::text)
        and s.retired_at is null)) then
    perform pg_advisory_xact_lock(hashtext(current_schema() || '.schedules'), 0);
  end if;
  for asked in
    select d.value as definition, md5(d.value::text) as digest, d.value ->> 'tenant' as tenant, d.value ->> 'name' as name,
      s.id, s.digest as current, s.retired_at, s.replaced
    from jsonb_array_elements(definitions) as d
    left join schedules s on s.tenant = d.value ->> 'tenant' and s.name = d.value ->> 'name'
    where s.id is null or s.digest is distinct from md5(d.value::text) or s.retired_at is not null
    order by 3, 4
  loop
    if asked.id is not null and asked.current is null then
      return query select asked.tenant, asked.name, 'an operator has made a schedule with this name: delete that one, or rename this one'::text;
    elsif asked.digest = any (asked.replaced) and asked.retired_at is null
      and exists (select from live_workers() w where w.schedules @> array[asked.current]) then
      continue;  -- an older process of a rolling deploy
    else
      begin
        perform check_schedule(asked.definition, asked.tenant);
        perform store_schedule(asked.definition, asked.tenant, 'worker:' || worker, asked.digest);
        perform note_audit(
          'worker:' || worker, null, asked.tenant, case when asked.id is null then 'schedule.declare' else 'schedule.redeclare' end,
          asked.name, asked.definition - 'name' - 'tenant' - 'payload');
      exception
        when sqlstate 'HF002' or sqlstate 'HF001' then
          return query select asked.tenant, asked.name, sqlerrm;
      end;
    end if;
  end loop;
end
$$;

-- Create a schedule, or (`replace`) change the one with this name. Answers `created`, `changed`, or why not: `exists`, or
-- `declared`, because it belongs to code.
create or replace function put_schedule(
  definition jsonb, tenant text, replace boolean, by text, note text default null, by_key uuid default null
) returns text
language plpgsql security definer
set search_path from current
set lock_timeout = '5s'
as $$
#variable_conflict use_column
declare
  old schedules;
begin
  perform check_signed(by, note);
  perform check_schedule(definition, put_schedule.tenant);
  -- Of two that make the same schedule at once, the second waits here and then finds the first.
  perform pg_advisory_xact_lock(hashtext(current_schema() || '.schedules'), 0);
  select s.* into old
  from schedules s
  where s.tenant = put_schedule.tenant and s.name = definition ->> 'name'
  for update;
  if found and old.retired_at is null and old.digest is not null then
    return 'declared';
  elsif found and old.retired_at is null and not replace then
    return 'exists';
  end if;
  perform store_schedule(definition, tenant, by, null);
  perform note_audit(
    by, by_key, tenant, case when old.id is null or old.retired_at is not null then 'schedule.create' else 'schedule.change' end,
    definition ->> 'name', jsonb_strip_nulls((definition - 'name' - 'tenant' - 'payload') || jsonb_build_object('note', note)));
  return case when old.id is null or old.retired_at is not null then 'created' else 'changed' end;
end
$$;

-- Stop a schedule from firing. Answers whether anything changed; null if there is none.
create or replace function pause_schedule(
  name text, tenant text, by text, note text default null, by_key uuid default null
) returns boolean
language plpgsql security definer
set search_path from current
set lock_timeout = '5s'
as $$
#variable_conflict use_column
declare
  old schedules;
begin
  perform check_signed(by, note);
  select s.* into old
  from schedules s
  where s.tenant = pause_schedule.tenant and s.name = pause_schedule.name and s.retired_at is null
  for update;
  if not found then
    return null;
  elsif old.paused_at is not null then
    perform vouch();
    return false;
  end if;
  update schedules s
  set paused_at = now(), paused_by = by, paused_note = note, look_at = null, next_fire_at = null
  where s.id = old.id;
  perform note_audit(
    by, by_key, tenant, 'schedule.pause', old.name, jsonb_strip_nulls(jsonb_build_object('note', note)));
  return true;
end
$$;

-- Let a schedule fire again, from now on: fire times during the pause are skipped. Answers whether
-- anything changed; null if there is none.
create or replace function resume_schedule(
  name text, tenant text, by text, note text default null, by_key uuid default null
) returns boolean
language plpgsql security definer
set search_path from current
set lock_timeout = '5s'
as $$
#variable_conflict use_column
declare
  old schedules;
begin
  perform check_signed(by, note);
  select s.* into old
  from schedules s
  where s.tenant = resume_schedule.tenant and s.name = resume_schedule.name and s.retired_at is null
  for update;
  if not found then
    return null;
  elsif old.paused_at is null then
    perform vouch();
    return false;
  end if;
  update schedules s
  set paused_at = null, paused_by = null, paused_note = null, next_fire_at = null, reckoned_from = now(),
    reckoned_at = now(), look_at = now()
  where s.id = old.id;
  perform note_audit(
    by, by_key, tenant, 'schedule.resume', old.name, jsonb_strip_nulls(jsonb_build_object('note', note)));
  perform wake('duty', array[0]);
  return true;
end
$$;

-- Remove an operator's schedule, or one that was retired. Its jobs stay. Answers `deleted`, `declared`, because it
-- belongs to code; or null if there is none.
create or replace function delete_schedule(
  name text, tenant text, by text, note text default null, by_key uuid default null
) returns text
language plpgsql security definer
set search_path from current
set lock_timeout = '5s'
as $$
#variable_conflict use_column
declare
  old schedules;
begin
  perform check_signed(by, note);
  select s.* into old
  from schedules s
  where s.tenant = delete_schedule.tenant and s.name = delete_schedule.name
  for update;
  if not found then
    return null;
  elsif old.digest is not null and old.retired_at is null then
    return 'declared';
  end if;
  -- What became of its fire times is forgotten by the leader: it may be much.
  delete from schedules s where s.id = old.id;
  perform note_audit(by, by_key, tenant, 'schedule.delete', old.name, jsonb_strip_nulls(jsonb_build_object(
    'note', note, 'cron', old.cron, 'every', old.every_seconds, 'type', old.type)));
  return 'deleted';
end
$$;

-- Record a job of a schedule now, also while it is paused. Answers the job; or `overlap` and the job that is still open,
-- where the schedule would skip a fire time for it; no row if there is no such schedule.
create or replace function run_schedule(
  name text, tenant text, by text, note text default null, by_key uuid default null
) returns table (outcome text, job_id uuid)
language plpgsql security definer
set search_path from current
set lock_timeout = '5s'
as $$
#variable_conflict use_column
declare
  schedule schedules;
  moment   timestamptz := clock_timestamp();
begin
  perform check_signed(by, note);
  select s.* into schedule
  from schedules s
  where s.tenant = run_schedule.tenant and s.name = run_schedule.name and s.retired_at is null
  for update;
  if not found then
    return;
  end if;
  job_id := case when schedule.overlap = 'skip' then open_run(schedule.id) end;
  if job_id is not null then
    outcome := 'overlap';
    return next;
    return;
  end if;
  while exists (select from schedule_fires f where f.schedule_id = schedule.id and f.fire_at = moment) loop
    moment := moment + interval '1 microsecond';
  end loop;
  select r.job_id into job_id from record_run(schedule, moment, by_hand => true) r;
  insert into schedule_fires (schedule_id, fire_at, outcome, job_id, by)
  values (schedule.id, moment, 'by-hand', job_id, run_schedule.by);
  update schedules s set last_job_id = run_schedule.job_id where s.id = schedule.id;
  perform note_audit(by, by_key, tenant, 'schedule.run', schedule.name, jsonb_strip_nulls(jsonb_build_object(
    'note', note, 'job_id', job_id)));
  outcome := 'recorded';
  return next;
end
$$;

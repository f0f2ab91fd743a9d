-- What schedules fire. Moves: none here; those of an enqueue. Roles: worker (maintenance).
--
-- 1. The leader computes fire times (cron, zones) from the definition and the clock that `due_schedules` tells it. The
--    engine decides: `fire_schedules` acts only if definition and next fire time are still those.
-- 2. A fire time, its job and the next fire time are one transaction, under the lock of the schedule; the primary key of
--    `schedule_fires` makes sure of one job per fire time. So crashes, several leaders and late callers do no harm, and a
--    clock that was set back cannot fire anything twice.
-- 3. The failure of one schedule undoes its own part alone, and is tried again later, ever more rarely.
-- 4. Tenants take turns among what is due: the thousands of schedules of one do not keep the single one of another waiting.

-- The job of a schedule that is still open; null if there is none.
create or replace function open_run(schedule_id bigint) returns uuid
language sql stable
set search_path from current
as $$
  select j.id
  from (
    select f.job_id
    from schedule_fires f
    where f.schedule_id = open_run.schedule_id and f.job_id is not null
    order by f.fire_at desc
    limit 100) run
  join jobs j on j.id = run.job_id
  where not has_ended(j.state)
  limit 1
$$;

-- Record the job of one fire time. It is due at the fire time, or a share of the jitter later, which follows from the
-- fire time; by hand, now. Those that may not overlap have a target in common.
create or replace function record_run(schedule schedules, fire_at timestamptz, by_hand boolean default false)
returns table (job_id uuid, outcome text)
language sql
set search_path from current
as $$
  select e.job_id, e.outcome
  from enqueue_many(
    array[schedule.type],
    array[schedule.payload],
    array[
      case when schedule.overlap = 'queue' then jsonb_build_object('target', 'schedule:' || schedule.name) else '{}' end
      || schedule.options
      || case when by_hand then '{}' else jsonb_build_object('run_at', fire_at + make_interval(secs => schedule.jitter
        * (hashtextextended(schedule.name || extract(epoch from fire_at), 0) & 2147483647) / 2147483648.0)) end],
    schedule.tenant,
    'schedule:' || schedule.name) e
$$;

-- Schedules that the leader is to look at, and last a row without id that says in how many seconds the next one follows
-- (null: none does). If more are due than that, tenants take turns: the walk over them begins behind `after_tenant`, and
-- the last row says in `tenant` how far it came. Each of these tenants has its oldest one looked at, then
-- each its second, and so on; what room is left goes to the oldest of all.
create or replace function due_schedules(max_schedules integer default 100, after_tenant text default null)
returns table (
  id bigint, tenant text, name text, revision integer, cron text, every_seconds double precision, anchor timestamptz,
  tz text, next_fire_at timestamptz, reckoned_from timestamptz, catch_up double precision, clock timestamptz,
  next_in_seconds double precision)
language plpgsql security definer stable
set search_path from current
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
  chosen  bigint[];
  waiting text[] := '{}';
  reached text;
begin
  chosen := array(select s.id from schedules s where s.look_at <= now() order by s.look_at, s.id limit max_schedules);
  if cardinality(chosen) >= max_schedules then
    select w.waiting, w.reached into waiting, reached from tenants_due(max_schedules, after_tenant) w;
    chosen := array(
      select first.id
      from (
        select taken.id, min(taken.turn) as turn, min(taken.look_at) as look_at
        from (
          select own.id, own.look_at, row_number() over (partition by t.tenant order by own.look_at, own.id) as turn
          from unnest(waiting) as t (tenant)
          cross join lateral (
            select s.id, s.look_at
            from schedules s
            where s.tenant = t.tenant and s.look_at <= now()
            order by s.look_at, s.id
            limit max_schedules) own
          union all
          select s.id, s.look_at, max_schedules + 1 from schedules s where s.id = any (chosen)) taken
        group by taken.id) first
      order by first.turn, first.look_at, first.id
      limit max_schedules);
  end if;
  return query
    select s.id, s.tenant, s.name, s.revision, s.cron, s.every_seconds, s.anchor, s.tz, s.next_fire_at, s.reckoned_from,
      s.catch_up, now(), null::double precision
    from schedules s
    where s.id = any (chosen)
    order by array_position(chosen, s.id);
  return query
    select null::bigint, reached, null::text, null::integer, null::text, null::double precision, null::timestamptz, null::text,
      null::timestamptz, null::timestamptz, null::double precision, now(), (
        select extract(epoch from s.look_at - now())::double precision
        from schedules s
        where s.look_at > now()
        order by s.look_at
        limit 1);
end
$$;

-- The next tenants by name with schedules that are due, from the beginning again where there are none, and how far the walk
-- came. It looks at a thousand tenants at most.
create or replace function tenants_due(max_tenants integer, after_tenant text, out waiting text[], out reached text)
language plpgsql stable
set search_path from current
set enable_seqscan = off
as $$
declare
  following record;
begin
  waiting := '{}';
  reached := after_tenant;
  for looks in 1..1000 loop
    select s.tenant, s.look_at into following
    from schedules s
    where s.look_at is not null and s.tenant > coalesce(reached, '')
    order by s.tenant, s.look_at, s.id
    limit 1;
    if not found then
      -- Once more from the beginning, if there was nobody behind the last one.
      exit when reached is null or waiting <> '{}';
      reached := null;
      continue;
    end if;
    reached := following.tenant;
    if following.look_at <= now() then
      waiting := waiting || following.tenant;
      exit when cardinality(waiting) >= max_tenants;
    end if;
  end loop;
end
$$;

-- How late a fire time counts as on time: the time that another process takes to become the leader, and more.
create or replace function fire_grace() returns interval
language sql immutable parallel safe
as $$
  select interval '1 minute'
$$;

-- Decide fire times. Of each schedule: the revision and the next fire time that the caller knew, the one that follows
-- now, and, if it is too late for some, up to when (`missed_to`). `fire_ids` and `fire_ats` are the fire times, in
-- order. Answers a row for each schedule of which there is something to tell: what it fired, skipped and missed, or a
-- failure. One that has changed meanwhile, or that somebody has locked, is left out.
create or replace function fire_schedules(
  ids bigint[], revisions integer[], expected timestamptz[], following timestamptz[], missed_to timestamptz[],
  fire_ids bigint[], fire_ats timestamptz[]
) returns table (
  id bigint, tenant text, name text, fired integer, skipped integer, missed_from timestamptz, fault text, failures integer)
language plpgsql security definer
set search_path from current
as $$
#variable_conflict use_column
declare
  schedule schedules;
  moment   timestamptz;
  outcome  text;
  run      record;
begin
  for place in 1..coalesce(cardinality(ids), 0) loop
    select s.* into schedule
    from schedules s
    where s.id = ids[place] and s.revision = revisions[place] and s.look_at is not null
      and s.next_fire_at is not distinct from expected[place]
    for update skip locked;
    -- A caller that stood still meanwhile: what it found in time is too late now.
    continue when not found or exists (
      select from unnest(fire_ids, fire_ats) as f (id, fire_at)
      where f.id = schedule.id and f.fire_at <= now() - make_interval(secs => schedule.catch_up) - fire_grace());
    id := schedule.id;
    tenant := schedule.tenant;
    name := schedule.name;
    fired := 0;
    skipped := 0;
    missed_from := null;
    fault := null;
    failures := 0;
    begin
      if missed_to[place] <= now() - make_interval(secs => schedule.catch_up) - fire_grace() then
        insert into schedule_fires (schedule_id, fire_at, outcome, missed_to)
        values (schedule.id, schedule.next_fire_at, 'missed', missed_to[place])
        -- After a step of the clock, this one may be decided, but not those after it.
        on conflict (schedule_id, fire_at) do update set missed_to = greatest(schedule_fires.missed_to, excluded.missed_to);
        missed_from := schedule.next_fire_at;
      end if;
      for moment in
        select f.fire_at
        from unnest(fire_ids, fire_ats) as f (id, fire_at)
        where f.id = schedule.id and f.fire_at <= now()
        order by f.fire_at
      loop
        outcome := case when schedule.overlap = 'skip' and open_run(schedule.id) is not null then 'skipped' else 'fired' end;
        insert into schedule_fires (schedule_id, fire_at, outcome)
        values (schedule.id, moment, outcome)
        on conflict do nothing;
        continue when not found;
        if outcome = 'skipped' then
          skipped := skipped + 1;
        else
          select r.job_id, r.outcome into run from record_run(schedule, moment) r;
          update schedule_fires f
          set job_id = run.job_id, outcome = case when run.outcome = 'created' then 'fired' else 'existing' end
          where f.schedule_id = schedule.id and f.fire_at = moment;
          schedule.last_job_id := run.job_id;
          fired := fired + 1;
        end if;
        schedule.last_fire_at := greatest(schedule.last_fire_at, moment);
      end loop;
      update schedules s
      set next_fire_at = following[place], reckoned_at = now(), look_at = following[place],
        last_fire_at = schedule.last_fire_at, last_job_id = schedule.last_job_id,
        fired = s.fired + fire_schedules.fired, skipped = s.skipped + fire_schedules.skipped,
        failures = 0, missed_at = case when missed_from is not null then now() else s.missed_at end,
        last_error = null, last_error_at = null
      where s.id = schedule.id;
    exception
      when others then
        if sqlstate in ('40001', '40P01') then
          raise;
        end if;
        fired := 0;
        skipped := 0;
        missed_from := null;
        fault := left(sqlerrm, 1000);
    end;
    if fault is not null then
      failures := schedule_failed(schedule.id, fault);
    end if;
    if fired + skipped > 0 or missed_from is not null or fault is not null then
      return next;
    end if;
  end loop;
end
$$;

-- Note that a schedule could not fire, and look at it again later. Answers how many times that has happened since its
-- last success.
create or replace function schedule_failed(id bigint, fault text) returns integer
language sql
set search_path from current
as $$
  update schedules s
  set failures = s.failures + 1, last_error = left(fault, 1000), last_error_at = now(),
    look_at = now() + make_interval(secs => least(300, 2 ^ least(s.failures, 9)))
  where s.id = schedule_failed.id
  returning s.failures
$$;

-- Note that the leader could not compute fire times: its zone or its expression is unknown there. Answers how many
-- times that has happened; null if the schedule has changed meanwhile.
create or replace function refuse_schedule(id bigint, revision integer, fault text) returns integer
language sql security definer
set search_path from current
as $$
  select schedule_failed(s.id, fault)
  from schedules s
  where s.id = refuse_schedule.id and s.revision = refuse_schedule.revision and s.look_at is not null
$$;

-- After the clock was set back: fire times that were computed from a later clock are computed again. What has fired
-- meanwhile stays decided; what was only missed becomes possible again.
create or replace function rewind_schedules(after text[] default null, max_rows integer default 1000)
returns table (mended integer, reached text[])
language plpgsql security definer
set search_path from current
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
  ids   bigint[];
  ahead bigint[];
begin
  ids := array(
    select s.id from schedules s where s.id > coalesce(after[1]::bigint, 0) order by s.id limit max_rows);
  with later as (
    select s.id, now() - make_interval(secs => s.catch_up) - fire_grace() as too_late
    from schedules s
    where s.id = any (ids) and s.reckoned_at > now() + interval '0.5 seconds'
    order by s.id
    for update skip locked
  ), gap as (
    -- What was missed by a later clock, and is not too late by this one.
    select f.schedule_id as id, min(greatest(later.too_late,
        case when f.outcome = 'missed' then f.fire_at - interval '1 microsecond' else f.fire_at end)) as since
    from later
    join schedule_fires f on f.schedule_id = later.id and f.missed_to > now()
    group by f.schedule_id
  ), again as (
    update schedules s
    set next_fire_at = case when s.next_fire_at <= now() and gap.since is null then s.next_fire_at end,
      -- `least` ignores what is null.
      reckoned_from = least(now(), gap.since, s.next_fire_at - interval '1 microsecond'),
      reckoned_at = now(), look_at = case when s.look_at is not null then now() end
    from later
    left join gap using (id)
    where s.id = later.id
    returning s.id, later.too_late
  ), undone as (
    delete from schedule_fires f
    using again
    where f.schedule_id = again.id and f.missed_to > now() and f.outcome = 'missed' and f.fire_at > again.too_late
  ), shortened as (
    update schedule_fires f
    set missed_to = case when f.fire_at < again.too_late then again.too_late end
    from again
    where f.schedule_id = again.id and f.missed_to > now() and not (f.outcome = 'missed' and f.fire_at > again.too_late)
  )
  select array_agg(a.id) into ahead from again a;
  mended := coalesce(cardinality(ahead), 0);
  reached := case when cardinality(ids) >= max_rows then array[ids[cardinality(ids)]::text] end;
  return next;
end
$$;

-- Retire declared schedules that nobody has declared for a day: they do not fire any more. None is retired unless a
-- worker has lived for ten minutes: after an outage of all of them, each has had the time to declare its own. Those
-- that were retired a month ago are forgotten. A step of the clock ahead makes nothing older.
create or replace function retire_schedules(after text[] default null, max_rows integer default 1000)
returns table (mended integer, reached text[])
language plpgsql security definer
set search_path from current
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
  ids     bigint[];
  lead    interval := clock_lead(interval '32 days');
  retired record;
begin
  mended := 0;
  ids := array(
    select s.id from schedules s where s.id > coalesce(after[1]::bigint, 0) order by s.id limit max_rows);
  if lead is not null and clock_is_known()
    and exists (
      select from live_workers() w
      where w.kind = 'python' and w.started_at < now() - lead - interval '10 minutes') then
    for retired in
      update schedules s
      set retired_at = now(), look_at = null, next_fire_at = null
      from (
        select o.id
        from schedules o
        where o.id = any (ids) and o.digest is not null and o.retired_at is null
          and o.declared_at < now() - lead - interval '24 hours'
          and not exists (select from live_workers() w where w.schedules @> array[o.digest])
        order by o.id
        for update skip locked) old
      where s.id = old.id
      returning s.tenant, s.name
    loop
      perform note_audit('maintenance', null, retired.tenant, 'schedule.retire', retired.name,
        jsonb_build_object('note', 'no worker has declared it for 24 hours'));
      mended := mended + 1;
    end loop;
    delete from schedules s
    where s.id = any (ids) and s.retired_at < now() - lead - interval '30 days';
  end if;
  reached := case when cardinality(ids) >= max_rows then array[ids[cardinality(ids)]::text] end;
  return next;
end
$$;

-- Forget what became of fire times a week ago, except for the last ten of each schedule. A step of the clock ahead makes
-- nothing older: what is forgotten could fire again.
create or replace function forget_fires(after text[] default null, max_rows integer default 1000)
returns table (mended integer, reached text[])
language plpgsql security definer
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
#variable_conflict use_column
declare
  horizon timestamptz := now() - interval '7 days' - clock_lead(interval '8 days');
  times   timestamptz[];
  ids     bigint[];
begin
  mended := 0;
  if horizon is not null and clock_is_known() then
    select array_agg(f.fire_at), array_agg(f.schedule_id) into times, ids
    from (
      select f.fire_at, f.schedule_id
      from schedule_fires f
      where (f.fire_at, f.schedule_id) > (coalesce(after[1]::timestamptz, '-infinity'), coalesce(after[2]::bigint, 0))
        and f.fire_at < horizon
      order by f.fire_at, f.schedule_id
      limit max_rows) f;
    with judged as materialized (
      select old.fire_at, old.id
      from unnest(times, ids) as old (fire_at, id)
      left join schedules s on s.id = old.id
      -- Without a bound on the time, nothing but the primary key serves.
      left join lateral (
        select n.fire_at
        from schedule_fires n
        where s.id is not null and n.schedule_id = old.id
        order by n.fire_at desc
        offset 9 limit 1) tenth on true
      where s.id is null or old.fire_at < tenth.fire_at
    )
    delete from schedule_fires f
    using judged
    where f.schedule_id = judged.id and f.fire_at = judged.fire_at;
    get diagnostics mended = row_count;
    if cardinality(ids) >= max_rows then
      reached := array[to_jsonb(times[max_rows]) #>> '{}', ids[max_rows]::text];
    end if;
  end if;
  return next;
end
$$;

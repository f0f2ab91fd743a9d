-- Repairs after the clock was set back: nothing may wait longer than its own length. Times that lie further ahead were
-- written before the step, and are brought nearer by the steps that were recorded since. Each function looks at a
-- bounded number of rows after the given place, and answers how far it has come: null when there are no more rows.
-- Moves: none. Roles: worker.

-- Let no lease end later than its length from now. Answers every lease that was looked at, with its expiry before and
-- after, and one row without a job for the place that was reached. The leader watches all leases: while the clock is
-- set back as fast as time passes, a lease that nobody renews neither lapses nor lies too far ahead.
create or replace function review_leases(after uuid default null, max_rows integer default 1000)
returns table (
  job_id uuid, attempt integer, lease_seconds double precision, was timestamptz, expires_at timestamptz, reached uuid)
language plpgsql security definer
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
  ids uuid[];
begin
  ids := array(
    select l.job_id
    from leases l
    where l.job_id > coalesce(after, '00000000-0000-0000-0000-000000000000')
    order by l.job_id
    limit max_rows);
  return query
  with ahead as materialized (
    select l.job_id, l.expires_at
    from leases l
    where l.job_id = any (ids) and l.expires_at > now() + make_interval(secs => l.lease_seconds) + interval '0.5 seconds'
    order by l.job_id
    for update skip locked
  ), nearer as (
    update leases l
    set expires_at = now() + make_interval(secs => l.lease_seconds)
    from ahead
    where l.job_id = ahead.job_id
    returning l.job_id, ahead.expires_at as was, l.expires_at
  )
  select l.job_id, l.attempt, l.lease_seconds::double precision, coalesce(n.was, l.expires_at),
    coalesce(n.expires_at, l.expires_at), null::uuid
  from leases l
  left join nearer n on n.job_id = l.job_id
  where l.job_id = any (ids);
  return query
  select null::uuid, null::integer, null::double precision, null::timestamptz, null::timestamptz,
    case when cardinality(ids) >= max_rows then ids[cardinality(ids)] end;
end
$$;

-- Bring the ends of leases nearer as `review_leases` does, but answer only the leases that were changed.
create or replace function clamp_leases(after uuid default null, max_rows integer default 1000)
returns table (
  job_id uuid, attempt integer, lease_seconds double precision, was timestamptz, expires_at timestamptz, reached uuid)
language sql security definer
set search_path from current
as $$
  select *
  from review_leases(clamp_leases.after, clamp_leases.max_rows) r
  where r.was is distinct from r.expires_at or r.job_id is null
$$;

-- For how many seconds something has really waited that began at this moment, or was entered at this place if that is
-- known more precisely. Steps back since then are added; steps ahead only undo steps back. (Something that was entered
-- between a step and the renewal before it has no step to add. It began less than two renewals ago, and at the latest
-- now.)
create or replace function waited_seconds(began timestamptz, entered bigint, clock timestamptz) returns double precision
language sql stable
set search_path from current
as $$
  select greatest(0, extract(epoch from clock - began)::double precision - least(0, (
    select sum(s.seconds) from clock_steps s where s.place >= coalesce(waited_seconds.entered, 0))))
$$;

-- The place of a row that already accounts for all recorded steps. It lies before the last renewal, so the next step
-- counts.
create or replace function place_after_steps() returns bigint
language sql stable
set search_path from current
as $$
  select coalesce(max(s.place), 0) + 1 from clock_steps s
$$;

-- Whether every step back has been recorded. Until then nobody knows how long anything has waited.
create or replace function clock_is_known() returns boolean
language sql stable
set search_path from current
as $$
  select not exists (
    select from leaders l where l.name = 'maintenance' and l.renewed_at > clock_timestamp() + interval '0.5 seconds')
$$;

-- Let no permit of a rate count as granted later than now.
create or replace function clamp_rates(
  after_gate text default 'rate', after_slot integer default 0, max_rows integer default 1000
) returns table (changed integer, reached_gate text, reached_slot integer)
language plpgsql security definer
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
  clock   timestamptz := clock_timestamp();
  longest double precision := highest('rate');
  gates   text[];
  slots   integer[];
begin
  changed := 0;
  if not clock_is_known() then
    return next;
    return;
  end if;
  select array_agg(p.gate), array_agg(p.slot) into gates, slots
  from (
    select p.gate, p.slot
    from permits p
    where (p.gate, p.slot) > (after_gate, after_slot) and p.gate < past_rates()
    order by p.gate, p.slot
    limit max_rows) p;
  with ahead as materialized (
    select p.gate, p.slot, really.granted_at
    from unnest(gates, slots) as looked (gate, slot)
    join permits p on p.gate = looked.gate and p.slot = looked.slot
    cross join lateral (
      select clock - make_interval(secs => least(waited_seconds(p.granted_at, p.entered, clock), longest)) as granted_at) really
    where p.granted_at > clock - make_interval(secs => longest)
      and p.granted_at > really.granted_at + interval '0.5 seconds'
    order by p.gate, p.slot
    for update of p skip locked
  )
  update permits p
  set granted_at = ahead.granted_at, entered = place_after_steps()
  from ahead
  where p.gate = ahead.gate and p.slot = ahead.slot;
  get diagnostics changed = row_count;
  if cardinality(gates) >= max_rows then
    reached_gate := gates[max_rows];
    reached_slot := slots[max_rows];
  end if;
  return next;
end
$$;

-- Correct the waiting time of jobs that failed, were snoozed, or were enqueued with a delay. Such a job waits for a
-- fixed length of time, from `updated_at` to `run_at`. Both are moved back by as much as the clock was set back since.
-- A `run_at` that a user gave follows the clock.
create or replace function clamp_backoff(
  after_run_at timestamptz default '-infinity', after_job uuid default '00000000-0000-0000-0000-000000000000',
  max_rows integer default 1000
) returns table (changed integer, reached_run_at timestamptz, reached_job uuid)
language plpgsql security definer
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
#variable_conflict use_column
declare
  times timestamptz[];
  ids   uuid[];
begin
  changed := 0;
  if not clock_is_known() then
    return next;
    return;
  end if;
  select array_agg(d.run_at), array_agg(d.job_id) into times, ids
  from (
    select d.run_at, d.job_id
    from due d
    where (d.run_at, d.job_id) > (greatest(after_run_at, now()), after_job)
    order by d.run_at, d.job_id
    limit max_rows) d;
  with ahead as materialized (
    select d.run_at, d.job_id, really.began_at
    from unnest(times, ids) as looked (run_at, job_id)
    join jobs j on j.id = looked.job_id and j.run_at = looked.run_at
    join due d on d.run_at = looked.run_at and d.job_id = looked.job_id
    cross join lateral (
      select now() - make_interval(secs => least(
        waited_seconds(j.updated_at, d.entered, now()), extract(epoch from j.run_at - j.updated_at))) as began_at) really
    where (j.state = 'retry' or (j.state = 'scheduled' and j.reason in ('snoozed', 'delayed')))
      and j.updated_at > really.began_at + interval '0.5 seconds'
    order by d.run_at, d.job_id
    for update of d skip locked
  ), gone as (
    delete from due d
    using ahead
    where d.run_at = ahead.run_at and d.job_id = ahead.job_id
    returning d.run_at, d.job_id, ahead.began_at
  ), nearer as (
    update jobs j
    set run_at = gone.began_at + (j.run_at - j.updated_at), updated_at = gone.began_at
    from gone
    where j.id = gone.job_id and j.run_at = gone.run_at and j.state in ('retry', 'scheduled')
    returning j.run_at, j.id
  ), entered as (
    insert into due (run_at, job_id, entered) select n.run_at, n.id, place_after_steps() from nearer n
    on conflict do nothing
  )
  select count(*) into changed from nearer;
  if cardinality(ids) >= max_rows then
    reached_run_at := times[max_rows];
    reached_job := ids[max_rows];
  end if;
  if changed > 0 then
    perform wake('duty', array[0]);
  end if;
  return next;
end
$$;

-- The steps of the clock, with the time that has really passed since each (`seconds_ago`: later steps do not count) and
-- the sum of all steps from this one on (`lead`). In seconds, because the sums may exceed the range of dates.
create or replace function known_clock_steps() returns table (id bigint, seconds_ago double precision, lead double precision)
language sql stable
set search_path from current
as $$
  select s.id, extract(epoch from now() - s.noticed_at)::double precision - (sum(s.seconds) over later - s.seconds),
    sum(s.seconds) over later
  from clock_steps s
  window later as (order by s.id desc)
$$;

-- Record by how many seconds the clock jumped between two renewals of leadership (negative: it was set back), and the
-- place of the first renewal. Forget steps that are older than any job is kept.
create or replace function note_clock_step(seconds double precision, place bigint default null) returns void
language sql
set search_path from current
as $$
  insert into clock_steps (seconds, place)
  values (least(greatest(note_clock_step.seconds, -1e12), 1e12), note_clock_step.place);
  delete from clock_steps s
  using known_clock_steps() k
  where k.id = s.id and k.seconds_ago > extract(epoch from greatest(retention_of(true), retention_of(false)))
$$;

-- The largest error of an age because the clock was set ahead within this time. A step that is really longer ago does
-- not matter: everything before it is old enough. Null if dates cannot be moved by that much: then no age is known.
create or replace function clock_lead(within interval) returns interval
language sql stable
set search_path from current
as $$
  select case when coalesce(max(k.lead), 0) <= highest('delay') then make_interval(secs => greatest(max(k.lead), 0)) end
  from known_clock_steps() k
  where k.seconds_ago < extract(epoch from clock_lead.within)
$$;

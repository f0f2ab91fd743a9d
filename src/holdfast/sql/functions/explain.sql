-- Why a job does not run, in one sentence that names the cause. Moves: none. Roles: operator.

-- Why a job does not run, or what it is doing.
create or replace function explain(job_id uuid, only_tenant text default null)
returns table (code text, sentence text, culprit jsonb)
language plpgsql security definer stable
set search_path from current
as $$
#variable_conflict use_column
declare
  job  jobs;
  head jobs;
begin
  select j.* into job from jobs j where j.id = explain.job_id and (only_tenant is null or j.tenant = only_tenant);
  if not found then
    return query select 'unknown', format('There is no job %s.', explain.job_id), null::jsonb;
    return;
  end if;
  if job.state = 'queued' and job.target is not null then
    select j.* into head
    from heads h
    join jobs j on j.id = h.job_id
    where h.tenant = job.tenant and h.target = job.target and j.state not in ('success', 'dead', 'canceled');
    if head.id is null then
      return query select 'seating', 'The job ' || case
        when is_maintained() then 'is called to the head of its target in a moment.'
        else 'waits to be called to the head of its target, but no process does maintenance.' end,
        jsonb_build_object('kind', 'maintenance');
      return;
    elsif head.id <> job.id then
      return query
      select 'target', format('The job waits behind job %s of its target %s, which %s.', head.id, quoted(job.target), s.text),
        jsonb_build_object('kind', 'job', 'id', head.id, 'state', head.state, 'target', job.target, 'code', s.code,
          'culprit', s.culprit)
      from situation(head, only_tenant) s;
      return;
    end if;
  end if;
  return query
  select s.code, format('The job %s%s.', s.text, case when s.code not in ('ended', 'interrupted') then pending_text(job.id) end),
    s.culprit
  from situation(job, only_tenant) s;
end
$$;

-- What was decided about a job and not carried out yet, as the end of a sentence about it; null if there is nothing.
create or replace function pending_text(id uuid) returns text
language sql stable
set search_path from current
as $$
  select format('; a request to %s it%s %s', d.decision, told(left(d.by, 500), null, left(d.note, 1000)), case
    when is_maintained() then 'is carried out in a moment'
    else 'was accepted, but no process does maintenance that would carry it out' end)
  from pending_decision(pending_text.id) d
$$;

-- What a job does or waits for, as the rest of a sentence about it. A queued job given here is the head of its target.
create or replace function situation(job jobs, only_tenant text)
returns table (code text, text text, culprit jsonb)
language plpgsql stable
set search_path from current
as $$
#variable_conflict use_column
declare
  lease leases;
  who   text;
  why   text;
begin
  if job.state = 'queued' then
    return query select r.code, r.text, r.culprit from reason_to_wait(job, only_tenant) r;
    return;
  end if;
  -- Hand-written SQL may have stored texts of any length. The answer must stay short.
  job.created_by := left(job.created_by, 500);
  job.last_error := left(job.last_error, 10000);
  select left(e.by, 500), left(e.note, 1000) into who, why
  from job_events e
  where e.job_id = job.id and (e.event = job.state or (job.state = 'canceled' and e.event = 'resolved'))
  order by e.id desc
  limit 1;
  case job.state
    when 'created' then
      code := 'held';
      text := format('is held since %s%s until somebody releases it', moment(job.created_at),
        ' by ' || single_line(job.created_by));
      culprit := jsonb_build_object('kind', 'client', 'by', job.created_by, 'since', job.created_at);
    when 'scheduled' then
      code := case when job.reason = 'snoozed' then 'snoozed' else 'scheduled' end;
      text := due_text(job.run_at, case code
        when 'snoozed' then 'was put off by its handler until %s' else 'is scheduled for %s' end);
      culprit := jsonb_build_object('kind', 'time', 'until', job.run_at);
      select a.error_message into why
      from job_attempts a
      where code = 'snoozed' and a.job_id = job.id and a.attempt = job.attempt and a.error_type = 'CircuitOpen';
      if found then
        code := 'circuit';
        text := due_text(job.run_at, format('waits for circuit %s%s, and is tried again at %%s',
          replace(quoted(why), '%', '%%'), replace(coalesce(
            (select circuit_text(c, only_tenant) from circuits c
             where c.name = why and c.tenant in ('', job.tenant) and c.state <> 'closed'
             order by c.tenant desc limit 1), ''), '%', '%%')));
        culprit := jsonb_build_object('kind', 'circuit', 'name', why, 'until', job.run_at);
      end if;
    when 'retry' then
      code := 'retry';
      text := due_text(job.run_at, format(
        'failed %s of %s times, last with %s, and runs again at %%s', job.failures, budget_of(job),
        replace(quoted(coalesce(job.last_error, job.reason)), '%', '%%')));
      culprit := jsonb_build_object('kind', 'time', 'until', job.run_at, 'error', job.last_error);
    when 'paused' then
      code := 'paused';
      text := format('was paused%s until somebody resumes it', told(who, job.updated_at, why));
      culprit := jsonb_build_object('kind', 'person', 'by', who, 'note', why, 'since', job.updated_at);
    when 'error' then
      code := 'error';
      text := format('failed with %s at %s and is held until somebody resumes or resolves it',
        quoted(coalesce(job.last_error, why, job.reason)), moment(job.updated_at));
      culprit := jsonb_build_object('kind', 'error', 'error', job.last_error, 'since', job.updated_at);
    when 'running' then
      select l.* into lease from leases l where l.job_id = job.id and l.attempt = job.attempt;
      lease.worker := left(lease.worker, 255);
      lease.interrupted_by := left(lease.interrupted_by, 500);
      lease.interrupt_note := left(lease.interrupt_note, 1000);
      code := case
        when lease.job_id is null then 'misplaced'
        when lease.expires_at < now() then 'lapsed'
        when lease.interrupt is not null then 'interrupted'
        else 'running' end;
      text := case code
        when 'misplaced' then 'runs without a lease, which maintenance mends'
        when 'lapsed' then format('ran on worker %s, whose lease lapsed at %s, %s', lease.worker, moment(lease.expires_at),
          case when is_maintained() then 'and is taken back by the next sweep'
            else 'but no process does maintenance that would take it back' end)
        else format('runs on worker %s since %s', lease.worker, moment(lease.claimed_at))
          || case when code = 'interrupted' then format(
            case when lease.verdict is null then ' and was told to %s%s' else ' and was %s%s, but its handler has not ended yet' end,
            coalesce(verdict_event(lease.verdict), told_interrupt(lease.interrupt)),
            told(lease.interrupted_by, null, lease.interrupt_note)) else '' end
        end;
      culprit := jsonb_build_object('kind', 'worker', 'id', lease.worker, 'since', lease.claimed_at,
        'interrupt', told_interrupt(lease.interrupt), 'by', lease.interrupted_by, 'note', lease.interrupt_note);
    when 'success' then
      code := 'ended';
      text := format('succeeded at %s', moment(job.finished_at));
    when 'dead' then
      code := 'ended';
      text := format('died at %s of %s', moment(job.finished_at), quoted(coalesce(job.last_error, job.reason)));
      culprit := jsonb_build_object('kind', 'error', 'error', job.last_error);
    else
      code := 'ended';
      text := format('was %s%s', case job.reason when 'resolved' then 'resolved' else 'canceled' end,
        told(who, job.finished_at, why));
      culprit := jsonb_build_object('kind', 'person', 'by', who, 'note', why);
  end case;
  culprit := nullif(jsonb_strip_nulls(culprit), '{}');
  return next;
end
$$;

-- Why a queued job was not claimed yet: the first reason that applies. A job with a target must be its head.
create or replace function reason_to_wait(job jobs, only_tenant text)
returns table (code text, text text, culprit jsonb)
language plpgsql stable
set search_path from current
as $$
#variable_conflict use_column
declare
  own_lane text := coalesce((select t.lane from job_types t where t.name = job.type), 'general');
  pause    controls;
  who      text;
  why      text;
  entry    ready;
begin
  if starts_with(job.type, 'holdfast.') then
    return query select 'request', case
      when is_maintained() then 'is a request that maintenance carries out in a moment'
      else 'is a request, but no process does maintenance that would carry it out' end,
      jsonb_build_object('kind', 'maintenance');
    return;
  end if;

  select c.* into pause
  from pausable_by(job.tenant, job.queue, job.type, own_lane) with ordinality as subject (kind, name, position)
  join controls c on c.kind = subject.kind and c.name = subject.name and c.paused_at is not null
  order by subject.position
  limit 1;
  if found then
    select left(p.by, 500), left(p.note, 1000) into who, why from shown_pause(pause, only_tenant) p;
    return query select pause.kind || '-paused', format('waits because %s%s', case
        when pause.kind = 'everything' then 'claiming was stopped everywhere'
        else format('its %s %s was paused', pause.kind, quoted(pause.name)) end,
        told(who, pause.paused_at, why)),
      jsonb_strip_nulls(jsonb_build_object('kind', pause.kind, 'name', pause.name, 'by', who, 'note', why,
        'since', pause.paused_at));
    return;
  end if;

  select r.* into entry
  from ready_entry(job.stream, job.priority, ready_seq(job)) r
  where r.job_id = job.id;
  if not found then
    return query select 'misplaced', 'has lost its place in the line, which maintenance mends',
      jsonb_build_object('kind', 'maintenance');
    return;
  end if;
  if not all_open(array[job.stream]) then
    return query select 'reopening', case
      when is_maintained() then 'came back after its queue had been idle, which is offered to workers again in a moment'
      else 'came back after its queue had been idle, but no process does maintenance that would offer it to workers again' end,
      jsonb_build_object('kind', 'maintenance');
    return;
  end if;
  return query
  select 'circuit', format('waits for circuit %s%s', quoted(c.name), circuit_text(c, only_tenant)),
    jsonb_strip_nulls(jsonb_build_object('kind', 'circuit', 'name', c.name, 'state', c.state, 'since', c.opened_at,
      'until', nullif(c.next_probe_at, 'infinity')))
  from job_types t
  join circuits c on circuit_key(c.tenant, c.name) = circuit_of(t, job.tenant) and c.state <> 'closed'
  where t.name = job.type;
  if found then
    return;
  end if;
  return query select f.code, f.text, f.culprit from full_gate(job) f;
  if found then
    return;
  end if;
  return query select u.code, u.text, u.culprit from unserved(job, own_lane) u;
  if found then
    return;
  elsif is_parked(entry.stream) then
    return query select 'starting', 'waited for a permit of its key and is let go on in a moment',
      jsonb_build_object('kind', 'maintenance');
    return;
  end if;
  return query
  select b.code, b.text, b.culprit from behind_others(job, own_lane, entry.rank, entry.seq, only_tenant) b;
end
$$;

-- What a circuit that is not closed is doing, as the rest of a sentence; tenants are not told who opened it.
create or replace function circuit_text(circuit circuits, only_tenant text) returns text
language sql stable
set search_path from current
as $$
  select case
    when circuit.state = 'half_open' then ', which is tried with a few jobs now'
    when circuit.next_probe_at = 'infinity' then format(', which was opened by hand%s until somebody resets it', by_hand.who)
    when circuit.forced_by is not null then
      format(', which was opened by hand%s and is tried again at %s', by_hand.who, moment(circuit.next_probe_at))
    else format(', which is open since %s and is tried again at %s', moment(circuit.opened_at), moment(circuit.next_probe_at))
  end
  from (
    select case when only_tenant is null then
      told(left(circuit.forced_by, 500), null, left(circuit.forced_note, 1000)) end as who) by_hand
$$;

-- The first limit or rate that has no permit left for the job; no row if there is none. Jobs that were running when a
-- limit was set count, although they have no permit.
create or replace function full_gate(job jobs) returns table (code text, text text, culprit jsonb)
language sql stable
set search_path from current
as $$
  with gate as (
    select * from gates_of(job.stream)
    union all
    select * from key_gates(job.type, job.tenant, job.payload)
  ), used as (
    select gate.*, permit.count, permit.oldest, case
        when gate.gate = gate_of(gate.kind, gate.name, null) then greatest(permit.count, (
          select count(*)
          from leases l
          join streams s on s.id = l.stream
          where case gate.kind when 'queue' then s.queue when 'tenant' then s.tenant else s.type end = gate.name))
        else permit.count
      end as taken
    from gate
    cross join lateral (
      select count(*) as count, min(p.granted_at) as oldest
      from permits p
      cross join lateral permit_state(p.job_id, p.attempt, p.granted_at, gate.seconds, now()) state
      where p.gate = gate.gate and p.slot <= gate.capacity and not state.free) permit
  )
  select case when u.seconds is null then 'limit' else 'rate' end,
    case
      when u.seconds is null then
        format('waits because the limit of its %s %s%s is reached: %s of %s run', u.kind, quoted(u.name),
          ' for ' || quoted(u.key), u.taken, u.capacity)
      else
        format('waits because the rate of its %s %s%s, %s, is used up: the next may start at %s', u.kind, quoted(u.name),
          ' for ' || quoted(u.key), written_rate(u.capacity, u.seconds),
          moment(u.oldest + make_interval(secs => u.seconds)))
    end,
    jsonb_strip_nulls(jsonb_build_object('kind', u.kind, 'name', u.name, 'key', u.key, 'gate', u.gate, 'taken', u.taken,
      'limit', u.capacity, 'seconds', u.seconds))
  from used u
  where u.taken >= u.capacity
  order by u.seconds nulls first, u.gate
  limit 1
$$;

-- Why no live worker can run the job; no row if one could, however busy it is now.
create or replace function unserved(job jobs, lane text) returns table (code text, text text, culprit jsonb)
language sql stable
set search_path from current
as $$
  with able as (
    select
      job.type = any (w.types) as knows,
      coalesce(job.queue = any (w.queues), true) as queue,
      coalesce(job.tenant = any (w.tenants), true) as tenant,
      w.kind = 'remote' or usable_slots(w.lanes, unserved.lane) > 0 as lane,
      not w.draining and (w.kind <> 'remote' or w.quiet_at is null) as stays
    from live_workers() w
  ), counted as (
    select
      count(*) as alive,
      count(*) filter (where knows) as knowing,
      count(*) filter (where knows and queue) as of_queue,
      count(*) filter (where knows and queue and tenant) as of_tenant,
      count(*) filter (where knows and queue and tenant and lane) as of_lane,
      count(*) filter (where knows and queue and tenant and lane and stays) as staying
    from able
  )
  select fault.code, 'waits because ' || fault.text, fault.culprit
  from counted c
  cross join lateral (
    values
      (c.alive, 'no-worker', 'no worker is alive', jsonb_build_object('kind', 'workers')),
      (c.knowing, 'type-unserved', format('no live worker knows its type %s', quoted(job.type)),
        jsonb_build_object('kind', 'type', 'name', job.type)),
      (c.of_queue, 'queue-unserved', format('no live worker that knows its type serves its queue %s', quoted(job.queue)),
        jsonb_build_object('kind', 'queue', 'name', job.queue)),
      (c.of_tenant, 'tenant-unserved',
        format('no live worker that knows its type serves its tenant %s', quoted(job.tenant)),
        jsonb_build_object('kind', 'tenant', 'name', job.tenant)),
      (c.of_lane, 'lane-unserved', format('no live worker that knows its type has slots for its lane %s', unserved.lane),
        jsonb_build_object('kind', 'lane', 'name', unserved.lane)),
      (c.staying, 'draining', 'every live worker that could run it drains', jsonb_build_object('kind', 'workers'))
  ) as fault (workers, code, text, culprit)
  where fault.workers = 0
  limit 1
$$;

-- How many slots can run jobs of a lane: general slots run anything, others only types that are declared for them.
create or replace function usable_slots(lanes jsonb, lane text) returns integer
language sql immutable
as $$
  select coalesce((lanes ->> 'general')::numeric, 0)::integer
    + case when lane <> 'general' then coalesce((lanes ->> lane)::numeric, 0)::integer else 0 end
$$;

-- Whether the workers that could run the job are busy, and how many jobs of its tenant and lane are before it, counted
-- up to 10 000. Jobs that are paused or at a limit do not count. Jobs of other tenants are not before it: they share
-- the slots (see shares.sql). A tenant is told neither about others nor how large or busy the installation is.
create or replace function behind_others(job jobs, lane text, rank integer, seq bigint, only_tenant text)
returns table (code text, text text, culprit jsonb)
language plpgsql stable
set search_path from current
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
#variable_conflict use_column
declare
  slots  bigint;
  free   bigint;
  hosts  bigint;
  shut   integer[] := shut_streams(array(select s.id from streams s where s.closed_in is null));
  before bigint;
  rivals bigint;
  crowd  text;
  rest   text;
  whole  boolean := only_tenant is null;
begin
  with host as (
    -- Remote workers have no slots: one that runs something counts as busy.
    select w.id, w.lanes,
      case w.kind
        when 'remote' then greatest(1, (select count(*) from leases l where l.worker = w.id))::integer
        else usable_slots(w.lanes, behind_others.lane)
      end as slots
    from live_workers() w
    where job.type = any (w.types)
      and coalesce(job.queue = any (w.queues), true)
      and coalesce(job.tenant = any (w.tenants), true)
      and not w.draining and (w.kind <> 'remote' or w.quiet_at is null)
  ), claimed as (
    select l.worker, coalesce(t.lane, 'general') as lane, count(*) as jobs
    from leases l
    join streams s on s.id = l.stream
    left join job_types t on t.name = s.type
    group by 1, 2
  ), taken as (
    -- Jobs of other lanes take general slots as far as their own do not suffice.
    select host.id,
      sum(case
        when claimed.lane in ('general', behind_others.lane) then claimed.jobs
        else greatest(0, claimed.jobs - coalesce((host.lanes ->> claimed.lane)::numeric, 0))
      end) as jobs
    from host
    join claimed on claimed.worker = host.id
    group by host.id
  )
  select coalesce(sum(host.slots), 0), count(*), coalesce(sum(greatest(0, host.slots - coalesce(taken.jobs, 0))), 0)
  into slots, hosts, free
  from host
  left join taken on taken.id = host.id
  where host.slots > 0;

  with line as materialized (
    select s.id, s.tenant
    from streams s
    where s.queue <> 'holdfast'
      and s.closed_in is null
      and (whole or s.tenant = job.tenant)
      and s.id <> all (shut)
      and coalesce((select t.lane from job_types t where t.name = s.type), 'general') = behind_others.lane
      and exists (
        select from live_workers() w
        where s.type = any (w.types)
          and coalesce(s.queue = any (w.queues), true)
          and coalesce(s.tenant = any (w.tenants), true))
  )
  select
    (select count(*)
     from (
       select
       from line
       cross join lateral (
         select
         from ready r
         where r.stream = line.id and (r.rank, r.seq) < (behind_others.rank, behind_others.seq)) entry
       where line.tenant = job.tenant
       limit 10001) counted),
    (select count(distinct line.tenant)
     from line
     where line.tenant <> job.tenant and exists (select from ready r where r.stream = line.id))
  into before, rivals;
  crowd := case
    when before = 0 then null
    else format('%s job%s of its tenant stand%s before it', case when before > 10000 then 'more than 10000' else before::text end,
      case when before = 1 then '' else 's' end, case when before = 1 then 's' else '' end) end;
  rest := case
    when rivals = 0 then ''
    else format('; %s other tenant%s share%s the slots by weight', rivals, case when rivals = 1 then '' else 's' end,
      case when rivals = 1 then 's' else '' end) end;

  if free <= 0 then
    return query select 'busy', concat_ws(' and ', format('waits because %s busy', case
        when not whole then 'the workers that may run it are'
        when slots = 1 then 'the one slot of the worker that may run it is'
        else format('all %s slots of the workers that may run it (%s alive) are', slots, hosts) end), crowd) || rest,
      jsonb_strip_nulls(jsonb_build_object(
        'kind', 'lane', 'name', behind_others.lane, 'slots', case when whole then slots end, 'before', before,
        'tenants', nullif(rivals, 0)));
  elsif before > 0 then
    return query select 'behind', 'waits because ' || crowd || rest,
      jsonb_strip_nulls(jsonb_build_object(
        'kind', 'lane', 'name', behind_others.lane, 'slots', case when whole then slots end, 'before', before,
        'tenants', nullif(rivals, 0)));
  else
    return query select 'starting', 'will start in a moment', null::jsonb;
  end if;
end
$$;

-- How many failures end a job.
create or replace function budget_of(job jobs) returns integer
language sql stable
set search_path from current
as $$
  select attempts_allowed(
    job.max_attempts, (select t.max_attempts from job_types t where t.name = job.type),
    setting('MAX_ATTEMPTS_DEFAULT')::integer)
$$;

-- Whether some process is the leader, which promotes, sweeps and carries out requests.
create or replace function is_maintained() returns boolean
language sql security definer stable
set search_path from current
as $$
  select exists (select from leaders l where l.expires_at > now())
$$;

-- What will happen at a time, or should have happened already.
create or replace function due_text(run_at timestamptz, template text) returns text
language sql stable
set search_path from current
as $$
  select case
    when run_at > now() then format(template, moment(run_at))
    when is_maintained() then format(template, moment(run_at)) || ', which is now'
    else format(template, moment(run_at)) || ', but no process does maintenance'
  end
$$;

-- Who did something, when and why, as far as it is known.
create or replace function told(by text, at timestamptz, note text) returns text
language sql immutable
set search_path from current
as $$
  select coalesce(' by ' || single_line(by), '') || coalesce(' at ' || moment(at), '')
    || coalesce(' (' || quoted(nullif(note, '')) || ')', '')
$$;

-- A moment as it is written in a sentence.
create or replace function moment(at timestamptz) returns text
language sql immutable
as $$
  select to_char(at at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS') || ' UTC'
$$;

-- A text of a person as it is quoted in a sentence.
create or replace function quoted(value text) returns text
language sql immutable
set search_path from current
as $$
  select '"' || single_line(value) || '"'
$$;

-- The first line of a text, cut to 200 characters.
create or replace function single_line(value text) returns text
language sql immutable
as $$
  select case when length(line) > 200 then left(line, 199) || '…' else line end
  from split_part(btrim(replace(value, e'\r', '')), e'\n', 1) as line
$$;

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
    where h.tenant = job.tenant and h.target = job.target and not has_ended(j.state);
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
            else 'but no process does maintenance to take it back' end)
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
  if is_request(job.type) then
    return query select 'request', case
      when is_maintained() then 'is a request that maintenance carries out in a moment'
      else 'is a request, but no process does maintenance to carry it out' end,
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
      when is_maintained() then 'came back after its queue had been idle; the queue is offered to workers again in a moment'
      else 'came back after its queue had been idle, but no process does maintenance to offer it to workers again' end,
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
    return query select 'starting', 'waited for a permit of its key and starts in a moment',
      jsonb_build_object('kind', 'maintenance');
    return;
  end if;
  return query
  select b.code, b.text, b.culprit from behind_others(job, own_lane, entry.rank, entry.seq, only_tenant) b;
end
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

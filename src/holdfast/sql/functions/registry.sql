-- Workers: what they publish about themselves, and which streams they are offered. Moves: none. Roles: worker.

-- Register a worker, with its slots per lane, its job types and its queues.
create or replace function register_worker(
  id text, host text, pid integer, version text, lanes jsonb, types text[], queues text[]
) returns void
language sql security definer
set search_path from current
as $$
  select check_worker(id, host, version, types, queues), check_lanes(lanes);
  insert into workers as w (id, host, pid, version, lanes, types, queues)
  values (register_worker.id, register_worker.host, register_worker.pid, register_worker.version,
    register_worker.lanes, register_worker.types, register_worker.queues)
  on conflict on constraint workers_pkey do update set heartbeat_at = now()
$$;

-- Refuse workers that could not be listed: `holdfast workers` and the dashboard show all workers at once. The same
-- check serves both ways to register, and arguments that are left out.
create or replace function check_worker(id text, host text, version text, types text[], queues text[], tenants text[] default null)
returns void
language plpgsql immutable
set search_path from current
as $$
declare
  wrong text;
begin
  wrong := case
    when coalesce(length(id), 0) not between 1 and 255 then 'the name of a worker must have 1 to 255 characters'
    when host is null or length(host) > 255 then 'the host of a worker must be a text of at most 255 characters'
    when version is null or length(version) > 255 then 'the version of a worker must be a text of at most 255 characters'
    when types is null then 'a worker must name its job types'
  end;
  if wrong is null then
    select case
        when cardinality(list.names) > 10000 then format('a worker may name at most 10000 %s', list.what)
        else format('%s of a worker must be names of 1 to 200 characters', list.what)
      end into wrong
    from (values ('job types', types), ('queues', queues), ('tenants', tenants)) as list (what, names)
    where cardinality(list.names) > 10000
      or exists (select from unnest(list.names) as name where coalesce(length(name), 0) not between 1 and 200)
    limit 1;
  end if;
  if wrong is not null then
    raise exception '%', wrong using errcode = 'HF002';
  end if;
end
$$;

-- Refuse slots that are not counts: adding up the slots of all workers would fail.
create or replace function check_lanes(lanes jsonb) returns void
language plpgsql immutable
set search_path from current
as $$
declare
  wrong text;
begin
  if jsonb_typeof(lanes) is distinct from 'object' then
    raise exception 'lanes must be an object with the slots of each lane' using errcode = 'HF002';
  end if;
  if (select count(*) from jsonb_object_keys(lanes)) > 1000
    or exists (select from jsonb_object_keys(lanes) as name where length(name) not between 1 and 200)
  then
    raise exception 'lanes must have names of 1 to 200 characters, and at most 1000 of them' using errcode = 'HF002';
  end if;
  select lane.key into wrong
  from jsonb_each(lanes) lane
  where case jsonb_typeof(lane.value)
      when 'number' then bounds_fault('slots', 'slots', lane.value::numeric) is not null
      else true
    end
  limit 1;
  if wrong is not null then
    raise exception 'the slots of lane % must be a whole number from 0 to %', wrong, highest('slots') using errcode = 'HF002';
  end if;
end
$$;

-- Register a worker as `register_worker` does, with the tenants that it serves; null for all.
create or replace function enlist_worker(
  id text, host text, pid integer, version text, lanes jsonb, types text[], queues text[], tenants text[]
) returns void
language sql security definer
set search_path from current
as $$
  select check_worker(id, host, version, types, queues, tenants);
  select register_worker(
    enlist_worker.id, enlist_worker.host, enlist_worker.pid, enlist_worker.version, enlist_worker.lanes,
    enlist_worker.types, enlist_worker.queues);
  update workers w set tenants = enlist_worker.tenants
  where w.id = enlist_worker.id and w.tenants is distinct from enlist_worker.tenants
$$;

-- Register a worker and publish its job types, so that payloads which one of its handlers accepts are not refused.
create or replace function enlist(
  id text, host text, pid integer, version text, lanes jsonb, types text[], queues text[], tenants text[], definitions jsonb
) returns void
language sql security definer
set search_path from current
as $$
  select publish_types(enlist.definitions);
  select enlist_worker(
    enlist.id, enlist.host, enlist.pid, enlist.version, enlist.lanes, enlist.types, enlist.queues, enlist.tenants);
  update workers w
  set shapes = (select jsonb_object_agg(d.type, d.digest) from declared_shapes(enlist.definitions) d)
  where w.id = enlist.id
$$;

-- Record that a worker is alive; no row if it is unknown.
create or replace function beat(id text, draining boolean) returns boolean
language sql security definer
set search_path from current
as $$
  update workers w set heartbeat_at = now(), draining = beat.draining where w.id = beat.id returning true
$$;

-- Record that a worker is alive, and how many slots of each lane it uses.
create or replace function beat_with_slots(id text, draining boolean, used jsonb) returns boolean
language sql security definer
set search_path from current
as $$
  select check_lanes(used);
  update workers w
  set heartbeat_at = now(), draining = beat_with_slots.draining, used = beat_with_slots.used
  where w.id = beat_with_slots.id
  returning true
$$;

-- Record that a worker has left in good order.
create or replace function unregister_worker(id text) returns void
language sql security definer
set search_path from current
as $$
  delete from beginnings b where b.worker = unregister_worker.id;
  delete from workers w where w.id = unregister_worker.id
$$;

-- Forget workers that have been silent for a day, a thousand at a time, and shapes that no worker has any more. None of
-- their jobs depends on it.
create or replace function forget_workers() returns integer
language sql security definer
set search_path from current
as $$
  select forget_shapes();
  with gone as (
    delete from workers w
    where w.ctid = any (array(
      select s.ctid from workers s where s.heartbeat_at < now() - interval '1 day' limit 1000 for update skip locked))
    returning w.id
  ), also as (
    delete from beginnings b using gone where b.worker = gone.id
  )
  select count(*)::integer from gone
$$;

-- The streams from which a worker may claim. Null queues or tenants mean all of them. Streams of types that begin
-- with "holdfast." belong to maintenance.
create or replace function eligible_streams(types text[], queues text[] default null, tenants text[] default null)
returns table (id integer, tenant text, queue text, type text)
language sql security definer stable
set search_path from current
as $$
  select s.id, s.tenant, s.queue, s.type
  from streams s
  where s.type = any (types)
    and s.closed_in is null
    and not is_request(s.type)
    and (queues is null or s.queue = any (queues))
    and (tenants is null or s.tenant = any (tenants))
$$;

-- The streams from which a worker may claim, without paused ones, and whether they have limits.
create or replace function open_streams(types text[], queues text[] default null, tenants text[] default null)
returns table (id integer, tenant text, queue text, type text, limited boolean, keyed boolean)
language sql security definer stable
set search_path from current
as $$
  with line as materialized (
    select s.id, s.tenant, s.queue, s.type, t.lane, circuit_of(t, s.tenant) as circuit
    from eligible_streams(open_streams.types, open_streams.queues, open_streams.tenants) s
    left join job_types t on t.name = s.type
  ), rule as materialized (
    select l.kind, l.name, l.keyed from limits_in_force() l
  ), shut as materialized (
    select line.id
    from line
    cross join lateral pausable_by(line.tenant, line.queue, line.type, line.lane) subject
    join (
      select c.kind, c.name from controls c where c.paused_at is not null or c.limit_count = 0
    ) stop on stop.kind = subject.kind and stop.name = subject.name
  )
  select line.id, line.tenant, line.queue, line.type,
    num_nonnulls(of_type.name, of_queue.name, of_tenant.name, of_circuit.name) > 0, coalesce(of_type.keyed, false)
  from line
  left join rule of_type on of_type.kind = 'type' and of_type.name = line.type
  left join rule of_queue on of_queue.kind = 'queue' and of_queue.name = line.queue
  left join rule of_tenant on of_tenant.kind = 'tenant' and of_tenant.name = line.tenant
  left join controls of_circuit on of_circuit.kind = 'circuit' and of_circuit.name = line.circuit
  where not exists (select from shut where shut.id = line.id)
$$;

-- The streams from which a worker may claim, for a worker that says from which of them it has claimed since its last
-- call. Those are in use, even if they are empty whenever maintenance looks.
create or replace function offer(types text[], queues text[], tenants text[], served integer[])
returns table (id integer, tenant text, queue text, type text, limited boolean, keyed boolean)
language plpgsql security definer
set search_path from current
as $$
#variable_conflict use_column
begin
  if cardinality(served) > 0 then
    perform serve_streams(served);
  end if;
  return query select o.* from open_streams(offer.types, offer.queues, offer.tenants) o;
end
$$;

-- Whether a worker for these streams has anything left to do: a job that is ready, running, retrying or snoozed (among
-- the next thousand that are due), a target without a head, or a request. Jobs that are scheduled for later, or wait
-- behind a paused job, do not count.
create or replace function work_left(streams integer[]) returns boolean
language sql security definer stable
set search_path from current
set enable_seqscan = off
as $$
  select exists (select from unnest(streams) s (id) join lateral (select from ready r where r.stream = any (entry_streams(s.id)) limit 1) r on true)
    or exists (select from leases l where l.stream = any (streams))
    or exists (
      select from (select d.job_id from due d order by d.run_at limit 1000) soon
      join jobs j on j.id = soon.job_id
      where (j.state = 'retry' or j.reason = 'snoozed') and j.stream = any (streams))
    or exists (select from calls)
    or exists (select from unnest(request_streams()) s (id) join lateral (select from ready r where r.stream = s.id limit 1) r on true)
$$;

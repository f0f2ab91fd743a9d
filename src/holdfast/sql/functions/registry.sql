-- What processes publish about themselves: workers, job types, leaders. Moves: none. Roles: worker.

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
    when coalesce(length(id), 0) not between 1 and 255 then 'a worker is named by 1 to 255 characters'
    when host is null or length(host) > 255 then 'the host of a worker must be a text of at most 255 characters'
    when version is null or length(version) > 255 then 'the version of a worker must be a text of at most 255 characters'
    when types is null then 'a worker must name its job types'
  end;
  if wrong is null then
    select case
        when cardinality(list.names) > 10000 then format('a worker names at most 10000 %s', list.what)
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

-- Publish what the code of a worker declares about its job types.
create or replace function publish_types(definitions jsonb) returns void
language sql security definer
set search_path from current
as $$
  select check_types(definitions);
  select publish_shapes(definitions);
  insert into job_types as t (
    name, queue, lane, max_attempts, backoff_base, backoff_factor, backoff_max, backoff_jitter, timeout_seconds,
    lease_seconds, on_failure, version, payload_schema, limit_count, limit_key, rate_count, rate_seconds, rate_key)
  select
    d.name, d.queue, d.lane, d.max_attempts, d.backoff_base, d.backoff_factor, d.backoff_max, d.backoff_jitter,
    d.timeout_seconds, d.lease_seconds, d.on_failure, d.version, d.payload_schema,
    case when known then d.limit_count else t.limit_count end, case when known then d.limit_key else t.limit_key end,
    case when known then d.rate_count else t.rate_count end, case when known then d.rate_seconds else t.rate_seconds end,
    case when known then d.rate_key else t.rate_key end
  from jsonb_array_elements(definitions) as definition
  -- Older releases declare no limits.
  cross join lateral (select definition ?| array['limit_count', 'rate_count']) as release (known)
  cross join lateral jsonb_to_record(definition) as d (
    name text, queue text, lane text, max_attempts integer, backoff_base real, backoff_factor real,
    backoff_max real, backoff_jitter real, timeout_seconds real, lease_seconds real, on_failure text,
    version integer, payload_schema jsonb, limit_count integer, limit_key text, rate_count integer,
    rate_seconds real, rate_key text)
  left join job_types t on t.name = d.name
  order by d.name
  on conflict on constraint job_types_pkey do update
    set queue = excluded.queue, lane = excluded.lane, max_attempts = excluded.max_attempts,
      backoff_base = excluded.backoff_base, backoff_factor = excluded.backoff_factor,
      backoff_max = excluded.backoff_max, backoff_jitter = excluded.backoff_jitter,
      timeout_seconds = excluded.timeout_seconds, lease_seconds = excluded.lease_seconds,
      on_failure = excluded.on_failure, version = excluded.version,
      payload_schema = excluded.payload_schema, limit_count = excluded.limit_count,
      limit_key = excluded.limit_key, rate_count = excluded.rate_count, rate_seconds = excluded.rate_seconds,
      rate_key = excluded.rate_key, updated_at = now()
    where (t.queue, t.lane, t.max_attempts, t.backoff_base, t.backoff_factor, t.backoff_max, t.backoff_jitter,
        t.timeout_seconds, t.lease_seconds, t.on_failure, t.version, t.payload_schema, t.limit_count, t.limit_key,
        t.rate_count, t.rate_seconds, t.rate_key)
      is distinct from (excluded.queue, excluded.lane, excluded.max_attempts, excluded.backoff_base,
        excluded.backoff_factor, excluded.backoff_max, excluded.backoff_jitter, excluded.timeout_seconds,
        excluded.lease_seconds, excluded.on_failure, excluded.version, excluded.payload_schema,
        excluded.limit_count, excluded.limit_key, excluded.rate_count, excluded.rate_seconds, excluded.rate_key)
    and excluded.version >= t.version;
  -- Older releases declare no circuit. The statement above has locked the rows, in the order of their names.
  update job_types t
  set circuit = definition ->> 'circuit', circuit_per_tenant = (definition ->> 'circuit_per_tenant')::boolean,
    updated_at = now()
  from jsonb_array_elements(definitions) as definition
  where t.name = definition ->> 'name'
    and definition ? 'circuit'
    and (definition ->> 'version')::integer >= t.version
    and (t.circuit, t.circuit_per_tenant)
      is distinct from (definition ->> 'circuit', (definition ->> 'circuit_per_tenant')::boolean)
$$;

-- Refuse a declaration that is incomplete, or whose numbers or texts are out of bounds, and name it.
create or replace function check_types(definitions jsonb) returns void
language plpgsql immutable
set search_path from current
as $$
declare
  wrong text;
begin
  if jsonb_typeof(definitions) is distinct from 'array' then
    raise exception 'job types must be a list of objects' using errcode = 'HF002';
  elsif jsonb_array_length(definitions) > 10000 then
    raise exception 'at most 10000 job types are published at once' using errcode = 'HF002';
  end if;
  select case
      when jsonb_typeof(definition) <> 'object' then 'job types must be a list of objects'
      when length(definition ->> 'name') between 1 and 200 and jsonb_typeof(definition -> 'name') = 'string' then
        format('job type %s: %s', definition ->> 'name', case
          when field.most is null then format('%s must be a number', field.name)
          when field.required then format('%s must be a string of 1 to %s characters', field.name, field.most)
          else format('%s must be a string of at most %s characters', field.name, field.most)
        end)
      else 'the name of a job type must be a string of 1 to 200 characters'
    end into wrong
  from jsonb_array_elements(definitions) as definition
  cross join (values
    ('name', 200, true), ('queue', 200, true), ('lane', 200, true), ('on_failure', 200, true), ('limit_key', 1000, false),
    ('rate_key', 1000, false), ('version', null, true), ('backoff_base', null, false), ('backoff_factor', null, false),
    ('backoff_max', null, false), ('backoff_jitter', null, false))
    as field (name, most, required)
  where jsonb_typeof(definition) <> 'object'
    or case coalesce(jsonb_typeof(definition -> field.name), 'null')
      when 'null' then field.required
      when 'string' then field.most is null
        or length(definition ->> field.name) not between field.required::integer and field.most
      else field.most is not null
    end
  limit 1;
  if wrong is not null then
    raise exception '%', wrong using errcode = 'HF002';
  end if;
  select format('job type %s: %s', definition ->> 'name', case jsonb_typeof(definition -> field.name)
      when 'number' then bounds_fault(field.name, field.bound, (definition ->> field.name)::numeric)
      else format('%s must be a number', field.name)
    end) into wrong
  from jsonb_array_elements(definitions) as definition
  cross join (values
    ('max_attempts', 'max_attempts'), ('version', 'version'), ('lease_seconds', 'lease'), ('timeout_seconds', 'timeout'),
    ('backoff_base', 'backoff_base'), ('backoff_factor', 'backoff_factor'), ('backoff_max', 'backoff_max'),
    ('backoff_jitter', 'backoff_jitter'), ('limit_count', 'limit'), ('rate_count', 'limit'), ('rate_seconds', 'rate'))
    as field (name, bound)
  where case coalesce(jsonb_typeof(definition -> field.name), 'null')
      when 'null' then false
      when 'number' then bounds_fault(field.name, field.bound, (definition ->> field.name)::numeric) is not null
      else true
    end
  limit 1;
  if wrong is null then
    select format('job type %s: a rate needs both rate_count and rate_seconds', definition ->> 'name') into wrong
    from jsonb_array_elements(definitions) as definition
    where num_nulls(definition ->> 'rate_count', definition ->> 'rate_seconds') = 1
    limit 1;
  end if;
  if wrong is null then
    select format('job type %s: %s', definition ->> 'name', case
        when definition ->> 'on_failure' not in ('retry', 'hold') then 'on_failure must be retry or hold'
        when length(definition ->> 'payload_shape') > 131072 then 'payload_shape must have at most 131072 characters'
        when definition ->> 'circuit' is not null then coalesce(
          circuit_name_fault(definition ->> 'circuit', ''), 'circuit_per_tenant must be true or false')
        else 'payload_schema must have at most 1048576 characters'
      end) into wrong
    from jsonb_array_elements(definitions) as definition
    where definition ->> 'on_failure' not in ('retry', 'hold') or length(definition ->> 'payload_schema') > 1048576
      or length(definition ->> 'payload_shape') > 131072
      or (definition ->> 'circuit' is not null and (
        circuit_name_fault(definition ->> 'circuit', '') is not null
        or jsonb_typeof(definition -> 'circuit_per_tenant') is distinct from 'boolean'))
    limit 1;
  end if;
  if wrong is not null then
    raise exception '%', wrong using errcode = 'HF002';
  end if;
end
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
    and not starts_with(s.type, 'holdfast.')
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

-- Become, stay or learn the leader: one row with holder, term and expiry, on the database's clock. That clock can be
-- set back, again and again. So a candidate also measures by its own clock how long it has seen the same number of
-- renewals (`seen_renewals`, `seen_seconds`): after a whole term without a renewal it takes over, whatever the expiry
-- says. For a candidate of an older release, which does not measure, an expiry further ahead than a whole term is
-- brought nearer. While somebody else has locked the row, nothing can be written, but the duties must go on. The holder
-- that the row names goes on leading, and two terms after its term has ended, every candidate leads. Several leaders
-- are harmless. With each call the candidate reports for how long it has been in touch and what goes wrong. The answer
-- says how the database is doing: the clock, when the server started, and whether there may be work for which no
-- notification was sent (see `wake`).
create or replace function preside(
  name text, candidate text, seconds double precision, patience_seconds double precision default 0,
  report jsonb default null, seen_renewals bigint default null, seen_seconds double precision default 0
) returns table (leads boolean, clock timestamptz, server_started timestamptz, unheard boolean, renewals bigint)
language plpgsql security definer
set search_path from current
set lock_timeout = '200ms'
as $$
#variable_conflict use_column
declare
  length interval;
  before record;
  step   double precision;
begin
  perform check_seconds('seconds', 'term', array[seconds]);
  perform check_seconds('patience_seconds and seen_seconds', 'elapsed', array[preside.patience_seconds, seen_seconds]);
  length := make_interval(secs => seconds);
  server_started := pg_postmaster_start_time();
  begin
    perform from leaders l where l.name = preside.name for update;
  exception
    when lock_not_available then
      select l.holder = candidate or l.expires_at < now() - 2 * length
          or (l.renewals = seen_renewals and seen_seconds > 3 * seconds),
        l.renewals
      into leads, preside.renewals
      from leaders l
      where l.name = preside.name;
      leads := coalesce(leads, false);
      clock := clock_timestamp();
      unheard := unheard('duty');
      return next;
      return;
  end;
  update leaders l
  set expires_at = now() + length
  where seen_renewals is null
    and l.name = preside.name and l.holder <> candidate and l.expires_at > now() + length + interval '1 second';
  select l.renewed_at, l.place, coalesce(l.renewals = seen_renewals, false) as measured into before
  from leaders l
  where l.name = preside.name;
  update leaders l
  set holder = candidate,
    term = l.term + case when l.holder = candidate then 0 else 1 end,
    expires_at = now() + length,
    renewed_at = now(),
    renewals = l.renewals + 1,
    place = nextval('places'),
    patience_seconds = preside.patience_seconds,
    report = preside.report
  where l.name = preside.name
    and (l.holder = candidate or l.expires_at < now() or (l.renewals = seen_renewals and seen_seconds >= seconds));
  leads := found;
  if leads then
    -- A candidate that has not seen the last renewal cannot tell a step ahead from a time without a leader.
    step := extract(epoch from now() - before.renewed_at)::double precision
      - case when before.measured then seen_seconds else 0 end;
    if (now() < before.renewed_at and step < -0.25)
      or (before.measured and step < -0.25 - 0.1 * seen_seconds)
      or step > (case when before.measured then 10 else 60 end)
    then
      perform note_clock_step(step, case when before.measured or step < 0 then before.place end);
    end if;
  end if;
  if not leads then
    insert into leaders (name, holder, term, expires_at, renewed_at, place)
    values (preside.name, candidate, 1, now() + length, now(), nextval('places'))
    on conflict do nothing;
    leads := found;
  end if;
  select l.renewals into preside.renewals from leaders l where l.name = preside.name;
  clock := clock_timestamp();
  unheard := unheard('duty');
  return next;
end
$$;

-- Become or stay the leader, for leaders of older releases.
create or replace function lead(name text, candidate text, seconds double precision) returns boolean
language sql security definer
set search_path from current
as $$
  select p.leads from preside(lead.name, lead.candidate, lead.seconds) p
$$;

-- For how long the leader has been in touch with the database; 0 if there is no leader, or if its last renewal does not
-- fit the clock.
create or replace function leader_patience() returns double precision
language sql stable
set search_path from current
as $$
  select coalesce(max(l.patience_seconds), 0)
  from leaders l
  where l.name = 'maintenance'
    and l.renewed_at between clock_timestamp() - interval '4 seconds' and clock_timestamp() + interval '1 second'
$$;

-- Give up leadership, so that another process can take it at once.
create or replace function resign(name text, candidate text) returns void
language sql security definer
set search_path from current
as $$
  update leaders l set expires_at = '-infinity', patience_seconds = 0 where l.name = resign.name and l.holder = candidate;
  select pg_notify(current_schema() || '.duty', '');
$$;

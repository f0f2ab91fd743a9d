-- Which limits and pauses exist, and which streams they shut. Claims call these functions only if somebody paused or
-- limited something; plain jobs never come here. Moves: none.
--
-- A limit is a gate with numbered permits: see permits.sql. A job whose key has no free permit is parked: see
-- parking.sql.
--
-- The planner inlines functions without settings of their own (`limits_of`, `gates_of` …) into their callers, which
-- costs nothing. A setting, a volatile function or an argument that contains a query would prevent that.

-- A rate as people write it, the same as in Python (`Rate.__str__`): 10/s, 100/min, 5/30s. Pure.
create or replace function written_rate(count integer, seconds double precision) returns text
language sql immutable parallel safe
as $$
  select format('%s/%s%s', count, nullif((seconds / unit.length)::text, '1'), unit.name)
  from (values (86400, 'd'), (3600, 'h'), (60, 'min'), (1, 's')) as unit (length, name)
  where unit.length = 1 or mod(seconds::numeric, unit.length) = 0
  order by unit.length desc
  limit 1
$$;

-- The subjects by which a job can be limited.
create or replace function limitable_by(tenant text, queue text, type text) returns table (kind text, name text)
language sql immutable parallel safe
as $$
  select subject.kind, subject.name
  from (values ('tenant', tenant), ('queue', queue), ('type', type)) as subject (kind, name)
$$;

-- The subjects by which a job can be paused, in the order in which they are named as the reason for waiting. A type
-- without a lane is in the general one.
create or replace function pausable_by(tenant text, queue text, type text, lane text)
returns table (kind text, name text)
language sql immutable parallel safe
as $$
  select subject.kind, subject.name
  from (values
    ('everything', ''), ('tenant', tenant), ('queue', queue), ('type', type), ('lane', coalesce(lane, 'general'))
  ) as subject (kind, name)
$$;

-- The rule: which limits a subject has, given what operators set for it and, for a job type, what its code declares.
-- Operators' values take precedence. `limit_count` jobs may run at once, and `rate_count` may start within
-- `rate_seconds`. If a type names a field of its payload (a path, `limit_key` or `rate_key`), the limit applies not to
-- the type as a whole, but to each value of that field: `key_limit_count`, `key_rate_count`.
create or replace function limits_by(decided controls, declared job_types)
returns table (
  limit_count integer, rate_count integer, rate_seconds real, key_limit_count integer, key_rate_count integer,
  limit_key text, rate_key text, keyed boolean, limited boolean)
language sql immutable parallel safe
as $$
  select
    case when declared.limit_key is null then most.at_once end,
    case when declared.rate_key is null then most.starts end,
    coalesce(decided.rate_seconds, declared.rate_seconds),
    case when declared.limit_key is not null then most.at_once end,
    case when declared.rate_key is not null then most.starts end,
    declared.limit_key,
    declared.rate_key,
    (declared.limit_key is not null and most.at_once is not null)
      or (declared.rate_key is not null and most.starts is not null),
    most.at_once is not null or most.starts is not null
  from (
    select coalesce(decided.limit_count, declared.limit_count) as at_once,
      coalesce(decided.rate_count, declared.rate_count) as starts) most
$$;

-- The limits in force for one subject.
create or replace function limits_of(kind text, name text)
returns table (
  limit_count integer, rate_count integer, rate_seconds real, key_limit_count integer, key_rate_count integer,
  limit_key text, rate_key text, keyed boolean)
language sql stable
as $$
  select l.limit_count, l.rate_count, l.rate_seconds, l.key_limit_count, l.key_rate_count, l.limit_key, l.rate_key,
    l.keyed
  from (values (true)) as always (row)
  left join controls c on c.kind = limits_of.kind and c.name = limits_of.name
  left join job_types t on limits_of.kind = 'type' and t.name = limits_of.name
  cross join lateral limits_by(c, t) l
$$;

-- All limits in force, a row for each subject that has any.
create or replace function limits_in_force()
returns table (
  kind text, name text, limit_count integer, rate_count integer, rate_seconds real, keyed boolean)
language sql stable
as $$
  select c.kind, c.name, l.limit_count, l.rate_count, l.rate_seconds, l.keyed
  from controls c
  left join job_types t on c.kind = 'type' and t.name = c.name
  cross join lateral limits_by(c, t) l
  where l.limited
  union all
  select 'type', t.name, l.limit_count, l.rate_count, l.rate_seconds, l.keyed
  from limited_types() t
  cross join lateral limits_by(null, t) l
  where not exists (select from controls c where c.kind = 'type' and c.name = t.name)
$$;

-- The job types that declare a limit.
create or replace function limited_types() returns setof job_types
language sql stable
as $$
  select t.* from job_types t where t.limit_count is not null or t.rate_count is not null
$$;

-- The gate of a limit or rate: the key under which its permits are stored. Pure.
create or replace function gate_of(kind text, name text, seconds real) returns text
language sql immutable parallel safe
as $$
  select case when seconds is null then '' else 'rate of ' end || kind || ':' || name
$$;

-- Whether a gate belongs to a rate. Pure.
create or replace function is_rate(gate text) returns boolean
language sql immutable parallel safe
as $$
  select starts_with(gate, 'rate of ')
$$;

-- A text that sorts after the gates of all rates. Pure.
create or replace function past_rates() returns text
language sql immutable parallel safe
as $$
  select 'rate of!'
$$;

-- The gates of which every job of a stream needs a permit: their capacity, and for rates the seconds for which a permit
-- stays used.
create or replace function gates_of(stream integer)
returns table (gate text, capacity integer, seconds real, kind text, name text, key text)
language sql stable
as $$
  select gate_of(subject.kind, subject.name, g.seconds), g.capacity, g.seconds, subject.kind, subject.name, null::text
  from streams s
  cross join lateral limitable_by(s.tenant, s.queue, s.type) subject
  cross join lateral limits_of(subject.kind, subject.name) l
  cross join lateral (values (l.limit_count, null::real), (l.rate_count, l.rate_seconds)) as g (capacity, seconds)
  where s.id = gates_of.stream and g.capacity is not null and not is_request(s.type)
  union all
  -- A circuit that has opened again since the streams were looked at lets nothing through.
  select gate_of(c.kind, c.name, null), case when c.paused_at is null then c.limit_count else 0 end, null, c.kind, c.name,
    null
  from streams s
  join job_types t on t.name = s.type
  join controls c on c.kind = 'circuit' and c.name = circuit_of(t, s.tenant)
  where s.id = gates_of.stream
$$;

-- The key of the circuit that a job type names, for the jobs of a tenant; null without one.
create or replace function circuit_of(declared job_types, tenant text) returns text
language sql immutable parallel safe
as $$
  select case
    when declared.circuit is not null then
      circuit_key(case when declared.circuit_per_tenant then tenant else '' end, declared.circuit)
  end
$$;

-- The gates of a job whose type is limited per value of a field of its payload. Jobs without the field share one gate.
create or replace function key_gates(job_type text, tenant text, payload jsonb)
returns table (gate text, capacity integer, seconds real, kind text, name text, key text)
language sql stable
as $$
  select gate_of('key', jsonb_build_array(job_type, tenant, field.value)::text, g.seconds), g.capacity, g.seconds,
    'type', job_type, field.value
  from limits_of('type', job_type) l
  cross join lateral (values
    (l.key_limit_count, null::real, l.limit_key), (l.key_rate_count, l.rate_seconds, l.rate_key)
  ) as g (capacity, seconds, path)
  cross join lateral (select payload #>> string_to_array(g.path, '.') as whole) given
  cross join lateral (
    select case when length(given.whole) > 200 then md5(given.whole) else given.whole end as value) field
  where g.capacity is not null
$$;

-- Which of the streams are shut: paused, at a limit or rate, or of a type whose circuit is open or has no probe left. This looks without locking; open streams are checked
-- again when their permits are locked. A forgotten stream counts as shut until it is served again. Thousands of tenants
-- may have limits, and a claim may ask for thousands of streams: rules are matched by hash, never one by one.
create or replace function shut_streams(asked integer[]) returns integer[]
language plpgsql stable
set search_path from current
set jit = off
set enable_hashjoin = on
set enable_nestloop = off
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
as $$
begin
  return array(
    with rule as materialized (
      select l.kind, l.name, l.limit_count, l.rate_count, l.rate_seconds from limits_in_force() l
    ), busy as materialized (
      select subject.kind, subject.name, sum(b.running) as running
      from (
        select s.tenant, s.queue, s.type, count(*) as running
        from leases l
        join streams s on s.id = l.stream
        where exists (select from rule where rule.limit_count is not null)
        group by s.tenant, s.queue, s.type) b
      cross join lateral limitable_by(b.tenant, b.queue, b.type) subject
      group by subject.kind, subject.name
    ), used_up as (
      select rule.kind, rule.name
      from (select rule.*, clock_timestamp() as moment from rule where rule.rate_count is not null) rule
      where rule.rate_count <= (
        select count(*)
        from permits p
        cross join lateral permit_state(p.job_id, p.attempt, p.granted_at, rule.rate_seconds, rule.moment) state
        where p.gate = gate_of(rule.kind, rule.name, rule.rate_seconds)
          and p.slot <= rule.rate_count
          and not state.free)
    ), shut as materialized (
      select c.kind, c.name from controls c where c.paused_at is not null
      union all
      select rule.kind, rule.name
      from rule
      left join busy b on b.kind = rule.kind and b.name = rule.name
      where rule.limit_count <= coalesce(b.running, 0)
      union all
      select used_up.kind, used_up.name from used_up
      union all
      select c.kind, c.name
      from controls c
      where c.kind = 'circuit' and c.limit_count <= (
        select count(*)
        from permits p
        cross join lateral permit_state(p.job_id, p.attempt, p.granted_at, null, now()) state
        where p.gate = gate_of(c.kind, c.name, null) and not state.free)
    )
    select line.id
    from unnest(asked) as line (id)
    where not exists (select from streams s where s.id = line.id)
    union
    select s.id
    from unnest(asked) as line (id)
    join streams s on s.id = line.id
    left join job_types t on t.name = s.type
    cross join lateral pausable_by(s.tenant, s.queue, s.type, t.lane) subject
    join shut on shut.kind = subject.kind and shut.name = subject.name
    where not is_request(s.type)
    union
    select s.id
    from unnest(asked) as line (id)
    join streams s on s.id = line.id
    join job_types t on t.name = s.type
    join shut on shut.kind = 'circuit' and shut.name = circuit_of(t, s.tenant));
end
$$;

-- Wait for open claims when a limit is set or lowered: they do not see the limit, and nobody sees the jobs they take.
-- So the session that sets it waits until those claims have ended, and new claims wait for its commit. It waits for
-- less time than claims do, so that they do not fail because of it; and it must not keep them waiting by idling in its
-- transaction. A limit that is set where there was none starts without permits, so that jobs which run by then are
-- found. The probes of a circuit do not need that: every job asks before it calls (see circuit_probes.sql).
create or replace function begin_limit() returns trigger
language plpgsql security definer
set search_path from current
as $$
declare
  before jsonb := case tg_op when 'UPDATE' then to_jsonb(old) else '{}' end;
  after  jsonb := to_jsonb(new);
  anew   boolean := after ->> 'limit_count' is not null
    and (before ->> 'limit_count' is null or before -> 'limit_key' is distinct from after -> 'limit_key');
begin
  if after ->> 'kind' = 'circuit' then
    return null;
  end if;
  -- A type for which operators set no limit has the one that its code declares.
  if anew or new.limit_count < (before ->> 'limit_count')::integer
    or (new.limit_count is null and before ->> 'limit_count' is not null and after ->> 'kind' = 'type') then
    perform await_claims();
  end if;
  if anew then
    delete from permits p
    where p.gate = gate_of(case tg_table_name when 'controls' then after ->> 'kind' else 'type' end, new.name, null);
  end if;
  return null;
end
$$;

-- Wait until no claim is under way that does not know of a new limit yet.
create or replace function await_claims() returns void
language plpgsql
set search_path from current
set lock_timeout = '800ms'
as $$
declare
  patience interval := nullif(current_setting('idle_in_transaction_session_timeout')::interval, '0');
begin
  perform pg_advisory_xact_lock(claim_barrier());
  if coalesce(patience > '5s', true) then
    perform set_config('idle_in_transaction_session_timeout', '5s', true);
  end if;
exception
  when lock_not_available then
    raise exception 'a claim has been under way for longer than 0.8 seconds; try again' using errcode = '55P03';
end
$$;

-- The key of the lock that every claim shares until its transaction ends.
create or replace function claim_barrier() returns bigint
language sql stable parallel safe
as $$
  select hashtextextended(current_schema() || '.claims', 0)
$$;

create or replace trigger controls_begin_limit
  after insert or update on controls
  for each row
  execute function begin_limit();

create or replace trigger job_types_begin_limit
  after insert or update of limit_count on job_types
  for each row
  execute function begin_limit();

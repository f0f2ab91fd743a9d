-- Circuit breakers: when a circuit opens, is tried again, and closes. Moves: none. Roles: worker.
--
-- 1. A circuit that is closed costs nothing per call. Workers count calls in memory. A failure sends the worker's
--    totals within its window; while anybody has failures, the others send theirs with their next look. Each worker
--    writes a row of its own, so reports never wait for each other.
-- 2. The circuit opens when the workers together have counted enough failures, and these are a large enough share of
--    all calls.
-- 3. `open → half_open` happens when the first worker looks after the next probe is due. Then as many attempts as there
--    are probe permits may call. A permit belongs to an attempt, and is free when that attempt has no lease any more.
-- 4. Every change of the state gets a new generation. What is reported about another generation changes nothing.
-- 5. While a circuit is not closed, a row of `controls` shuts the streams of the types that name it: claims look there
--    anyway. While it is half open, that row is a limit, whose permits are the probes.
--
-- Locks: circuits → controls → permits. Counts are locked only by their worker.

-- The name of a circuit among the controls and gates. Neither tenants nor names have control characters.
create or replace function circuit_key(tenant text, name text) returns text
language sql immutable parallel safe
as $$
  select tenant || chr(31) || name
$$;

-- The longest time for which a circuit stays open by itself, however often it opened, and the longest delay of a job.
create or replace function longest_opening() returns double precision
language sql immutable parallel safe
as $$
  select 900::double precision
$$;

-- Report what a worker has counted, and learn how circuits are. `asked` is an array of circuits: tenant, name, the
-- generation that was counted in, successes, failures and the last error; with a `policy`, the circuit is made or
-- changed. Answers a row for each; `fault` says why one cannot be used, and the state `unknown` asks for the policy.
-- `troubled`: some worker has counted a failure lately.
create or replace function sync_circuits(worker text, asked jsonb)
returns table (
  tenant text, name text, state text, generation bigint, wait_seconds double precision,
  spread_seconds double precision, troubled boolean, fault text)
language plpgsql security definer
set search_path from current
as $$
#variable_conflict use_column
declare
  wish    record;
  circuit circuits;
begin
  perform check_circuit_reports(worker, asked);
  perform half_open_circuits();
  for wish in
    select r.*
    from jsonb_to_recordset(asked) as r (
      tenant text, name text, policy jsonb, generation bigint, successes bigint, failures bigint, error text)
    order by r.tenant, r.name
  loop
    fault := null;
    if wish.policy is not null then
      fault := join_circuit(wish.tenant, wish.name, wish.policy);
    end if;
    select c.* into circuit from circuits c where c.tenant = wish.tenant and c.name = wish.name;
    tenant := wish.tenant;
    name := wish.name;
    if not found then
      state := 'unknown';
      generation := 0;
      wait_seconds := 0;
      spread_seconds := 0;
      troubled := false;
      return next;
      continue;
    end if;
    if circuit.used_at < now() - interval '1 hour' then
      update circuits c set used_at = now() where c.tenant = wish.tenant and c.name = wish.name;
    end if;
    troubled := is_troubled(circuit);
    if circuit.state = 'closed' and circuit.generation = wish.generation
      and (wish.failures > 0 or (troubled and wish.successes > 0))
    then
      insert into circuit_counts as k (
        tenant, name, worker, generation, successes, failures, last_failure_at, last_error)
      values (
        wish.tenant, wish.name, sync_circuits.worker, wish.generation, wish.successes, wish.failures,
        case when wish.error is not null then now() end, left(wish.error, 1000))
      on conflict on constraint circuit_counts_pkey do update
        set generation = excluded.generation, successes = excluded.successes, failures = excluded.failures,
          last_failure_at = coalesce(excluded.last_failure_at, k.last_failure_at),
          last_error = coalesce(excluded.last_error, k.last_error), reported_at = now();
      perform judge_circuit(wish.tenant, wish.name);
      select c.* into circuit from circuits c where c.tenant = wish.tenant and c.name = wish.name;
      troubled := troubled or wish.failures > 0;
    end if;
    state := circuit.state;
    generation := circuit.generation;
    select w.wait_seconds, w.spread_seconds into wait_seconds, spread_seconds from circuit_wait(circuit) w;
    return next;
  end loop;
end
$$;

-- Create a circuit, or give it the policy that its code declares now. Answers why that is not possible, or null.
create or replace function join_circuit(tenant text, name text, policy jsonb) returns text
language plpgsql
set search_path from current
as $$
#variable_conflict use_column
declare
  most constant integer := highest('circuits');
begin
  if not exists (select from circuits c where c.tenant = join_circuit.tenant and c.name = join_circuit.name)
    and most <= (select count(*) from circuits)
  then
    delete from circuits c
    where (c.tenant, c.name) in (
      select idle.tenant, idle.name
      from circuits idle
      where idle.state = 'closed' and idle.used_at < now() - interval '1 day'
      order by idle.tenant, idle.name
      for update skip locked);
    if most <= (select count(*) from circuits) then
      return format('there are %s circuits, which is as many as there may be: use fewer names', most);
    end if;
  end if;
  insert into circuits as c (
    tenant, name, failure_threshold, failure_share, window_seconds, open_seconds, probes, success_threshold)
  select join_circuit.tenant, join_circuit.name, p.failure_threshold, p.failure_share, p.window_seconds, p.open_seconds,
    p.probes, p.success_threshold
  from circuit_policy(policy) p
  on conflict on constraint circuits_pkey do update
    set failure_threshold = excluded.failure_threshold, failure_share = excluded.failure_share,
      window_seconds = excluded.window_seconds, open_seconds = excluded.open_seconds, probes = excluded.probes,
      success_threshold = excluded.success_threshold, used_at = now()
    where (c.failure_threshold, c.failure_share, c.window_seconds, c.open_seconds, c.probes, c.success_threshold)
      is distinct from (excluded.failure_threshold, excluded.failure_share, excluded.window_seconds,
        excluded.open_seconds, excluded.probes, excluded.success_threshold)
      or c.used_at < now() - interval '1 hour';
  -- Workers never come back under the same name, so each that joins clears away what others have left.
  delete from circuit_counts k
  where k.ctid = any (array(
    select old.ctid
    from circuit_counts old
    where old.tenant = join_circuit.tenant and old.name = join_circuit.name
      and old.reported_at < now() - interval '1 day'
    for update skip locked));
  return null;
end
$$;

-- A policy with its defaults. What is null follows the settings: see `circuit_limits`.
create or replace function circuit_policy(policy jsonb)
returns table (
  failure_threshold integer, failure_share double precision, window_seconds double precision,
  open_seconds double precision, probes integer, success_threshold integer)
language sql immutable
as $$
  select (policy ->> 'failure_threshold')::integer, coalesce((policy ->> 'failure_share')::double precision, 0.5),
    coalesce((policy ->> 'window')::double precision, 60), (policy ->> 'open_for')::double precision,
    coalesce((policy ->> 'probes')::integer, 1), coalesce((policy ->> 'success_threshold')::integer, 1)
$$;

-- How many failures open a circuit, and for how long it stays open the first time: its own numbers, else the settings.
create or replace function circuit_limits(circuit circuits)
returns table (failure_threshold integer, open_seconds double precision)
language sql stable
set search_path from current
as $$
  select coalesce(circuit.failure_threshold, setting('CIRCUIT_FAILURE_THRESHOLD')::integer),
    coalesce(circuit.open_seconds, setting('CIRCUIT_OPEN_SECONDS')::double precision)
$$;

-- Refuse malformed reports.
create or replace function check_circuit_reports(worker text, asked jsonb) returns void
language plpgsql immutable
set search_path from current
as $$
declare
  wrong text;
begin
  if coalesce(length(worker), 0) not between 1 and 255 then
    raise exception 'the name of a worker must have 1 to 255 characters' using errcode = 'HF002';
  elsif jsonb_typeof(asked) is distinct from 'array' or jsonb_array_length(asked) > highest('circuits') then
    raise exception 'circuits must be a list of objects' using errcode = 'HF002';
  end if;
  select coalesce(
      case
        when jsonb_typeof(each) <> 'object' or jsonb_typeof(each -> 'tenant') is distinct from 'string'
          or jsonb_typeof(each -> 'name') is distinct from 'string' then 'a circuit must be an object with tenant and name'
        when jsonb_typeof(each -> 'successes') is distinct from 'number'
          or jsonb_typeof(each -> 'failures') is distinct from 'number'
          or jsonb_typeof(each -> 'generation') is distinct from 'number'
          then 'a circuit must have generation, successes and failures'
        when (each ->> 'successes')::numeric not between 0 and 9007199254740991
          or (each ->> 'failures')::numeric not between 0 and 9007199254740991
          or (each ->> 'generation')::numeric not between 0 and 9007199254740991
          then 'successes, failures and generation must be whole numbers, 0 or more'
        else circuit_name_fault(each ->> 'name', each ->> 'tenant')
      end,
      (select bounds_fault(number.key, number.key, case jsonb_typeof(number.value)
          when 'number' then number.value::numeric else 'NaN' end)
       from jsonb_each(case jsonb_typeof(each -> 'policy') when 'object' then each -> 'policy' else '{}' end) number
       where bounds_fault(number.key, number.key, case jsonb_typeof(number.value)
          when 'number' then number.value::numeric else 'NaN' end) is not null
       limit 1)) into wrong
  from jsonb_array_elements(asked) as each
  order by 1 nulls last
  limit 1;
  if wrong is not null then
    raise exception '%', wrong using errcode = 'HF002';
  end if;
end
$$;

-- What is wrong with the name of a circuit, or null.
create or replace function circuit_name_fault(name text, tenant text) returns text
language sql immutable
set search_path from current
as $$
  select case
    when coalesce(length(name), 0) not between 1 and 200 then 'the name of a circuit must have 1 to 200 characters'
    when unprintable(name) then 'the name of a circuit must not contain control characters'
    when tenant is null or length(tenant) > 200 or unprintable(tenant) then 'the tenant of a circuit must have at most 200 characters, and no control characters'
  end
$$;

-- Whether some worker has counted a failure within the window of a circuit.
create or replace function is_troubled(circuit circuits) returns boolean
language sql stable
set search_path from current
as $$
  select exists (
    select
    from circuit_counts k
    where k.tenant = circuit.tenant and k.name = circuit.name and k.generation = circuit.generation and k.failures > 0
      and k.reported_at > now() - make_interval(secs => circuit.window_seconds))
$$;

-- What all workers together have counted within the window of a circuit.
create or replace function circuit_totals(circuit circuits)
returns table (successes bigint, failures bigint, last_failure_at timestamptz, last_error text)
language sql stable
set search_path from current
as $$
  select coalesce(sum(k.successes), 0)::bigint, coalesce(sum(k.failures), 0)::bigint, max(k.last_failure_at),
    (array_agg(k.last_error order by k.last_failure_at desc nulls last))[1]
  from circuit_counts k
  where k.tenant = circuit.tenant and k.name = circuit.name and k.generation = circuit.generation
    and k.reported_at > now() - make_interval(secs => circuit.window_seconds)
$$;

-- For how long to put off a job that may not call now, and over how much more time to spread such jobs.
create or replace function circuit_wait(circuit circuits)
returns table (wait_seconds double precision, spread_seconds double precision)
language sql stable
set search_path from current
as $$
  select case circuit.state
      when 'open' then least(longest_opening(), greatest(0, coalesce(
        extract(epoch from nullif(circuit.next_probe_at, 'infinity') - now())::double precision, longest_opening())))
      when 'half_open' then least(5, coalesce(circuit.opening_seconds, 20) / 4)
      else 0
    end,
    case circuit.state when 'closed' then 0 else least(60, greatest(0.1, coalesce(circuit.opening_seconds, 240) / 4)) end
$$;

-- Open a closed circuit if enough calls failed, and a large enough share of them.
create or replace function judge_circuit(tenant text, name text) returns void
language plpgsql
set search_path from current
as $$
#variable_conflict use_column
declare
  circuit circuits;
  total   record;
begin
  select c.* into circuit
  from circuits c
  where c.tenant = judge_circuit.tenant and c.name = judge_circuit.name and c.state = 'closed';
  if not found then
    return;
  end if;
  select t.* into total from circuit_totals(circuit) t;
  if total.failures >= (select l.failure_threshold from circuit_limits(circuit) l)
    and total.failures >= circuit.failure_share * (total.failures + total.successes)
  then
    perform trip_circuit(circuit, total.last_error);
  end if;
end
$$;

-- Open a circuit because calls or a probe failed, unless its state has changed meanwhile. Each time it opens again, it
-- stays open for twice as long, up to 15 minutes or what its policy says if that is longer.
create or replace function trip_circuit(circuit circuits, error text) returns void
language plpgsql
set search_path from current
as $$
#variable_conflict use_column
declare
  first   double precision := (select l.open_seconds from circuit_limits(circuit) l);
  seconds double precision := least(greatest(longest_opening(), first), first * power(2, least(circuit.openings, 30)));
begin
  update circuits c
  set state = 'open', generation = c.generation + 1, openings = c.openings + 1, opening_seconds = seconds,
    probe_successes = 0, opened_at = now(), half_opened_at = null, next_probe_at = now() + make_interval(secs => seconds),
    last_failure_at = now(), last_error = coalesce(error, c.last_error), forced_by = null, forced_note = null,
    updated_at = now()
  where c.tenant = circuit.tenant and c.name = circuit.name and c.generation = circuit.generation;
  if found then
    perform shut_circuit(circuit.tenant, circuit.name);
  end if;
end
$$;

-- Shut the streams of the types that name a circuit, and tell workers.
create or replace function shut_circuit(tenant text, name text) returns void
language sql
set search_path from current
as $$
  insert into controls as c (kind, name, paused_at, paused_by, updated_by)
  values ('circuit', circuit_key(shut_circuit.tenant, shut_circuit.name), now(), 'circuit breaker', 'circuit breaker')
  on conflict on constraint controls_pkey do update
    set paused_at = now(), paused_by = excluded.paused_by, limit_count = null, updated_at = now();
  select pg_notify(current_schema() || '.ready', '');
$$;

-- Close a circuit, whose row the caller has locked.
create or replace function close_circuit(tenant text, name text) returns void
language sql
set search_path from current
as $$
  update circuits c
  set state = 'closed', generation = c.generation + 1, openings = 0, opening_seconds = null, probe_successes = 0,
    opened_at = null, half_opened_at = null, next_probe_at = null, forced_by = null, forced_note = null,
    updated_at = now()
  where c.tenant = close_circuit.tenant and c.name = close_circuit.name;
  delete from controls c where c.kind = 'circuit' and c.name = circuit_key(close_circuit.tenant, close_circuit.name);
  delete from permits p
  where p.gate = gate_of('circuit', circuit_key(close_circuit.tenant, close_circuit.name), null);
  select pg_notify(current_schema() || '.ready', '');
$$;

-- Let probes through all circuits whose time has come. If the clock was set back, a circuit stays open for no longer
-- than its own length from now.
create or replace function half_open_circuits() returns void
language plpgsql
set search_path from current
as $$
#variable_conflict use_column
declare
  circuit circuits;
begin
  if not exists (select from circuits c where c.state = 'open') then
    return;
  end if;
  update circuits c
  set next_probe_at = now() + make_interval(secs => c.opening_seconds)
  where c.state = 'open' and c.next_probe_at > now() + make_interval(secs => c.opening_seconds + 1);
  for circuit in
    select c.*
    from circuits c
    where c.state = 'open' and c.next_probe_at <= now()
    order by c.tenant, c.name
    for update skip locked
  loop
    update circuits c
    set state = 'half_open', generation = c.generation + 1, half_opened_at = now(), probe_successes = 0, updated_at = now()
    where c.tenant = circuit.tenant and c.name = circuit.name;
    -- What tried before does not count now.
    delete from permits p where p.gate = gate_of('circuit', circuit_key(circuit.tenant, circuit.name), null);
    insert into controls as c (kind, name, limit_count, updated_by)
    values ('circuit', circuit_key(circuit.tenant, circuit.name), circuit.probes, 'circuit breaker')
    on conflict on constraint controls_pkey do update
      set paused_at = null, paused_by = null, limit_count = excluded.limit_count, updated_at = now();
    perform pg_notify(current_schema() || '.ready', '');
  end loop;
end
$$;

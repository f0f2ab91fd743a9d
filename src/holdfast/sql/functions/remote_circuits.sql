-- Circuit breakers and remote workers, which count nothing themselves: their reports are counted here. Moves: none.
-- Roles: none; reports use this.
--
-- 1. An error that names a circuit is a call that failed. The circuit belongs to the worker's tenant: a key of one tenant
--    must not stop the work of others. An unknown one is made, with the default policy.
-- 2. A job that ends with success is a call that succeeded, for the circuits for which this worker has counted failures.
-- 3. While a circuit is open, a failure that names it costs no attempt: the job is put off until the circuit is tried.
-- 4. Once it is half open, such a failure opens it again, and such a success closes it. An attempt that has one of the
--    permits for probes, because its type declares the circuit, decides about that one, too.

-- Count a call that failed. Answers for how long to put the job off, if the circuit was not closed; else null.
create or replace function remote_call_failed(lease leases, tenant text, type text, name text, error text)
returns double precision
language plpgsql
set search_path from current
as $$
#variable_conflict use_column
declare
  circuit circuits;
  fault   text;
begin
  perform half_open_circuits();
  perform end_remote_probe(lease, tenant, type, false, name, error);
  select c.* into circuit from circuits c where c.tenant = remote_call_failed.tenant and c.name = remote_call_failed.name;
  if not found then
    fault := coalesce(circuit_name_fault(name, tenant), join_circuit(tenant, name, '{}'));
    if fault is not null then
      raise exception '%', fault using errcode = 'HF002', column = '/error/circuit';
    end if;
    select c.* into circuit from circuits c where c.tenant = remote_call_failed.tenant and c.name = remote_call_failed.name;
  end if;
  if circuit.state = 'closed' then
    insert into circuit_counts as k (
      tenant, name, worker, generation, successes, failures, last_failure_at, last_error)
    values (circuit.tenant, circuit.name, lease.worker, circuit.generation, 0, 1, now(), left(error, 1000))
    on conflict on constraint circuit_counts_pkey do update
      set generation = excluded.generation,
        successes = case when is_counting(k, circuit) then k.successes else 0 end,
        failures = case when is_counting(k, circuit) then k.failures else 0 end + 1,
        last_failure_at = now(), last_error = excluded.last_error, reported_at = now();
    perform judge_circuit(tenant, name);
    return null;
  end if;
  if circuit.state = 'half_open' then
    perform trip_circuit(circuit, left(error, 1000));
    select c.* into circuit from circuits c where c.tenant = remote_call_failed.tenant and c.name = remote_call_failed.name;
  end if;
  return remote_circuit_delay(tenant, name);
end
$$;

-- For how long to put off a job that may not call a service; null if there is no such circuit.
create or replace function remote_circuit_delay(tenant text, name text) returns double precision
language sql volatile
set search_path from current
as $$
  select greatest(1, w.wait_seconds + random() * w.spread_seconds)
  from circuits c
  cross join lateral circuit_wait(c) w
  where c.tenant = remote_circuit_delay.tenant and c.name = remote_circuit_delay.name
$$;

-- Count a job that ended with success. The lease must still be there.
create or replace function remote_call_succeeded(lease leases, tenant text, type text) returns void
language plpgsql
set search_path from current
as $$
#variable_conflict use_column
declare
  circuit circuits;
begin
  if not exists (select from circuits c) then
    return;
  end if;
  perform end_remote_probe(lease, tenant, type, true, null, null);
  for circuit in
    select c.*
    from circuit_counts k
    join circuits c on c.tenant = k.tenant and c.name = k.name
    where k.tenant = remote_call_succeeded.tenant and k.worker = lease.worker and c.state in ('closed', 'half_open')
    order by c.tenant, c.name
  loop
    if circuit.state = 'closed' then
      update circuit_counts k
      set successes = k.successes + 1, reported_at = now()
      where k.tenant = circuit.tenant and k.name = circuit.name and k.worker = lease.worker
        and is_counting(k, circuit);
    elsif circuit.probe_successes + 1 < circuit.success_threshold then
      update circuits c
      set probe_successes = c.probe_successes + 1, updated_at = now()
      where c.tenant = circuit.tenant and c.name = circuit.name and c.generation = circuit.generation;
    else
      perform from circuits c
      where c.tenant = circuit.tenant and c.name = circuit.name and c.generation = circuit.generation
      for no key update;
      if found then
        perform close_circuit(circuit.tenant, circuit.name);
      end if;
    end if;
  end loop;
end
$$;

-- Decide about the probe of an attempt whose type declares a circuit, if it has the permit. An error that names another
-- circuit, or none, says nothing about this one.
create or replace function end_remote_probe(
  lease leases, tenant text, type text, succeeded boolean, name text, error text
) returns void
language sql
set search_path from current
as $$
  select end_probe(
    lease.worker, lease.job_id, lease.attempt, c.tenant, c.name, c.generation,
    case when succeeded or c.name = end_remote_probe.name then succeeded end, end_remote_probe.error)
  from job_types t
  join circuits c on circuit_key(c.tenant, c.name) = circuit_of(t, end_remote_probe.tenant)
  where t.name = end_remote_probe.type and c.state = 'half_open'
$$;

-- Whether a worker's counts are of now: of this generation of the circuit, and within its window.
create or replace function is_counting(counted circuit_counts, circuit circuits) returns boolean
language sql stable
as $$
  select counted.generation = circuit.generation
    and counted.reported_at > now() - make_interval(secs => circuit.window_seconds)
$$;

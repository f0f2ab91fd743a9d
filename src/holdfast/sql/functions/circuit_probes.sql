-- Probes: the calls that a half-open circuit lets through, and what they decide. Moves: none. Roles: worker.
--
-- A probe is a permit that belongs to (job, attempt), as with limits: it is free when that attempt has no lease, so a
-- worker that was killed or is frozen does not keep it. A claim has given a job of a type that names the circuit its
-- permit already; other jobs ask for one when they call.

-- Whether this attempt may call a service whose circuit was not closed when its worker last looked. Answers the state of the
-- circuit now, and whether the attempt has a permit for a probe.
create or replace function try_probe(worker text, job_id uuid, attempt integer, tenant text, name text)
returns table (
  state text, generation bigint, granted boolean, wait_seconds double precision, spread_seconds double precision)
language plpgsql security definer
set search_path from current
as $$
#variable_conflict use_column
declare
  circuit circuits;
  line    text := gate_of('circuit', circuit_key(try_probe.tenant, try_probe.name), null);
  slots   integer[];
begin
  perform half_open_circuits();
  -- Shared: no probe begins while another one decides.
  select c.* into circuit
  from circuits c
  where c.tenant = try_probe.tenant and c.name = try_probe.name
  for share;
  if not found then
    return query select 'unknown', 0::bigint, false, 0::double precision, 0::double precision;
    return;
  end if;
  granted := false;
  if circuit.state = 'half_open'
    and exists (
      select from leases l
      where l.job_id = try_probe.job_id and l.attempt = try_probe.attempt and l.worker = try_probe.worker)
  then
    granted := exists (
      select from permits p
      where p.gate = line and p.job_id = try_probe.job_id and p.attempt = try_probe.attempt);
    if not granted then
      -- As many as claims admit: the policy may have changed since.
      slots := grab(line, (
        select c.limit_count
        from controls c
        where c.kind = 'circuit' and c.name = circuit_key(circuit.tenant, circuit.name)), null, 1, '{}');
      update permits p
      set job_id = try_probe.job_id, attempt = try_probe.attempt, granted_at = clock_timestamp()
      where p.gate = line and p.slot = any (slots);
      granted := found;
    end if;
  end if;
  return query
  select circuit.state, circuit.generation, granted, w.wait_seconds, w.spread_seconds from circuit_wait(circuit) w;
end
$$;

-- Record how a probe ended: with success, with a failure, or (null) with neither. It counts only if its attempt still
-- has the permit, in the generation in which it began. Answers the state of the circuit now.
create or replace function end_probe(
  worker text, job_id uuid, attempt integer, tenant text, name text, begun_in bigint, succeeded boolean, error text
) returns table (
  state text, generation bigint, wait_seconds double precision, spread_seconds double precision)
language plpgsql security definer
set search_path from current
as $$
#variable_conflict use_column
declare
  circuit circuits;
begin
  select c.* into circuit
  from circuits c
  where c.tenant = end_probe.tenant and c.name = end_probe.name
  for no key update;
  if circuit.state = 'half_open' and circuit.generation = end_probe.begun_in
    and exists (
      select from leases l
      where l.job_id = end_probe.job_id and l.attempt = end_probe.attempt and l.worker = end_probe.worker)
  then
    update permits p
    set job_id = null, attempt = null
    where p.gate = gate_of('circuit', circuit_key(circuit.tenant, circuit.name), null)
      and p.job_id = end_probe.job_id and p.attempt = end_probe.attempt;
    if found and succeeded then
      if circuit.probe_successes + 1 >= circuit.success_threshold then
        perform close_circuit(circuit.tenant, circuit.name);
      else
        update circuits c
        set probe_successes = c.probe_successes + 1, updated_at = now()
        where c.tenant = circuit.tenant and c.name = circuit.name;
        perform pg_notify(current_schema() || '.ready', '');
      end if;
    elsif found and not succeeded then
      perform trip_circuit(circuit, left(error, 1000));
    end if;
  end if;
  return query
  select c.state, c.generation, w.wait_seconds, w.spread_seconds
  from circuits c
  cross join lateral circuit_wait(c) w
  where c.tenant = end_probe.tenant and c.name = end_probe.name;
end
$$;

-- Put jobs off, as `snooze` does, that may not call a service because its circuit is open. `circuits` has their names,
-- and null for jobs that are put off for another reason. Costs no attempt. Moves: running → scheduled | queued | paused
-- | canceled. Roles: worker.
create or replace function put_off(
  worker text, job_ids uuid[], attempts integer[], delays double precision[], notes text[], circuits text[]
) returns table (job_id uuid, attempt integer, state text)
language sql security definer
set search_path from current
as $$
  select check_seconds('the delay of a snooze', 'delay', delays);
  select * from settle(
    named(worker), job_ids, attempts, array_fill('snoozed'::text, array[cardinality(job_ids)]), null,
    array(
      select case when c.name is not null then 'CircuitOpen' end
      from unnest(circuits) with ordinality as c (name, place)
      order by c.place),
    array(
      select coalesce(left(c.name, 200), c.note)
      from unnest(circuits, notes) with ordinality as c (name, note, place)
      order by c.place),
    null, null, delays, null)
$$;

-- Circuit breakers as operators see and set them. Moves: none. Roles: operator.

-- Circuits by name, with what all workers have counted. A circuit that all tenants share has an empty tenant.
create or replace function list_circuits(
  only_tenant text default null, only_name text default null, after_name text default null,
  after_tenant text default null, max_circuits integer default 50
) returns table (
  name text, tenant text, state text, failure_count bigint, success_count bigint, opened_at timestamptz,
  half_opened_at timestamptz, next_probe_at timestamptz, last_failure_at timestamptz, last_error text, forced_by text,
  forced_note text, failure_threshold integer, failure_share double precision, window_seconds double precision,
  open_seconds double precision, probes integer, success_threshold integer, updated_at timestamptz)
language sql security definer stable
set search_path from current
as $$
  select c.name, c.tenant, c.state, t.failures, t.successes, c.opened_at, c.half_opened_at,
    nullif(c.next_probe_at, 'infinity'), greatest(t.last_failure_at, c.last_failure_at),
    coalesce(t.last_error, c.last_error), c.forced_by, c.forced_note, l.failure_threshold, c.failure_share,
    c.window_seconds, l.open_seconds, c.probes, c.success_threshold, c.updated_at
  from circuits c
  cross join lateral circuit_totals(c) t
  cross join lateral circuit_limits(c) l
  where (only_name is null or c.name = only_name)
    and (only_tenant is null or c.tenant = only_tenant)
    and (after_name is null or (c.name, c.tenant) > (after_name, coalesce(after_tenant, '')))
  order by c.name, c.tenant
  limit max_circuits
$$;

-- Close a circuit, whatever its state, and reset its counts. An unknown one is made. Answers whether there was one.
create or replace function reset_circuit(name text, tenant text, by text, reason text default null, by_key uuid default null)
returns boolean
language plpgsql security definer
set search_path from current
as $$
#variable_conflict use_column
declare
  circuit circuits;
  fault   text;
begin
  perform check_circuit_change(reset_circuit.name, reset_circuit.tenant, by, reason);
  select c.* into circuit
  from circuits c
  where c.tenant = reset_circuit.tenant and c.name = reset_circuit.name
  for no key update;
  if not found then
    fault := join_circuit(reset_circuit.tenant, reset_circuit.name, '{}');
    if fault is not null then
      raise exception '%', fault using errcode = 'HF002';
    end if;
  end if;
  perform close_circuit(reset_circuit.tenant, reset_circuit.name);
  update circuits c
  set last_failure_at = null, last_error = null
  where c.tenant = reset_circuit.tenant and c.name = reset_circuit.name;
  perform note_audit(by, by_key, nullif(reset_circuit.tenant, ''), 'circuit.reset', reset_circuit.name,
    jsonb_strip_nulls(jsonb_build_object('note', reason, 'was', circuit.state, 'forced_by', circuit.forced_by)));
  return circuit.name is not null;
end
$$;

-- Open a circuit by hand for some seconds, after which it is tried again; or, with null, until somebody resets it.
-- An unknown one is made.
create or replace function open_circuit(
  name text, tenant text, seconds double precision, by text, reason text default null, by_key uuid default null
) returns void
language plpgsql security definer
set search_path from current
as $$
#variable_conflict use_column
declare
  fault text;
begin
  perform check_circuit_change(open_circuit.name, open_circuit.tenant, by, reason);
  fault := coalesce(
    bounds_fault('seconds', 'circuit_forced', open_circuit.seconds::numeric),
    case
      when not exists (select from circuits c where c.tenant = open_circuit.tenant and c.name = open_circuit.name)
        then join_circuit(open_circuit.tenant, open_circuit.name, '{}')
    end);
  if fault is not null then
    raise exception '%', fault using errcode = 'HF002';
  end if;
  update circuits c
  set state = 'open', generation = c.generation + 1, opening_seconds = open_circuit.seconds, probe_successes = 0,
    opened_at = now(), half_opened_at = null,
    next_probe_at = coalesce(now() + make_interval(secs => open_circuit.seconds), 'infinity'),
    forced_by = by, forced_note = reason, updated_at = now()
  where c.tenant = open_circuit.tenant and c.name = open_circuit.name;
  perform shut_circuit(open_circuit.tenant, open_circuit.name);
  perform note_audit(by, by_key, nullif(open_circuit.tenant, ''), 'circuit.open', open_circuit.name,
    jsonb_strip_nulls(jsonb_build_object('note', reason, 'seconds', seconds)));
end
$$;

-- Refuse a change of a circuit that does not name the circuit, or who makes it.
create or replace function check_circuit_change(name text, tenant text, by text, reason text) returns void
language plpgsql immutable
set search_path from current
as $$
declare
  fault text := circuit_name_fault(name, tenant);
begin
  perform check_signed(by, reason);
  if fault is not null then
    raise exception '%', fault using errcode = 'HF002';
  end if;
end
$$;

-- Circuit breakers as they may be read with psql, with what all workers have counted within their windows. It calls no
-- function of the engine: a view's functions run with the reader's rights.
create or replace view circuit_breakers as
select c.name as service_name, c.state, coalesce(t.failures, 0)::bigint as failure_count,
  coalesce(t.successes, 0)::bigint as success_count, greatest(t.last_failure_at, c.last_failure_at) as last_failure_at,
  c.opened_at, c.half_opened_at, c.updated_at, nullif(c.tenant, '') as tenant
from circuits c
left join lateral (
  select sum(k.failures) as failures, sum(k.successes) as successes, max(k.last_failure_at) as last_failure_at
  from circuit_counts k
  where k.tenant = c.tenant and k.name = c.name and k.generation = c.generation
    and k.reported_at > now() - make_interval(secs => c.window_seconds)) t on true;

-- The job types that workers publish. Moves: none. Roles: worker.

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

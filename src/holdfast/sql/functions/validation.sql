-- Which intents may be recorded: see enqueue.sql for their options, and sizes.sql for how payloads are measured.
-- Moves: none.

-- Refuse invalid intents before anything is written, and say what to do.
create or replace function check_enqueue(types text[], payloads jsonb[], options jsonb[], tenant text)
returns void
language plpgsql
set search_path from current
set plan_cache_mode = force_generic_plan
as $$
declare
  wrong text;
begin
  if coalesce(cardinality(types), -1) <> coalesce(cardinality(payloads), -2)
    or cardinality(types) <> coalesce(cardinality(options), cardinality(types)) then
    raise exception 'types, payloads and options must have the same length' using errcode = 'HF002';
  elsif coalesce(length(tenant), 0) not between 1 and 200 then
    raise exception 'tenant must have 1 to 200 characters' using errcode = 'HF002';
  end if;

  select case
      when coalesce(length(type), 0) not between 1 and 200 then 'a job type must have 1 to 200 characters'
      when is_request(type) then format('job types beginning with "holdfast." are reserved: %s', type)
      when payload is null or jsonb_typeof(payload) <> 'object' then format('the payload of %s must be a JSON object', type)
    end into wrong
  from unnest(types, payloads) as job (type, payload)
  where coalesce(length(type), 0) not between 1 and 200
    or is_request(type)
    or payload is null
    or jsonb_typeof(payload) <> 'object'
  limit 1;

  if wrong is null and options is not null then
    select case
          when unknown.key = 'run_at' then 'run_at must be a time with its zone, before the year 10000'
          when unknown.named then format('%s must be a string', unknown.key)
          when unknown.key is not null then format(
            'unknown option %s; known are priority, run_at, delay, idempotency_key, dedup_key, correlation_id, '
            'parent_id, max_attempts, target, queue, hold, target_count, traceparent', quote_ident(unknown.key))
          when jsonb_typeof(option) <> 'object' then 'options must be a JSON object'
          when not is_number(option -> 'priority', 0, 1000000000, true) then 'priority must be 0 or more, at most 1000000000, a whole number'
          when not is_number(option -> 'max_attempts', 1, 2147483647, true) then 'max_attempts must be 1 or more, at most 2147483647, a whole number'
          when not is_number(option -> 'target_count', 1, 9223372036854775807, true) then 'target_count must be 1 or more, a whole number'
          when not is_number(option -> 'delay', 0, 3153600000, false) then 'delay must be a number of seconds, 0 or more, at most 3153600000 (100 years)'
          when jsonb_typeof(option -> 'hold') not in ('boolean', 'null') then 'hold must be true or false'
          when (option ->> 'parent_id') !~* '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' then 'parent_id must be a UUID'
          when (option ->> 'idempotency_key') !~ '^[\x21-\x7e]{1,255}$' then 'idempotency_key must be 1 to 255 visible ASCII characters'
          when length(option ->> 'dedup_key') not between 1 and 255 then 'dedup_key must have 1 to 255 characters'
          when length(option ->> 'correlation_id') not between 1 and 255 then 'correlation_id must have 1 to 255 characters'
          when length(option ->> 'target') not between 1 and 255 then 'target must have 1 to 255 characters'
          when length(option ->> 'queue') not between 1 and 200 then 'queue must have 1 to 200 characters'
          when unprintable(option ->> 'dedup_key') then 'dedup_key must not contain control characters'
          when unprintable(option ->> 'correlation_id') then 'correlation_id must not contain control characters'
          when unprintable(option ->> 'target') then 'target must not contain control characters'
          when (option ->> 'traceparent') !~ '^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$' then 'traceparent must be as in W3C Trace Context'
          when option ->> 'queue' = 'holdfast' then 'the queue "holdfast" is reserved'
          when option ? 'run_at' and option ? 'delay' then 'give run_at or delay, not both'
          when option ? 'run_at' and not is_moment(option ->> 'run_at') then 'run_at must be a time with its zone, before the year 10000'
        end into wrong
    from unnest(options) as option
    left join lateral (
      -- Also names that are not strings: `->>` would read [] as the name "[]".
      select key, kind.named
      from jsonb_object_keys(case when jsonb_typeof(option) = 'object' then option end) as key
      cross join lateral (
        select key in ('run_at', 'idempotency_key', 'dedup_key', 'correlation_id', 'parent_id', 'target', 'queue',
          'traceparent')) as kind (named)
      where case
          when kind.named then jsonb_typeof(option -> key) not in ('string', 'null')
          else key not in ('priority', 'delay', 'max_attempts', 'hold', 'target_count')
        end
      limit 1) unknown on true
    where option is not null
    order by 1 nulls last
    limit 1;
  end if;

  if wrong is not null then
    raise exception '%', wrong using errcode = 'HF002';
  end if;
  perform check_payloads(types, payloads);
end
$$;

-- Whether a JSON value is a number (or absent) within bounds.
create or replace function is_number(value jsonb, low numeric, high numeric, whole boolean) returns boolean
language sql immutable parallel safe
as $$
  select case coalesce(jsonb_typeof(value), 'null')
    when 'null' then true
    when 'number' then value::numeric between low and high and (not whole or value::numeric % 1 = 0)
    else false
  end
$$;

-- Whether a text (or null) is a time that every client can read back.
create or replace function is_moment(value text) returns boolean
language plpgsql stable parallel safe
as $$
begin
  return coalesce(value::timestamptz between '0002-01-01 00:00Z' and '9999-12-30 00:00Z', true);
exception
  when data_exception then
    return false;
end
$$;

-- The bounds of numbers that users give; holdfast.bounds has the same in Python, and a test proves them equal. The
-- constraints of tables, `enqueue` (the hot path) and `set_limit` repeat some of them. Infinity and NaN are always out
-- of bounds: PostgreSQL sorts NaN after every number. Moves: none.

-- The lowest and the highest value of every number that is checked.
create or replace function bounds() returns table (name text, low numeric, high numeric, whole boolean)
language sql immutable parallel safe
as $$
  values
    ('lease', 0.1, 604800, false),
    ('timeout', 0.001, 31536000, false),
    ('max_attempts', 1, 2147483647, true),
    ('version', 0, 2147483647, true),
    ('backoff_base', 0, 2592000, false),
    ('backoff_factor', 1, 1000, false),
    ('backoff_max', 0, 2592000, false),
    ('backoff_jitter', 0, 1, false),
    ('delay', 0, 3153600000, false),
    ('limit', 1, 10000, true),
    ('rate', 0.001, 2678400, false),
    ('weight', 0.001, 1000, false),
    ('priority', 0, 1000000000, true),
    ('target_count', 1, 9223372036854775807, true),
    ('retention_days', 0, 36500, false),
    ('ageing', 0, 3153600000, false),
    ('result_bytes', 1, 104857600, true),
    ('streams', 1, 10000000, true),
    ('schedules', 1, 1000000, true),
    ('stream_idle', 0, 3153600000, false),
    ('payload_bytes', 1024, 104857600, true),
    ('page', 1, 10000, true),
    ('requests_per_second', 0.001, 1000000, false),
    ('key_lifetime', 0.001, 3153600000, false),
    ('slots', 0, 1000000, true),
    ('term', 0.001, 86400, false),
    ('elapsed', 0, 3153600000, false),
    ('circuits', 1, 10000, true),
    ('circuit_forced', 0.1, 31536000, false),
    ('circuit_open', 4, 86400, false),
    ('failure_threshold', 1, 1000000, true),
    ('failure_share', 0.001, 1, false),
    ('window', 1, 86400, false),
    ('open_for', 0.1, 86400, false),
    ('probes', 1, 1000, true),
    ('success_threshold', 1, 1000, true),
    ('every', 1, 31622400, false),
    ('catch_up', 0, 2678400, false),
    ('jitter', 0, 86400, false)
$$;

-- The highest value that a bound allows.
create or replace function highest(bound text) returns double precision
language sql immutable parallel safe
set search_path from current
as $$
  select b.high::double precision from bounds() b where b.name = bound
$$;

-- What is wrong with a number, in words; null if it is within its bounds or missing.
create or replace function bounds_fault(what text, bound text, value numeric) returns text
language sql immutable parallel safe
set search_path from current
as $$
  select format('%s must be %sfrom %s to %s, not %s', what, case when b.whole then 'a whole number ' end, b.low, b.high, value)
  from bounds() b
  where b.name = bound and not (value between b.low and b.high and (not b.whole or value % 1 = 0))
$$;

-- Refuse numbers of seconds that are out of bounds.
create or replace function check_seconds(what text, bound text, lengths double precision[]) returns void
language plpgsql immutable
set search_path from current
as $$
declare
  fault text;
begin
  select bounds_fault(what, bound, length::numeric) into fault
  from unnest(lengths) as length
  where length is not null
  order by 1 nulls last
  limit 1;
  if fault is not null then
    raise exception '%', fault using errcode = 'HF002';
  end if;
end
$$;

-- A lease length, cut to its bounds: a setting may be out of them.
create or replace function lease_length(seconds double precision) returns double precision
language sql immutable parallel safe
as $$
  select least(greatest(seconds, 0.1), 604800)
$$;

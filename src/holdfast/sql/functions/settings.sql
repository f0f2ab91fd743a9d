-- Settings of the installation. A value that the engine cannot use would fail every claim. So the table refuses it, and
-- such a value in the configuration of a role or database is ignored. Moves: none.

-- What is wrong with a setting, in words; null if nothing is.
create or replace function setting_fault(name text, value text) returns text
language plpgsql immutable strict parallel safe
set search_path from current
as $$
declare
  bound text := case name
    when 'LEASE_SEC_DEFAULT' then 'lease'
    when 'MAX_ATTEMPTS_DEFAULT' then 'max_attempts'
    when 'AGEING_SECONDS' then 'ageing'
    when 'RESULT_MAX_BYTES' then 'result_bytes'
    when 'PAYLOAD_MAX_BYTES' then 'payload_bytes'
    when 'RETENTION_DAYS' then 'retention_days'
    when 'RETENTION_DEAD_DAYS' then 'retention_days'
    when 'STREAMS_PER_TENANT' then 'streams'
    when 'STREAM_IDLE_SECONDS' then 'stream_idle'
  end;
begin
  if name = 'VALIDATE_PAYLOADS' then
    return case when value not in ('refuse', 'warn', 'off') then
      format('%s must be refuse, warn or off, not %s', name, quote_literal(left(value, 40)))
    end;
  end if;
  if bound is null then
    return null;
  end if;
  if value !~ '^ *[0-9]+([.][0-9]+)?([eE][-+]?[0-9]{1,2})? *$' or length(value) > 30 then
    return format('%s must be a number, not %s', name, quote_literal(left(value, 40)));
  end if;
  if value !~ '^ *[0-9]+ *$' and (select b.whole from bounds() b where b.name = bound) then
    return format('%s must be a whole number, not %s', name, quote_literal(left(value, 40)));
  end if;
  return bounds_fault(name, bound, value::numeric);
end
$$;

-- Refuse a value of a setting that is out of its bounds.
create or replace function refuse_setting() returns trigger
language plpgsql
set search_path from current
as $$
declare
  fault text := coalesce(setting_fault(new.name, new.value), setting_fault(new.name, new.default_value));
begin
  if fault is not null then
    raise exception '%', fault using errcode = 'HF002';
  end if;
  return new;
end
$$;

create or replace trigger usable before insert or update on settings
  for each row
  execute function refuse_setting();

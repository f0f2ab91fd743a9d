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
    when 'SCHEDULES_PER_TENANT' then 'schedules'
    when 'STREAM_IDLE_SECONDS' then 'stream_idle'
    when 'FAST_TIMEOUT_SECONDS' then 'timeout'
    when 'GENERAL_TIMEOUT_SECONDS' then 'timeout'
    when 'SHUTDOWN_GRACE_PERIOD_SECONDS' then 'delay'
    when 'RETRY_BASE_SECONDS' then 'backoff_base'
    when 'RETRY_FACTOR' then 'backoff_factor'
    when 'RETRY_MAX_SECONDS' then 'backoff_max'
    when 'RETRY_JITTER' then 'backoff_jitter'
    when 'CIRCUIT_FAILURE_THRESHOLD' then 'failure_threshold'
    when 'CIRCUIT_OPEN_SECONDS' then 'circuit_open'
    when 'BACKOFF_BASE_SEC' then 'backoff_base'
    when 'BACKOFF_MAX_SEC' then 'backoff_max'
  end;
  choices text[] := case name
    when 'VALIDATE_PAYLOADS' then array['refuse', 'warn', 'off']
    when 'DRAIN_POLICY' then array['auto', 'pause', 'requeue']
  end;
begin
  if choices is not null then
    return case when value <> all (choices) then
      format('%s must be %s, %s or %s, not %s', name, choices[1], choices[2], choices[3], quote_literal(left(value, 40)))
    end;
  end if;
  if name = 'LANE_TIMEOUTS' and value <> '' then
    return coalesce((
      select case
        when part.text !~ '^[A-Za-z0-9][A-Za-z0-9_.-]{0,39}=[0-9]{1,9}([.][0-9]{1,9})?$' then
          format('LANE_TIMEOUTS must look like reports=7200,imports=1800, not %s', quote_literal(left(value, 40)))
        when split_part(part.text, '=', 1) in ('fast', 'general') then
          format('LANE_TIMEOUTS must not name %1$s, which has %2$s_TIMEOUT_SECONDS', split_part(part.text, '=', 1),
            upper(split_part(part.text, '=', 1)))
        else bounds_fault('LANE_TIMEOUTS must be lengths: ' || split_part(part.text, '=', 1), 'timeout',
          split_part(part.text, '=', 2)::numeric)
      end as fault
      from regexp_split_to_table(value, ',') as part (text)
      order by 1 nulls last
      limit 1), (
      select 'LANE_TIMEOUTS must name each lane once: ' || split_part(part.text, '=', 1)
      from regexp_split_to_table(value, ',') as part (text)
      group by split_part(part.text, '=', 1)
      having count(*) > 1
      order by 1
      limit 1));
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

-- Refuse to delete settings: without its row a setting has no default, and every claim would fail.
create or replace function keep_settings() returns trigger
language plpgsql
set search_path from current
as $$
begin
  raise exception 'rows of settings cannot be deleted; to reset a setting, set its value to null'
    using errcode = 'HF002';
end
$$;

create or replace trigger kept before delete or truncate on settings
  for each statement
  execute function keep_settings();

-- All settings by name: the value that is in force for the caller's session, and where it comes from.
create or replace function list_settings(only_name text default null) returns table (
  name text, value text, origin text, default_value text, description text, updated_at timestamptz, updated_by text
)
language sql security definer stable
set search_path from current
as $$
  select s.name, setting(s.name),
    case
      when s.value is not null then 'database'
      when own_setting(s.name) is not null then 'environment'
      else 'default'
    end,
    s.default_value, s.description, s.updated_at, s.updated_by
  from settings s
  where only_name is null or s.name = only_name
  order by s.name
$$;

-- The settings that the database has a value for, as a running worker learns them with each heartbeat. Where there is
-- none, its own environment counts, which a connection through a pooler does not have. Roles: worker.
create or replace function worker_settings() returns jsonb
language sql security definer stable
set search_path from current
as $$
  select coalesce(jsonb_object_agg(s.name, s.value), '{}') from settings s where s.value is not null
$$;

-- Store a value for a setting, or (null) remove it, so that environment and default apply. Answers whether anything changed; null
-- if there is no such setting. Roles: operator.
create or replace function change_setting(
  name text, value text, by text, note text default null, by_key uuid default null
) returns boolean
language plpgsql security definer
set search_path from current
as $$
#variable_conflict use_column
declare
  before settings;
begin
  perform check_signed(by, note);
  select s.* into before from settings s where s.name = change_setting.name for update;
  if not found then
    return null;
  elsif before.value is not distinct from change_setting.value then
    return false;
  end if;
  update settings s
  set value = change_setting.value, updated_at = now(), updated_by = by
  where s.name = change_setting.name;
  perform note_audit(
    by, by_key, null, case when value is null then 'setting.reset' else 'setting.set' end, change_setting.name,
    jsonb_strip_nulls(jsonb_build_object('from', before.value, 'to', value, 'note', note)));
  return true;
end
$$;

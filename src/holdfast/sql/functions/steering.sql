-- What people decide about queues, types, lanes, tenants and everything while all runs: pause, resume, limits, weights.
-- Moves: none; a pause stops claims, and what runs goes on. Roles: operator.
--
-- Every change is written to the audit log by the same transaction, and ends with a word to all workers, which look
-- anew at what they may claim. A row of `controls` that says nothing any more is deleted.

-- Stop claims. What is paused already stays as it is, with who did it and why. Answers whether anything changed.
create or replace function pause_scope(
  kind text, name text, by text, note text default null, by_key uuid default null
) returns boolean
language plpgsql security definer
set search_path from current
as $$
#variable_conflict use_column
begin
  perform check_scope(pause_scope.kind, pause_scope.name, array['queue', 'type', 'lane', 'tenant', 'everything']);
  if length(pause_scope.note) > 1000 then
    raise exception 'a reason must have at most 1000 characters' using errcode = 'HF002';
  end if;
  insert into controls as c (kind, name, paused_at, paused_by, paused_note, updated_by)
  values (pause_scope.kind, pause_scope.name, now(), pause_scope.by, pause_scope.note, pause_scope.by)
  on conflict on constraint controls_pkey do update
    set paused_at = excluded.paused_at, paused_by = excluded.paused_by, paused_note = excluded.paused_note,
      updated_at = now(), updated_by = excluded.updated_by
    where c.paused_at is null;
  if not found then
    return false;
  end if;
  perform note_control(pause_scope.kind, pause_scope.name, 'pause', by, by_key, jsonb_build_object('note', note));
  return true;
end
$$;

-- Let claims go on. With `only_by`, only what was paused by somebody whose name begins with it. Answers whether anything
-- changed.
create or replace function resume_scope(
  kind text, name text, by text, note text default null, by_key uuid default null, only_by text default null
) returns boolean
language plpgsql security definer
set search_path from current
as $$
#variable_conflict use_column
declare
  paused controls;
begin
  perform check_scope(resume_scope.kind, resume_scope.name, array['queue', 'type', 'lane', 'tenant', 'everything']);
  select c.* into paused
  from controls c
  where c.kind = resume_scope.kind
    and c.name = resume_scope.name
    and c.paused_at is not null
    and (only_by is null or starts_with(c.paused_by, only_by))
  for update;
  if not found then
    return false;
  end if;
  update controls c
  set paused_at = null, paused_by = null, paused_note = null, updated_at = now(), updated_by = resume_scope.by
  where c.kind = resume_scope.kind and c.name = resume_scope.name;
  perform note_control(resume_scope.kind, resume_scope.name, 'resume', by, by_key, jsonb_build_object(
    'note', note, 'paused_by', paused.paused_by, 'paused_at', paused.paused_at));
  return true;
end
$$;

-- How many jobs may run at once, and start per time; null for no limit. Answers whether anything changed.
create or replace function set_limit(
  kind text, name text, limit_count integer, rate_count integer, rate_seconds double precision, by text,
  by_key uuid default null
) returns boolean
language plpgsql security definer
set search_path from current
as $$
#variable_conflict use_column
begin
  perform check_scope(set_limit.kind, set_limit.name, array['queue', 'type', 'tenant']);
  if set_limit.limit_count not between 0 and 10000 then
    raise exception 'a limit must be 0 to 10000' using errcode = 'HF002';
  elsif num_nulls(set_limit.rate_count, set_limit.rate_seconds) = 1
    or set_limit.rate_count not between 1 and 10000
    or set_limit.rate_seconds not between 0.001 and 31536000 then
    raise exception 'a rate must be 1 to 10000 jobs in 0.001 to 31536000 seconds' using errcode = 'HF002';
  end if;
  if num_nonnulls(set_limit.limit_count, set_limit.rate_count) = 0 and not exists (
    select from controls c where c.kind = set_limit.kind and c.name = set_limit.name) then
    return false;
  end if;
  insert into controls as c (kind, name, limit_count, rate_count, rate_seconds, updated_by)
  values (
    set_limit.kind, set_limit.name, set_limit.limit_count, set_limit.rate_count, set_limit.rate_seconds, set_limit.by)
  on conflict on constraint controls_pkey do update
    set limit_count = excluded.limit_count, rate_count = excluded.rate_count, rate_seconds = excluded.rate_seconds,
      updated_at = now(), updated_by = excluded.updated_by
    where (c.limit_count, c.rate_count, c.rate_seconds)
      is distinct from (excluded.limit_count, excluded.rate_count, excluded.rate_seconds);
  if not found then
    return false;
  end if;
  perform note_control(set_limit.kind, set_limit.name, 'limit', by, by_key, jsonb_build_object(
    'limit', set_limit.limit_count, 'rate_count', set_limit.rate_count, 'rate_seconds', set_limit.rate_seconds));
  return true;
end
$$;

-- A tenant's share where tenants compete; null for the usual one, which is 1. Answers whether anything changed.
create or replace function set_weight(tenant text, weight double precision, by text, by_key uuid default null)
returns boolean
language plpgsql security definer
set search_path from current
as $$
#variable_conflict use_column
begin
  perform check_scope('tenant', set_weight.tenant, array['tenant']);
  if set_weight.weight not between 0.001 and 1000 then
    raise exception 'a weight must be 0.001 to 1000' using errcode = 'HF002';
  end if;
  if set_weight.weight is null and not exists (
    select from controls c where c.kind = 'tenant' and c.name = set_weight.tenant) then
    return false;
  end if;
  insert into controls as c (kind, name, weight, updated_by)
  values ('tenant', set_weight.tenant, set_weight.weight, set_weight.by)
  on conflict on constraint controls_pkey do update
    set weight = excluded.weight, updated_at = now(), updated_by = excluded.updated_by
    where c.weight is distinct from excluded.weight;
  if not found then
    return false;
  end if;
  perform note_control('tenant', set_weight.tenant, 'weight', by, by_key,
    jsonb_build_object('weight', set_weight.weight));
  return true;
end
$$;

-- Raise unless there can be such a scope. Requests stand in the queue `holdfast`, and obey no pause.
create or replace function check_scope(kind text, name text, kinds text[]) returns void
language plpgsql immutable
as $$
begin
  if kind is null or kind <> all (kinds) then
    raise exception 'unknown kind %; known are %', kind, array_to_string(kinds, ', ') using errcode = 'HF002';
  elsif kind = 'everything' then
    if name is distinct from '' then
      raise exception 'everything has no name' using errcode = 'HF002';
    end if;
  elsif coalesce(length(name), 0) not between 1 and 200 then
    raise exception 'the name of a % must have 1 to 200 characters', kind using errcode = 'HF002';
  elsif kind = 'lane' and name not in ('fast', 'general') then
    raise exception 'unknown lane %; known are fast and general', name using errcode = 'HF002';
  elsif kind = 'queue' and name = 'holdfast' or kind = 'type' and starts_with(name, 'holdfast.') then
    raise exception 'what begins with "holdfast" belongs to maintenance' using errcode = 'HF002';
  end if;
end
$$;

-- What every change ends with.
create or replace function note_control(kind text, name text, verb text, by text, by_key uuid, detail jsonb)
returns void
language sql
set search_path from current
as $$
  delete from controls c
  where c.kind = note_control.kind
    and c.name = note_control.name
    and num_nonnulls(c.paused_at, c.limit_count, c.rate_count, c.weight) = 0;
  select note_audit(
    by, by_key, case when note_control.kind = 'tenant' then note_control.name end,
    note_control.kind || '.' || verb, nullif(note_control.name, ''), jsonb_strip_nulls(detail));
  select pg_notify(current_schema() || '.ready', '');
$$;

-- Ask that a job be canceled because a person has dealt with what it was about, and write down who did.
create or replace function resolve_job(
  id uuid, by text, note text default null, only_tenant text default null, by_key uuid default null
) returns text
language plpgsql security definer
set search_path from current
as $$
#variable_conflict use_column
declare
  answer text;
begin
  select r.outcome into answer
  from request('cancel', array[resolve_job.id], by, concat_ws(': ', 'resolved', note), only_tenant) r;
  if answer = 'accepted' then
    perform note_audit(by, by_key, (select j.tenant from jobs j where j.id = resolve_job.id), 'job.resolve',
      resolve_job.id::text, jsonb_strip_nulls(jsonb_build_object('note', note)));
  end if;
  return answer;
end
$$;

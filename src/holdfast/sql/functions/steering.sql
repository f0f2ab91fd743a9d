-- What people decide about queues, types, lanes, tenants and everything while all runs: pause, resume, limits, weights.
-- Moves: none; a pause stops claims, and what runs goes on. Roles: operator.
--
-- Every change is written to the audit log by the same transaction, and ends with a word to all workers, which look
-- anew at what they may claim. A row of `controls` that says nothing any more is deleted.

-- Stop claims in a queue, type, lane or tenant, or everywhere. What is paused already stays as it is, with who did it
-- and why; but a tenant's pause of its own, which the tenant may end, gives way to one by the installation's operators,
-- which it may not. `by_tenant` is the tenant in whose name its own operators pause it, null for the installation's;
-- `public` lets tenants read the reason. Answers whether anything changed.
create or replace function pause_scope_as(
  kind text, name text, by text, note text, by_key uuid, by_tenant text, public boolean
) returns boolean
language plpgsql security definer
set search_path from current
as $$
#variable_conflict use_column
declare
  replaced text;
begin
  perform check_scope(pause_scope_as.kind, pause_scope_as.name, array['queue', 'type', 'lane', 'tenant', 'everything']);
  perform check_texts(by, note);
  perform check_by_tenant(pause_scope_as.kind, pause_scope_as.name, by_tenant);
  select c.paused_by into replaced
  from controls c
  where c.kind = pause_scope_as.kind and c.name = pause_scope_as.name
  for update;
  insert into controls as c (kind, name, paused_at, paused_by, paused_note, paused_tenant, paused_public, updated_by)
  values (
    pause_scope_as.kind, pause_scope_as.name, now(), pause_scope_as.by, pause_scope_as.note, by_tenant,
    coalesce(public, false), pause_scope_as.by)
  on conflict on constraint controls_pkey do update
    set paused_at = excluded.paused_at, paused_by = excluded.paused_by, paused_note = excluded.paused_note,
      paused_tenant = excluded.paused_tenant, paused_public = excluded.paused_public, updated_at = now(),
      updated_by = excluded.updated_by
    where c.paused_at is null or (c.paused_tenant is not null and excluded.paused_tenant is null);
  if not found then
    return false;
  end if;
  perform note_control(pause_scope_as.kind, pause_scope_as.name, 'pause', by, by_key,
    jsonb_build_object('note', note, 'instead_of', replaced, 'public', nullif(public, false)));
  return true;
end
$$;

-- Let claims go on in a queue, type, lane or tenant, or everywhere. With `by_tenant`, only what that tenant's own
-- operators paused. Answers whether anything changed.
create or replace function resume_scope_as(
  kind text, name text, by text, note text, by_key uuid, by_tenant text
) returns boolean
language plpgsql security definer
set search_path from current
as $$
#variable_conflict use_column
declare
  paused controls;
begin
  perform check_scope(resume_scope_as.kind, resume_scope_as.name, array['queue', 'type', 'lane', 'tenant', 'everything']);
  perform check_texts(by, note);
  perform check_by_tenant(resume_scope_as.kind, resume_scope_as.name, by_tenant);
  select c.* into paused
  from controls c
  where c.kind = resume_scope_as.kind
    and c.name = resume_scope_as.name
    and c.paused_at is not null
    and (by_tenant is null or c.paused_tenant = by_tenant)
  for update;
  if not found then
    return false;
  end if;
  update controls c
  set paused_at = null, paused_by = null, paused_note = null, paused_tenant = null, paused_public = false,
    updated_at = now(), updated_by = resume_scope_as.by
  where c.kind = resume_scope_as.kind and c.name = resume_scope_as.name;
  perform note_control(resume_scope_as.kind, resume_scope_as.name, 'resume', by, by_key, jsonb_build_object(
    'note', note, 'paused_by', paused.paused_by, 'paused_at', paused.paused_at));
  return true;
end
$$;

-- A tenant's operators decide about their own tenant alone.
create or replace function check_by_tenant(kind text, name text, by_tenant text) returns void
language plpgsql immutable
as $$
begin
  if by_tenant is not null and (kind, name) is distinct from ('tenant', by_tenant) then
    raise exception 'operators of the tenant % can pause and resume that tenant alone', by_tenant using errcode = 'HF002';
  end if;
end
$$;

-- Stop claims in a queue, type, lane or tenant, or everywhere, for the installation's operators, and for servers of
-- older releases. These tell a tenant's operator by the beginning of a name, which does not count: the key does.
create or replace function pause_scope(
  kind text, name text, by text, note text default null, by_key uuid default null
) returns boolean
language sql security definer
set search_path from current
as $$
  select pause_scope_as(
    pause_scope.kind, pause_scope.name, by, note, by_key, tenant_of_key(pause_scope.kind, pause_scope.name, by_key), false)
$$;

-- Let claims go on in a queue, type, lane or tenant, or everywhere. Older servers name the tenant, with a slash behind
-- it, in `only_by`.
create or replace function resume_scope(
  kind text, name text, by text, note text default null, by_key uuid default null, only_by text default null
) returns boolean
language sql security definer
set search_path from current
as $$
  select case
    when only_by is null then resume_scope_as(resume_scope.kind, resume_scope.name, by, note, by_key, null)
    when (resume_scope.kind, only_by) is distinct from ('tenant', resume_scope.name || '/') then false
    else resume_scope_as(resume_scope.kind, resume_scope.name, by, note, by_key, resume_scope.name)
  end
$$;

-- The tenant whose operators a key that pauses this scope stands for; null for the installation's operators.
create or replace function tenant_of_key(kind text, name text, key_id uuid) returns text
language sql stable
set search_path from current
as $$
  select k.tenant
  from api_keys k
  where k.id = tenant_of_key.key_id
    and tenant_of_key.kind = 'tenant'
    and k.tenant = tenant_of_key.name
    and 'admin' <> all (k.scopes)
$$;

-- Set how many jobs may run at once, and start per time; null for no limit. Answers whether anything changed.
create or replace function set_limit(
  kind text, name text, limit_count integer, rate_count integer, rate_seconds double precision, by text,
  by_key uuid default null
) returns boolean
language sql security definer
set search_path from current
as $$
  select change_limits(kind, name, '{limit,rate}', limit_count, rate_count, rate_seconds, null, by, by_key)
$$;

-- Set a tenant's share where tenants compete; null for the usual one, which is 1. Answers whether anything changed.
create or replace function set_weight(tenant text, weight double precision, by text, by_key uuid default null)
returns boolean
language sql security definer
set search_path from current
as $$
  select change_limits('tenant', tenant, '{weight}', null, null, null, weight, by, by_key)
$$;

-- Set or clear (null) what `changes` names of `limit`, `rate` and, for a tenant, `weight`; the rest stays as it is,
-- whoever changes it at the same time. Answers whether anything changed.
create or replace function change_limits(
  kind text, name text, changes text[], limit_count integer, rate_count integer, rate_seconds double precision,
  weight double precision, by text, by_key uuid default null
) returns boolean
language plpgsql security definer
set search_path from current
as $$
#variable_conflict use_column
begin
  perform check_texts(by, null);
  perform check_limits(change_limits.kind, change_limits.name, changes, change_limits.limit_count,
    change_limits.rate_count, change_limits.rate_seconds, change_limits.weight);
  if num_nonnulls(change_limits.limit_count, change_limits.rate_count, change_limits.weight) = 0 and not exists (
    select from controls c where c.kind = change_limits.kind and c.name = change_limits.name) then
    return false;
  end if;
  insert into controls as c (kind, name, limit_count, rate_count, rate_seconds, weight, updated_by)
  values (
    change_limits.kind, change_limits.name, change_limits.limit_count, change_limits.rate_count,
    change_limits.rate_seconds, change_limits.weight, change_limits.by)
  on conflict on constraint controls_pkey do update
    set limit_count = case when 'limit' = any (changes) then excluded.limit_count else c.limit_count end,
      rate_count = case when 'rate' = any (changes) then excluded.rate_count else c.rate_count end,
      rate_seconds = case when 'rate' = any (changes) then excluded.rate_seconds else c.rate_seconds end,
      weight = case when 'weight' = any (changes) then excluded.weight else c.weight end,
      updated_at = now(), updated_by = excluded.updated_by
    where ('limit' = any (changes) and c.limit_count is distinct from excluded.limit_count)
      or ('rate' = any (changes)
        and (c.rate_count, c.rate_seconds) is distinct from (excluded.rate_count, excluded.rate_seconds))
      or ('weight' = any (changes) and c.weight is distinct from excluded.weight);
  if not found then
    return false;
  end if;
  perform note_control(
    change_limits.kind, change_limits.name, case changes when '{weight}' then 'weight' else 'limit' end, by, by_key,
    jsonb_build_object('limit', change_limits.limit_count, 'rate_count', change_limits.rate_count,
      'rate_seconds', change_limits.rate_seconds, 'weight', change_limits.weight));
  return true;
end
$$;

-- Raise unless these limits can be set. What is not to be changed must not be given.
create or replace function check_limits(
  kind text, name text, changes text[], limit_count integer, rate_count integer, rate_seconds double precision,
  weight double precision
) returns void
language plpgsql immutable
set search_path from current
as $$
declare
  fault text;
begin
  perform check_scope(kind, name, case
    when 'weight' = any (changes) then array['tenant'] else array['queue', 'type', 'tenant'] end);
  fault := case
    when not coalesce(changes <@ '{limit,rate,weight}' and cardinality(changes) > 0, false) then
      'what can be changed is limit, rate and weight'
    when limit_count is not null and 'limit' <> all (changes)
      or rate_count is not null and 'rate' <> all (changes)
      or weight is not null and 'weight' <> all (changes) then 'what is given must be named as a change'
    when limit_count not between 0 and 10000 then 'a limit must be 0 to 10000'
    when num_nulls(rate_count, rate_seconds) = 1
      or rate_count not between 1 and 10000
      or rate_seconds not between 0.001 and 2678400 then
      'a rate must be 1 to 10000 jobs in 0.001 to 2678400 seconds (31 days)'
    when weight not between 0.001 and 1000 then 'a weight must be 0.001 to 1000'
  end;
  if fault is not null then
    raise exception '%', fault using errcode = 'HF002';
  end if;
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
  elsif unprintable(name) then
    raise exception 'the name of a % must not contain control characters', kind using errcode = 'HF002';
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

-- Ask for something in an operator's name, as `request` and `release_held` do, and write down who did. To `resolve` a
-- job is to cancel it because a person has dealt with what it was about. The note stays among operators unless it is
-- `public`. Answers what became of the wish, and the job that runs now: another one where an ended job is retried.
create or replace function operator_request_as(
  verb text, id uuid, by text, note text, only_tenant text, by_key uuid, public boolean
) returns table (outcome text, runs_as uuid)
language plpgsql security definer
set search_path from current
as $$
#variable_conflict use_column
declare
  answer  text;
  created uuid;
begin
  if verb = 'release' then
    select r.outcome into answer from release_held(array[operator_request_as.id], by, only_tenant) r;
  else
    select r.outcome, r.request_id into answer, created
    from record_requests(
      case verb when 'resolve' then 'cancel' else verb end, array[operator_request_as.id], by, note,
      case when public then note end, only_tenant, true, verb = 'resolve') r;
  end if;
  created := case when answer = 'new-job' then created end;
  if answer in ('accepted', 'released', 'new-job') then
    perform note_audit(by, by_key, (select j.tenant from jobs j where j.id = operator_request_as.id), 'job.' || verb,
      operator_request_as.id::text,
      jsonb_strip_nulls(jsonb_build_object('note', note, 'public', nullif(public, false), 'runs_as', created)));
  end if;
  return query select answer, coalesce(created, operator_request_as.id);
end
$$;

-- Ask for something about a job, with a note for operators alone, as older servers do.
create or replace function operator_request(
  verb text, id uuid, by text, note text default null, only_tenant text default null, by_key uuid default null
) returns table (outcome text, runs_as uuid)
language sql security definer
set search_path from current
as $$
  select r.outcome, r.runs_as
  from operator_request_as(verb, operator_request.id, by, note, only_tenant, by_key, false) r
$$;

-- Ask in the same way that a job be resolved.
create or replace function resolve_job(
  id uuid, by text, note text default null, only_tenant text default null, by_key uuid default null
) returns text
language sql security definer
set search_path from current
as $$
  select r.outcome from operator_request_as('resolve', resolve_job.id, by, note, only_tenant, by_key, false) r
$$;

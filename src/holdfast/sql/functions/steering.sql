-- What operators set for queues, types, lanes, tenants and everything while jobs run: pauses, limits, weights.
-- Moves: none; a pause stops claims, and running jobs go on. Roles: operator.
--
-- The transaction of every change also writes it to the audit log, and ends with a notification to all workers, which
-- then look again at what they may claim. A row of `controls` without any value left is deleted.

-- Stop claims in a queue, type, lane or tenant, or everywhere. A subject that is already paused stays as it is, with
-- who did it and why. But a pause by the tenant's own operators, which they may end, is replaced by one by the
-- installation's operators, which they may not. `by_tenant` is the tenant whose own operators pause it, null for the
-- installation's; `public` lets tenants read the reason. Answers whether anything changed.
create or replace function pause_subject(
  kind text, name text, by text, reason text default null, by_key uuid default null, by_tenant text default null,
  public boolean default false
) returns boolean
language plpgsql security definer
set search_path from current
as $$
#variable_conflict use_column
declare
  replaced text;
begin
  perform check_subject(pause_subject.kind, pause_subject.name, array['queue', 'type', 'lane', 'tenant', 'everything']);
  perform check_texts(by, reason);
  perform check_by_tenant(pause_subject.kind, pause_subject.name, by_tenant);
  select c.paused_by into replaced
  from controls c
  where c.kind = pause_subject.kind and c.name = pause_subject.name
  for update;
  insert into controls as c (kind, name, paused_at, paused_by, paused_note, paused_tenant, paused_public, updated_by)
  values (
    pause_subject.kind, pause_subject.name, now(), pause_subject.by, pause_subject.reason, by_tenant,
    coalesce(public, false), pause_subject.by)
  on conflict on constraint controls_pkey do update
    set paused_at = excluded.paused_at, paused_by = excluded.paused_by, paused_note = excluded.paused_note,
      paused_tenant = excluded.paused_tenant, paused_public = excluded.paused_public, updated_at = now(),
      updated_by = excluded.updated_by
    where c.paused_at is null or (c.paused_tenant is not null and excluded.paused_tenant is null);
  if not found then
    return false;
  end if;
  perform note_steering(pause_subject.kind, pause_subject.name, 'pause', by, by_key,
    jsonb_build_object('note', reason, 'instead_of', replaced, 'public', nullif(public, false)));
  return true;
end
$$;

-- Let claims go on in a queue, type, lane or tenant, or everywhere. With `by_tenant`, only a pause by that tenant's own
-- operators is ended. Answers whether anything changed.
create or replace function resume_subject(
  kind text, name text, by text, reason text default null, by_key uuid default null, by_tenant text default null
) returns boolean
language plpgsql security definer
set search_path from current
as $$
#variable_conflict use_column
declare
  paused controls;
begin
  perform check_subject(resume_subject.kind, resume_subject.name, array['queue', 'type', 'lane', 'tenant', 'everything']);
  perform check_texts(by, reason);
  perform check_by_tenant(resume_subject.kind, resume_subject.name, by_tenant);
  select c.* into paused
  from controls c
  where c.kind = resume_subject.kind
    and c.name = resume_subject.name
    and c.paused_at is not null
    and (by_tenant is null or c.paused_tenant = by_tenant)
  for update;
  if not found then
    return false;
  end if;
  update controls c
  set paused_at = null, paused_by = null, paused_note = null, paused_tenant = null, paused_public = false,
    updated_at = now(), updated_by = resume_subject.by
  where c.kind = resume_subject.kind and c.name = resume_subject.name;
  perform note_steering(resume_subject.kind, resume_subject.name, 'resume', by, by_key, jsonb_build_object(
    'note', reason, 'paused_by', paused.paused_by, 'paused_at', paused.paused_at));
  return true;
end
$$;

-- Refuse operators of a tenant that pause or resume anything but their own tenant.
create or replace function check_by_tenant(kind text, name text, by_tenant text) returns void
language plpgsql immutable
as $$
begin
  if by_tenant is not null and (kind, name) is distinct from ('tenant', by_tenant) then
    raise exception 'operators of the tenant % can pause and resume only that tenant', by_tenant using errcode = 'HF002';
  end if;
end
$$;

-- Set how many jobs may run at once, and how many may start per time; null for no limit. Answers whether anything
-- changed.
create or replace function set_limit(
  kind text, name text, limit_count integer, rate_count integer, rate_seconds double precision, by text,
  by_key uuid default null
) returns boolean
language sql security definer
set search_path from current
as $$
  select change_limits(kind, name, '{limit,rate}', limit_count, rate_count, rate_seconds, null, by, by_key)
$$;

-- Set a tenant's weight where tenants compete; null for the default, which is 1. Answers whether anything changed.
create or replace function set_weight(tenant text, weight double precision, by text, by_key uuid default null)
returns boolean
language sql security definer
set search_path from current
as $$
  select change_limits('tenant', tenant, '{weight}', null, null, null, weight, by, by_key)
$$;

-- Set or clear (null) the values named in `changes`: `limit`, `rate` and, for a tenant, `weight`. The others stay as
-- they are, even if somebody changes them at the same time. Answers whether anything changed.
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
  perform note_steering(
    change_limits.kind, change_limits.name, case changes when '{weight}' then 'weight' else 'limit' end, by, by_key,
    jsonb_build_object('limit', change_limits.limit_count, 'rate_count', change_limits.rate_count,
      'rate_seconds', change_limits.rate_seconds, 'weight', change_limits.weight));
  return true;
end
$$;

-- Raise unless these limits can be set. A value that is not to be changed must not be given.
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
  perform check_subject(kind, name, case
    when 'weight' = any (changes) then array['tenant'] else array['queue', 'type', 'tenant'] end);
  fault := case
    when not coalesce(changes <@ '{limit,rate,weight}' and cardinality(changes) > 0, false) then
      'what can be changed is limit, rate and weight'
    when limit_count is not null and 'limit' <> all (changes)
      or rate_count is not null and 'rate' <> all (changes)
      or weight is not null and 'weight' <> all (changes) then '`changes` must name every value that is given'
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

-- Raise unless such a subject can exist. Requests are in the queue `holdfast`, and ignore pauses.
create or replace function check_subject(kind text, name text, kinds text[]) returns void
language plpgsql stable
set search_path from current
as $$
begin
  if kind is null or kind <> all (kinds) then
    raise exception 'unknown kind %; known are %', kind, array_to_string(kinds, ', ') using errcode = 'HF002';
  elsif kind = 'everything' then
    if name is distinct from '' then
      raise exception 'the kind everything takes no name' using errcode = 'HF002';
    end if;
  elsif coalesce(length(name), 0) not between 1 and 200 then
    raise exception 'the name of a % must have 1 to 200 characters', kind using errcode = 'HF002';
  elsif unprintable(name) then
    raise exception 'the name of a % must not contain control characters', kind using errcode = 'HF002';
  elsif kind = 'lane' and name not in (select l.lane from known_lanes() l) then
    raise exception 'unknown lane %; known are %', name,
      (select string_agg(l.lane, ', ' order by l.lane) from known_lanes() l) using errcode = 'HF002';
  elsif kind = 'queue' and name = 'holdfast' or kind = 'type' and is_request(name) then
    raise exception 'names beginning with "holdfast" are reserved for maintenance' using errcode = 'HF002';
  end if;
end
$$;

-- Finish a change: delete an empty row, write the audit log, notify workers.
create or replace function note_steering(kind text, name text, verb text, by text, by_key uuid, detail jsonb)
returns void
language sql
set search_path from current
as $$
  delete from controls c
  where c.kind = note_steering.kind
    and c.name = note_steering.name
    and num_nonnulls(c.paused_at, c.limit_count, c.rate_count, c.weight) = 0;
  select note_audit(
    by, by_key, case when note_steering.kind = 'tenant' then note_steering.name end,
    note_steering.kind || '.' || verb, nullif(note_steering.name, ''), jsonb_strip_nulls(detail));
  select pg_notify(current_schema() || '.ready', '');
$$;

-- Ask for something in an operator's name, as `request` and `release_held` do, and write down who did. To `resolve` a
-- job means to cancel it because a person has dealt with what it was about. Only operators see the note, unless it is
-- `public`. Answers the outcome, and the job that runs now: a new one if an ended job is retried.
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

-- Ask for something about a job, with a note for operators only, as older servers do.
create or replace function operator_request(
  verb text, id uuid, by text, note text default null, only_tenant text default null, by_key uuid default null
) returns table (outcome text, runs_as uuid)
language sql security definer
set search_path from current
as $$
  select r.outcome, r.runs_as
  from operator_request_as(verb, operator_request.id, by, note, only_tenant, by_key, false) r
$$;

-- Ask, as older servers do, that a job be resolved.
create or replace function resolve_job(
  id uuid, by text, note text default null, only_tenant text default null, by_key uuid default null
) returns text
language sql security definer
set search_path from current
as $$
  select r.outcome from operator_request_as('resolve', resolve_job.id, by, note, only_tenant, by_key, false) r
$$;

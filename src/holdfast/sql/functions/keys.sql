-- API keys and the audit log. Moves: none. Roles: client finds keys, operator manages them; only the functions write to
-- the log.

-- Create a key. The secret itself never comes here: its creator keeps it, and sends its SHA-256.
create or replace function create_key(
  id uuid, tenant text, name text, prefix text, digest bytea, scopes text[], lifetime_seconds double precision,
  requests_per_second double precision, max_waiting integer, by text, by_key uuid default null
) returns setof api_keys
language plpgsql security definer
set search_path from current
as $$
#variable_conflict use_column
begin
  if coalesce(length(create_key.tenant), 0) not between 1 and 200 then
    raise exception 'tenant must have 1 to 200 characters' using errcode = 'HF002';
  elsif coalesce(length(create_key.name), 0) not between 1 and 200 then
    raise exception 'the name of a key must have 1 to 200 characters' using errcode = 'HF002';
  elsif unprintable(create_key.tenant) or unprintable(create_key.name) then
    raise exception 'tenant and name of a key must not contain control characters' using errcode = 'HF002';
  elsif octet_length(create_key.digest) is distinct from 32 then
    raise exception 'the digest of a key must be a SHA-256' using errcode = 'HF002';
  elsif coalesce(cardinality(create_key.scopes), 0) = 0
    or not create_key.scopes <@ array['submit', 'read', 'work', 'operate', 'metrics', 'admin'] then
    raise exception 'scopes must be one or more of submit, read, work, operate, metrics and admin' using errcode = 'HF002';
  elsif lifetime_seconds <= 0 then
    raise exception 'the lifetime of a key must be positive' using errcode = 'HF002';
  end if;
  perform check_texts(by, null);
  perform check_seconds('lifetime_seconds', 'key_lifetime', array[create_key.lifetime_seconds]);
  perform check_seconds('requests_per_second', 'requests_per_second', array[create_key.requests_per_second]);
  perform note_audit(by, by_key, create_key.tenant, 'key.create', create_key.id::text,
    jsonb_build_object('name', create_key.name, 'scopes', create_key.scopes));
  return query
  insert into api_keys (
    id, tenant, name, prefix, digest, scopes, expires_at, requests_per_second, max_waiting, created_by)
  values (
    create_key.id, create_key.tenant, create_key.name, create_key.prefix, create_key.digest,
    array(select distinct scope from unnest(create_key.scopes) as scope order by scope),
    now() + make_interval(secs => lifetime_seconds), create_key.requests_per_second, create_key.max_waiting,
    create_key.by)
  returning *;
end
$$;

-- Create a key that replaces another one, which stays valid for a while. No row if the old key is unknown or not valid.
create or replace function rotate_key(
  old_id uuid, id uuid, prefix text, digest bytea, overlap_seconds double precision, by text, by_key uuid default null
) returns setof api_keys
language plpgsql security definer
set search_path from current
as $$
#variable_conflict use_column
declare
  old api_keys;
begin
  select k.* into old
  from api_keys k
  where k.id = old_id
    and k.replaced_by is null
    and is_valid_key(k.revoked_at, k.expires_at)
  for update;
  if not found then
    return;
  end if;
  perform check_seconds('overlap_seconds', 'delay', array[rotate_key.overlap_seconds]);
  return query
  select *
  from create_key(
    rotate_key.id, old.tenant, old.name, rotate_key.prefix, rotate_key.digest, old.scopes,
    extract(epoch from old.expires_at - old.created_at)::double precision, old.requests_per_second, old.max_waiting,
    by, by_key);
  update api_keys k
  set replaced_by = rotate_key.id,
    expires_at = least(k.expires_at, now() + make_interval(secs => overlap_seconds))
  where k.id = old_id;
  perform note_audit(by, by_key, old.tenant, 'key.rotate', old_id::text,
    jsonb_build_object('name', old.name, 'replaced_by', rotate_key.id));
end
$$;

-- End a key now. No row if it is unknown or has been revoked.
create or replace function revoke_key(key_id uuid, by text, by_key uuid default null) returns setof api_keys
language plpgsql security definer
set search_path from current
as $$
#variable_conflict use_column
declare
  key api_keys;
begin
  update api_keys k
  set revoked_at = now(), revoked_by = revoke_key.by
  where k.id = revoke_key.key_id and k.revoked_at is null
  returning k.* into key;
  if found then
    perform note_audit(by, by_key, key.tenant, 'key.revoke', key.id::text, jsonb_build_object('name', key.name));
    return next key;
  end if;
end
$$;

-- All keys, or those of one tenant, oldest first.
create or replace function list_keys(only_tenant text default null) returns setof api_keys
language sql security definer stable
set search_path from current
as $$
  select k.* from api_keys k where only_tenant is null or k.tenant = only_tenant order by k.created_at, k.id
$$;

-- A page of keys, oldest first, after the given one. Keys are never deleted, so it is always found.
create or replace function keys_after(only_tenant text, after uuid, max_keys integer) returns setof api_keys
language sql security definer stable
set search_path from current
as $$
  select k.*
  from api_keys k
  where (only_tenant is null or k.tenant = only_tenant)
    and (keys_after.after is null
      or (k.created_at, k.id) > (select last.created_at, last.id from api_keys last where last.id = keys_after.after))
  order by k.created_at, k.id
  limit max_keys
$$;

-- Whether a key is valid now.
create or replace function is_valid_key(revoked_at timestamptz, expires_at timestamptz) returns boolean
language sql stable
as $$
  select revoked_at is null and coalesce(expires_at > now(), true)
$$;

-- The key with this digest, if it is valid now; and whether any key exists, valid or not.
create or replace function find_key(digest bytea)
returns table (
  any_key boolean, id uuid, tenant text, name text, scopes text[], requests_per_second real, max_waiting integer,
  seconds_left double precision)
language sql security definer stable
set search_path from current
as $$
  select exists (select from api_keys), k.id, k.tenant, k.name, k.scopes, k.requests_per_second, k.max_waiting,
    extract(epoch from k.expires_at - now())::double precision
  from (values (true)) as always (row)
  left join api_keys k
    on k.digest = find_key.digest and is_valid_key(k.revoked_at, k.expires_at)
$$;

-- Issue a token that a browser's EventSource can use, because it cannot send a header with a key. The token stands for
-- the key with this digest, for the events of one job and for some seconds. It is not stored. Its last 32 bytes can be
-- computed only with the digest, and the token ends with the key. No row if the key is not valid now.
create or replace function issue_events_token(digest bytea, job_id uuid, seconds double precision)
returns table (token bytea, expires_at timestamptz)
language plpgsql security definer stable
set search_path from current
as $$
begin
  if not coalesce(seconds between 1 and 3600, false) then
    raise exception 'a token must be valid for 1 to 3600 seconds' using errcode = 'HF002';
  end if;
  return query
  select uuid_send(k.id) || int8send(till.second) || events_seal(k.digest, issue_events_token.job_id, till.second),
    to_timestamp(till.second)
  from api_keys k
  cross join lateral (select ceil(extract(epoch from now() + make_interval(secs => seconds)))::bigint as second) till
  where k.digest = issue_events_token.digest and is_valid_key(k.revoked_at, k.expires_at);
end
$$;

-- The key that an events token stands for, as `find_key` answers it, if both are valid now and the token is for this
-- job.
create or replace function find_events_token(key_id uuid, job_id uuid, till bigint, seal bytea)
returns table (
  any_key boolean, id uuid, tenant text, name text, scopes text[], requests_per_second real, max_waiting integer,
  seconds_left double precision)
language sql security definer stable
set search_path from current
as $$
  select exists (select from api_keys), k.id, k.tenant, k.name, k.scopes, k.requests_per_second, k.max_waiting,
    least(extract(epoch from k.expires_at - now()), till - extract(epoch from now()))::double precision
  from (values (true)) as always (row)
  left join api_keys k
    on k.id = find_events_token.key_id and is_valid_key(k.revoked_at, k.expires_at)
    and till > extract(epoch from now())
    -- Hashed, so that the time of the comparison tells nothing about the seal.
    and sha256(find_events_token.seal) = sha256(events_seal(k.digest, find_events_token.job_id, till))
$$;

-- The proof that this installation issued a token. Hashed twice with the secret in front, as in HMAC; all parts have
-- fixed lengths. Pure.
create or replace function events_seal(digest bytea, job_id uuid, till bigint) returns bytea
language sql immutable parallel safe
as $$
  select sha256(digest || sha256(digest || convert_to('holdfast events', 'UTF8') || uuid_send(job_id) || int8send(till)))
$$;

-- Record when keys were last used. Servers call this now and then, not with every request.
create or replace function touch_keys(key_ids uuid[]) returns void
language sql security definer
set search_path from current
as $$
  update api_keys k
  set last_used_at = now()
  from (select id from api_keys where id = any (key_ids) order by id for update skip locked) mine
  where k.id = mine.id
$$;

-- Set the caller's address and request id for what another function writes down. Answers `by` unchanged, so that the
-- call can be an argument of that function. Arguments are evaluated first, and the settings end with the transaction.
-- So no function needs parameters for the address and the request id, and a pooler between the statements does no harm.
create or replace function as_caller(by text, address text, request_id text) returns text
language plpgsql volatile
as $$
begin
  perform set_config('holdfast.caller_address', coalesce(left(address, 255), ''), true);
  perform set_config('holdfast.caller_request_id', coalesce(left(request_id, 128), ''), true);
  return by;
end
$$;

-- Write down what somebody did.
create or replace function note_audit(
  actor text, key_id uuid, tenant text, action text, subject text, detail jsonb default null
) returns void
language sql security definer
set search_path from current
as $$
  insert into audit_log (actor, key_id, tenant, action, subject, detail, address, request_id)
  values (
    coalesce(actor, 'unknown'), key_id, tenant, action, subject, detail,
    nullif(current_setting('holdfast.caller_address', true), ''),
    nullif(current_setting('holdfast.caller_request_id', true), ''))
$$;

-- What operators and keys did, newest first; `before` is the last id of the previous page. A detail that hand-written
-- SQL stored, and that is not an object every client can read, is left out: it must not break the reading of the
-- others.
create or replace function list_audit(
  only_tenant text default null, before bigint default null, max_entries integer default 50
) returns setof audit_log
language sql security definer stable
set search_path from current
as $$
  select a.id, a.at, a.actor, a.key_id, a.tenant, a.action, a.subject,
    case when jsonb_typeof(a.detail) = 'object' and is_storable(a.detail, 20000) then a.detail end,
    a.address, a.request_id
  from audit_log a
  where (before is null or a.id < before) and (only_tenant is null or a.tenant = only_tenant)
  order by a.id desc
  limit max_entries
$$;

-- Refuse every change of the audit log except additions.
create or replace function refuse_audit_change() returns trigger
language plpgsql
as $$
begin
  raise exception 'entries of the audit log cannot be changed or deleted' using errcode = 'HF001';
end
$$;

create or replace trigger audit_append_only before update or delete or truncate on audit_log
  for each statement
  execute function refuse_audit_change();

-- The maximal size of texts and JSON values that users give, and of one read of many rows. Moves: none.
--
-- JSON is measured by the text that PostgreSQL returns for it, because that is what every reader gets: a number as
-- short as 1e308 has 309 digits there. Nesting and the length of numbers are limited to what every client can read.

-- How large a payload may be, in bytes. Roles: api, worker, operator, client.
create or replace function payload_limit() returns bigint
language sql stable security definer
set search_path from current
as $$
  select setting('PAYLOAD_MAX_BYTES')::bigint
$$;

-- Whether a payload is so small that it breaks no limit: no limit is below 1024 bytes of text, and a level of nesting
-- takes 8 bytes. Hot functions check only this, so it is written such that PostgreSQL inlines it.
create or replace function is_small(value jsonb) returns boolean
language sql stable parallel safe
as $$
  select octet_length(value::text) <= 1024 and pg_column_size(value) <= 1500
$$;

-- Whether a JSON value can be stored: it is not too large, and every client can read it.
create or replace function is_storable(value jsonb, most bigint) returns boolean
language sql stable parallel safe
set search_path from current
as $$
  select json_fault('', value, most, '', '') is null
$$;

-- What is wrong with a JSON value, in words; null if nothing is.
create or replace function json_fault(what text, value jsonb, most bigint, limit_name text, advice text) returns text
language plpgsql stable parallel safe
set search_path from current
as $$
declare
  bytes bigint := octet_length(value::text);
begin
  return case
    when bytes > most then format('%s takes %s bytes as JSON, more than %s (%s): %s', what, bytes, limit_name, most, advice)
    when pg_column_size(value) > 1500 and jsonb_path_exists(value, 'strict $.**{190}') then
      format('%s has more than 190 levels of lists and objects', what)
    when bytes > 4300 and jsonb_path_exists(value, 'strict $.** ? (@ >= 1e4300 || @ <= -1e4300)') then
      format('%s contains a number of more than 4300 digits, which nobody could read again', what)
  end;
end
$$;

-- Refuse payloads that cannot be stored. The client library recognizes the error by the name of the constraint.
create or replace function check_payloads(types text[], payloads jsonb[]) returns void
language plpgsql stable
set search_path from current
as $$
declare
  most bigint;
  bad  record;
begin
  if not exists (select from unnest(payloads) as payload where not is_small(payload)) then
    return;
  end if;
  most := payload_limit();
  select job.payload, fault.text into bad
  from unnest(types, payloads) as job (type, payload)
  cross join lateral (
    select json_fault(
      'the payload of ' || job.type, job.payload, most, 'PAYLOAD_MAX_BYTES',
      'send less, store it elsewhere and send where it is, or raise the limit') as text
    offset 0) fault
  where fault.text is not null
  limit 1;
  if found then
    raise exception '%', bad.text using errcode = 'HF002',
      constraint = case when octet_length(bad.payload::text) > most then 'payload_max_bytes' else 'payload' end;
  end if;
end
$$;

-- Refuse names of callers and workers, and reasons, that are too long to be stored with every job that they concern.
create or replace function check_texts(who text, reason text) returns void
language plpgsql immutable
as $$
begin
  if length(who) > 500 then
    raise exception '`by` must have at most 500 characters' using errcode = 'HF002';
  elsif length(reason) > 1000 then
    raise exception 'a reason must have at most 1000 characters' using errcode = 'HF002';
  end if;
end
$$;

-- How many bytes of text one read of many rows returns. Then it ends, after at least one row.
create or replace function page_bytes() returns integer
language sql immutable parallel safe
as $$
  select 1048576
$$;

-- Job types that take no new jobs from anybody. Jobs that were accepted before still run, are retried and are resumed.
-- Moves: none. Roles: operator.

-- Close a job type to new jobs. Answers whether anything changed: a closed type keeps the name and reason of the first
-- call.
create or replace function close_type(name text, by text, note text default null, by_key uuid default null)
returns boolean
language plpgsql security definer
set search_path from current
as $$
#variable_conflict use_column
begin
  perform check_subject('type', close_type.name, array['type']);
  perform check_signed(by, note);
  insert into closed_types (name, closed_by, closed_note)
  values (close_type.name, by, note)
  on conflict do nothing;
  if not found then
    return false;
  end if;
  perform note_audit(
    by, by_key, null, 'type.close', close_type.name, jsonb_strip_nulls(jsonb_build_object('note', note)));
  return true;
end
$$;

-- Open a job type to new jobs again. Answers whether anything changed.
create or replace function open_type(name text, by text, note text default null, by_key uuid default null)
returns boolean
language plpgsql security definer
set search_path from current
as $$
#variable_conflict use_column
declare
  closed closed_types;
begin
  perform check_subject('type', open_type.name, array['type']);
  perform check_texts(by, note);
  delete from closed_types c where c.name = open_type.name returning c.* into closed;
  if not found then
    return false;
  end if;
  perform note_audit(by, by_key, null, 'type.open', open_type.name, jsonb_strip_nulls(jsonb_build_object(
    'note', note, 'closed_by', closed.closed_by, 'closed_at', closed.closed_at)));
  return true;
end
$$;

-- Job types that take no new jobs, by name.
create or replace function list_closed_types() returns setof closed_types
language sql security definer stable
set search_path from current
as $$
  select c.* from closed_types c order by c.name
$$;

-- Raise if one of these types is closed, and say who closed it and why. Positions in `taken` are not new jobs: their
-- idempotency key already has a job, which answers them.
create or replace function refuse_closed(types text[], taken integer[]) returns void
language plpgsql stable
set search_path from current
as $$
#variable_conflict use_column
declare
  closed closed_types;
begin
  select c.* into closed
  from unnest(types) with ordinality as job (type, position)
  join closed_types c on c.name = job.type
  where job.position <> all (taken)
  order by job.position
  limit 1;
  if found then
    raise exception 'the job type % takes no new jobs: it was closed%', closed.name,
      told(left(closed.closed_by, 500), closed.closed_at, left(closed.closed_note, 1000))
      using errcode = 'HF001', constraint = 'type_closed';
  end if;
end
$$;

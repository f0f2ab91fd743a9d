-- Lock everything that a migration may change, all at once and before anything is changed: a lock that is raised
-- half-way meets sessions that hold a weaker one and wait for something else. The order is that of the engine's
-- functions where they agree (what is only read, then entries and leases, then jobs and what belongs to them). They do
-- not agree everywhere, and neither do users' transactions: after a deadlock the migration is repeated.

do $$
declare
  relation record;
  tables   text;
begin
  -- A session that reads a view locks it and waits for its tables. `lock table` would lock those too, before their
  -- turn.
  for relation in
    select c.relname as name
    from pg_class c
    where c.relnamespace = to_regnamespace(current_schema()) and c.relkind = 'v' and c.relowner = to_regrole(quote_ident(current_user))
    order by 1
  loop
    execute format('alter view %I owner to current_user', relation.name);
  end loop;

  select string_agg(format('%I', c.relname), ', ' order by first.position nulls last, c.relname) into tables
  from pg_class c
  left join unnest(array[
    'settings', 'controls', 'job_types', 'streams', 'workers', 'leaders', 'idempotency_keys', 'parked', 'ready', 'leases',
    'beginnings', 'due', 'calls', 'jobs', 'heads', 'waiting', 'permits', 'job_attempts', 'job_events', 'dead_letters',
    'job_items', 'job_progress']) with ordinality as first (name, position) on first.name = c.relname
  where c.relnamespace = to_regnamespace(current_schema()) and c.relkind in ('r', 'p')
    and c.relowner = to_regrole(quote_ident(current_user));
  if tables is not null then
    execute 'lock table ' || tables || ' in access exclusive mode';
  end if;
end
$$;

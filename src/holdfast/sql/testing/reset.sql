-- Back to an empty engine. Exists in schemas of the testing kit only.

-- Empty every table except those that a migration or an app fills. Open jobs end by a legal move, so the guard stays
-- on.
create function testing_clear() returns void
language plpgsql
set search_path from current
set lock_timeout = '5s'
as $$
declare
  name text;
begin
  update jobs set state = 'canceled' where state not in ('success', 'dead', 'canceled');
  for name in
    select c.relname
    from pg_class c
    where c.relnamespace = current_schema()::regnamespace
      and c.relkind in ('r', 'p')
      and c.relname not in (
        'schema_steps', 'schema_functions', 'settings', 'job_types', 'payload_shapes', 'testing_clock', 'audit_log')
    order by c.relname
  loop
    execute format('delete from %I', name);
  end loop;
  -- The audit log is append-only except here.
  if exists (select from audit_log) then
    alter table audit_log disable trigger audit_append_only;
    delete from audit_log;
    alter table audit_log enable trigger audit_append_only;
  end if;
end
$$;

-- As above, and reset job types, settings and time.
create function testing_reset() returns void
language sql
set search_path from current
as $$
  select testing_clear();
  delete from job_types;
  delete from payload_shapes;
  update settings set value = null, updated_at = null, updated_by = null where value is not null;
  update testing_clock set shift = '0', frozen_at = null where shift <> '0' or frozen_at is not null;
$$;

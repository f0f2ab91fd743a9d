-- Give the engine's objects back to their owner. After a restore with --no-owner they belong to the login that restored
-- them, and functions that run with their owner's rights would run with that login's. Objects of others stay theirs.

do $$
declare
  restorer oid;
  places   oid[];
  command  text;
begin
  select c.relowner, array[c.relnamespace, to_regnamespace('holdfast_views')] into restorer, places
  from pg_class c
  where c.oid = to_regclass('holdfast.schema_steps');
  if restorer is null or pg_get_userbyid(restorer) = 'holdfast_owner' then
    return;
  end if;
  for command in
    select format('alter schema %I owner to holdfast_owner', n.nspname)
    from pg_namespace n
    where n.oid = any (places) and n.nspowner = restorer
    union all
    select format('alter %s %s owner to holdfast_owner',
      case c.relkind when 'S' then 'sequence' when 'v' then 'view' when 'c' then 'type' else 'table' end,
      c.oid::regclass)
    from pg_class c
    where c.relnamespace = any (places)
      and c.relowner = restorer
      and c.relkind in ('r', 'p', 'v', 'S', 'c')
      -- A sequence of a column belongs to its table.
      and not exists (
        select from pg_depend d
        where d.classid = 'pg_class'::regclass and d.objid = c.oid and c.relkind = 'S' and d.deptype in ('a', 'i'))
    union all
    select format('alter routine %s owner to holdfast_owner', p.oid::regprocedure)
    from pg_proc p
    where p.pronamespace = any (places) and p.proowner = restorer
  loop
    execute command;
  end loop;
end
$$;

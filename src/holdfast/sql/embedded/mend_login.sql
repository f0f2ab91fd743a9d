-- The first embedded servers had a login named like the engine's schema. So "$user" in its search_path was that schema,
-- and users' tables were created among the engine's. From now on they are created in public. If such tables exist
-- already, the schema stays in the path, behind public, so that the programs that use them go on. Run in every
-- database; a search_path that somebody has chosen stays.
select
  not exists (
    select
    from pg_db_role_setting s
    join pg_roles r on r.oid = s.setrole
    cross join unnest(s.setconfig) as setting
    where r.rolname = :'login' and setting like 'search_path=%'
      and s.setdatabase in (0, (select d.oid from pg_database d where d.datname = current_database()))) as is_default,
  exists (
    select
    from pg_class c
    join pg_namespace n on n.oid = c.relnamespace
    where n.nspname = :'login' and c.relkind in ('r', 'p', 'v', 'm', 'f')
      and pg_get_userbyid(c.relowner) <> n.nspname || '_owner') as has_tables_of_users
\gset
\if :is_default
  \if :has_tables_of_users
    alter role :"login" in database :"DBNAME" set search_path = public, :"login";
  \else
    alter role :"login" in database :"DBNAME" set search_path = public;
  \endif
\endif

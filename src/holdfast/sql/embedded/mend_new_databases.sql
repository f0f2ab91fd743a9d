-- As mend_login, for databases that do not exist yet.
select not exists (
    select
    from pg_db_role_setting s
    join pg_roles r on r.oid = s.setrole
    cross join unnest(s.setconfig) as setting
    where r.rolname = :'login' and setting like 'search_path=%' and s.setdatabase = 0) as is_default
\gset
\if :is_default
  alter role :"login" set search_path = public;
\endif

-- name: current_step
-- The newest migration that was applied.
select coalesce(max(step), 0) from holdfast.schema_steps;

-- name: roles
-- Which of the engine's roles exist, and which this login may assume.
-- From PostgreSQL 16 on, the creator of a role is a member that may not assume it: there `set` is the right to check.
select r.name, p.oid is not null as exists, coalesce(pg_has_role(current_user, p.oid, mode.name), false) as member
from unnest($1::text[]) as r (name)
left join pg_roles p on p.rolname = r.name
cross join (
  select case when current_setting('server_version_num')::integer >= 160000 then 'set' else 'member' end as name) mode;

-- name: missing_rights
-- Rights that the engine's roles lack, the owners of objects that must belong to the engine's owner, and functions that
-- everybody may call, in the engine's schema and in the one with operators' views. $1 is the schema, $2 and $3 are
-- functions, tables and views, those of operators with their schema, and the role that needs them. Only rights that were granted to the role itself count:
-- rights of everybody will be revoked.
with place as (
  select n.oid, n.nspowner, n.nspacl, case n.nspname when $1::name then '' else n.nspname || '.' end as prefix,
    case n.nspname when $1::name then 'the schema' else 'the schema ' || n.nspname end as name
  from pg_namespace n
  where n.nspname in ($1::name, ($1 || '_views')::name)
), needed as (
  select n.name, n.role, r.oid as grantee
  from unnest($2::text[], $3::text[]) as n (name, role)
  left join pg_roles r on r.rolname = n.role
), object as (
  select p.proname::text as name, place.prefix, place.oid as place, p.proowner as owner,
    coalesce(p.proacl, acldefault('f', p.proowner)) as rights, 'EXECUTE' as right
  from pg_proc p
  join place on place.oid = p.pronamespace
  union all
  select c.relname, place.prefix, place.oid, c.relowner, coalesce(c.relacl, acldefault('r', c.relowner)), 'SELECT'
  from pg_class c
  join place on place.oid = c.relnamespace
  where c.relkind in ('r', 'v')
)
select needed.role || ' may not ' || case object.right when 'SELECT' then 'read' else 'call' end as fault,
  object.prefix || object.name as name
from needed
join object on object.prefix || object.name = needed.name
where not exists (
  select from aclexplode(object.rights) a where a.grantee = needed.grantee and a.privilege_type = object.right)
union all
select distinct needed.role || ' may not use', place.name
from needed
join object on object.prefix || object.name = needed.name
join place on place.oid = object.place
where not exists (
  select from aclexplode(place.nspacl) a where a.grantee = needed.grantee and a.privilege_type = 'USAGE')
union all
select 'everybody may call', object.prefix || object.name
from object
where exists (select from aclexplode(object.rights) a where a.grantee = 0 and a.privilege_type = 'EXECUTE')
union all
select pg_get_userbyid(c.relowner) || ' owns', owned.name
from place
join pg_class c on c.relnamespace = place.oid and c.relname = 'schema_steps'
join (
  select object.prefix || object.name as name, object.owner from object
  union all
  select place.name, place.nspowner from place) owned on owned.owner = c.relowner
where pg_get_userbyid(c.relowner) <> $1 || '_owner'
order by 1, 2;

-- name: login
-- What this login may do.
select current_user as name, r.rolsuper as superuser, r.rolcreaterole as may_create_roles,
  has_database_privilege(current_database(), 'create') as may_create_schemas, current_database() as database
from pg_roles r
where r.rolname = current_user;

-- name: function_checksums
-- The function files that were applied, with their checksums.
select name, checksum from holdfast.schema_functions;

-- name: has_steps
-- Whether the schema was ever migrated.
select to_regclass(format('%I.schema_steps', $1::text)) is not null;

-- name: applied_steps
-- Every migration that was applied.
select step, name, release, applied_at from holdfast.schema_steps order by step;

-- name: lock_migrations
-- Let one migration run at a time, per schema.
select pg_advisory_xact_lock(hashtext('holdfast migrations'), hashtext($1));

-- name: record_step
-- Record that a migration was applied.
insert into holdfast.schema_steps (step, name, release) values ($1, $2, $3);

-- name: record_function
-- Record that a function file was applied.
insert into holdfast.schema_functions as f (name, checksum, release)
values ($1, $2, $3)
on conflict on constraint schema_functions_pkey do update
  set checksum = excluded.checksum, release = excluded.release, applied_at = now();

-- name: newest_release
-- The newest release that wrote functions here.
select release from holdfast.schema_functions
union
select release from holdfast.schema_steps;

-- name: testing_clock
-- Whether the testing kit created this schema, where time can be moved and jobs are deleted.
select to_regclass(format('%I.testing_clock', $1::text)) is not null as present;

-- name: forgets_unasked
-- Whether the server does not wait for its disk although its own configuration does not say that this is intended. The
-- settings of a database or a role, or in the URL of this very session ($1), do not count. The name of the setting is
-- put together, because it stays the same in other schemas.
select current_setting('fsync') = 'off' and (
  $1::boolean
  or coalesce(lower(current_setting('holdfast' || '.allow_fsync_off', true)), '') not in ('on', 'true', 'yes', '1')
  or exists (
    select
    from pg_db_role_setting d
    cross join unnest(d.setconfig) as entry
    where lower(split_part(entry, '=', 1)) = 'holdfast' || '.allow_fsync_off'
      and (d.setdatabase = 0 or d.setdatabase = (select b.oid from pg_database b where b.datname = current_database()))
      and (d.setrole = 0 or pg_get_userbyid(d.setrole) = session_user))) as forgets;

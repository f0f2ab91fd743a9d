-- name: doctor_server
-- The server's version and the settings on which durability depends.
select current_setting('server_version_num')::integer as version, current_setting('server_version') as version_text,
  current_setting('fsync') as fsync, current_setting('full_page_writes') as full_page_writes,
  pg_is_in_recovery() as standby, clock_timestamp() as clock, current_user as login;

-- name: doctor_log
-- Settings that make the server log the values of statements: payloads, and what people search for.
select s.name || ' = ' || s.setting as setting
from pg_settings s
where (s.name = 'log_parameter_max_length_on_error' and s.setting <> '0')
  or (
    (s.name = 'log_statement' and s.setting = 'all'
      or s.name in ('log_min_duration_statement', 'log_min_duration_sample') and s.setting <> '-1'
      or s.name = 'log_transaction_sample_rate' and s.setting <> '0')
    and current_setting('log_parameter_max_length') <> '0')
order by 1;

-- name: doctor_collation
-- Whether the database's collation is still the one with which its indexes were built: both versions, if known.
select d.datcollversion as recorded, pg_database_collation_actual_version(d.oid) as actual
from pg_database d
where d.datname = current_database();

-- name: doctor_guards
-- Triggers that refuse illegal changes and make commits durable: those that are disabled or missing.
with needed (relation, trigger) as (
  values ('jobs', 'guard_insert'), ('jobs', 'guard_update'), ('jobs', 'guard_delete'), ('jobs', 'guard_truncate'),
    ('jobs', 'guard_names'), ('jobs', 'note_created'), ('streams', 'guard_names'), ('streams', 'guard_delete'), ('streams', 'printable'),
    ('settings', 'usable'), ('settings', 'kept'),
    ('jobs', 'secured_insert'), ('jobs', 'secured_update'), ('audit_log', 'audit_append_only'),
    ('controls', 'controls_begin_limit'), ('job_types', 'job_types_begin_limit')
  union all
  select unnest(array[
    'jobs', 'leases', 'beginnings', 'idempotency_keys', 'job_progress', 'job_items', 'dead_letters', 'job_types', 'settings',
    'controls', 'closed_types', 'api_keys', 'audit_log', 'clock_steps', 'bulks', 'circuits',
    'schedules']), 'durable'
  union all
  select unnest(array[
    'idempotency_keys', 'job_progress', 'dead_letters', 'settings', 'controls', 'closed_types', 'api_keys',
    'audit_log', 'bulks', 'circuits', 'schedules']), 'secured'
), found as (
  select c.relname::text as relation, t.tgname::text as trigger, t.tgenabled in ('D', 'R') as off
  from pg_trigger t
  join pg_class c on c.oid = t.tgrelid
  join pg_namespace n on n.oid = c.relnamespace
  where n.nspname = $1::name and not t.tgisinternal
)
select trigger || ' on ' || relation || case when off then ' is off' else ' is missing' end as fault
from needed
full join found using (relation, trigger)
where coalesce(off, true)
order by 1;

-- name: doctor_names
-- Whether a plain session of this login finds the engine's tables by their bare names, and who else has tables there.
select
  $1::name = any (current_schemas(false)) as in_path,
  $1::name = current_user as same_name,
  array(
    select c.relname::text
    from pg_class c
    join pg_namespace n on n.oid = c.relnamespace
    where n.nspname = $1::name and c.relkind in ('r', 'p', 'v', 'm', 'f') and c.relname <> 'testing_clock'
      and pg_get_userbyid(c.relowner) <> $1 || '_owner'
      -- After a restore, all of the engine's own tables may belong to another role.
      and c.relowner is distinct from (
        select s.relowner from pg_class s where s.relnamespace = c.relnamespace and s.relname = 'schema_steps')
    order by 1) as foreign_tables;

-- name: overruled_settings
-- Settings that make commits less durable, or snapshots longer, than Holdfast expects: for this session, for the
-- database, or for a role in it.
with said as (
  select s.name, s.setting as value, case s.source
      when 'configuration file' then 'the server''s configuration'
      when 'command line' then 'the server''s command line'
      when 'global' then 'the server''s configuration'
      else 'the connection (' || s.source || ')'
    end as origin
  from pg_settings s
  where s.source not in ('default', 'database', 'user', 'database user')
  union all
  select split_part(entry, '=', 1), substr(entry, strpos(entry, '=') + 1), concat_ws(' in ',
    case when d.setrole <> 0 then 'role ' || pg_get_userbyid(d.setrole) end,
    case when d.setdatabase <> 0 then 'database ' || b.datname end)
  from pg_db_role_setting d
  cross join unnest(d.setconfig) as entry
  left join pg_database b on b.oid = d.setdatabase
  where d.setdatabase = 0 or b.datname = current_database()
)
select name, value, origin
from said
where (name = 'synchronous_commit' and value in ('off', 'local'))
  or (name = 'default_transaction_isolation' and value not in ('read committed', 'read uncommitted'))
order by name, origin;

-- name: doctor_notify
-- Send a notification to this process.
select pg_notify($1, $2);

-- name: doctor_old_snapshots
-- Sessions and prepared transactions that have kept dead rows from being vacuumed for longer than the given seconds.
select 'connection ' || a.pid as holder, a.application_name as name, coalesce(a.state, '') as state,
  extract(epoch from now() - a.xact_start)::double precision as seconds
from pg_stat_activity a
where a.xact_start < now() - make_interval(secs => $1::double precision)
  and a.backend_type = 'client backend'
  and (a.backend_xmin is not null or a.backend_xid is not null)
union all
select 'prepared transaction', p.gid, 'prepared', extract(epoch from now() - p.prepared)::double precision
from pg_prepared_xacts p
where p.prepared < now() - make_interval(secs => $1::double precision)
order by 4 desc;

-- name: doctor_dead_rows
-- Live and dead rows of the busy tables, from the statistics.
select t.relname as name, t.n_live_tup as live, t.n_dead_tup as dead
from pg_stat_user_tables t
where t.schemaname = $1 and t.relname in ('ready', 'leases', 'due')
order by 1;

-- name: doctor_work
-- Ready jobs of users, how many of them wait for a permit of their key (are parked), workers with a recent heartbeat,
-- whether maintenance has a leader, and how many bulk operations wait for one.
select
  count.ready, count.parked,
  (select count(*) from holdfast.workers w
    where w.heartbeat_at between now() - make_interval(secs => $1::double precision) and now() + interval '5 seconds') as workers,
  exists (
    select from holdfast.leaders l
    where l.name = 'maintenance' and l.expires_at between now() and now() + interval '1 minute') as led,
  (select l.report::text from holdfast.leaders l where l.name = 'maintenance') as report,
  (select count(*) from holdfast.due d where d.run_at < now() - interval '10 seconds') as overdue,
  (select count(*) from holdfast.bulks b where b.state in ('fixing', 'running', 'stopping')) as bulks
from (
  select count(*) as ready, count(*) filter (where holdfast.is_parked(r.stream)) as parked
  from holdfast.ready r
  left join holdfast.streams s on s.id = holdfast.stream_of(r.stream)
  where s.queue is distinct from 'holdfast') count;

-- name: doctor_unhandled
-- Types and queues with ready jobs of a tenant that no live worker serves.
select s.type, s.queue, s.tenant
from holdfast.streams s
where s.queue <> 'holdfast'
  and exists (select from holdfast.ready r where r.stream = any (holdfast.entry_streams(s.id)))
  and not exists (
    select
    from holdfast.workers w
    where w.heartbeat_at between now() - make_interval(secs => $1::double precision) and now() + interval '5 seconds'
      and s.type = any (w.types)
      and (w.queues is null or s.queue = any (w.queues))
      and (w.tenants is null or s.tenant = any (w.tenants)))
order by 1, 2, 3
limit 20;

-- name: doctor_blocked
-- How many of the first targets are blocked, and some of them: the job at the head, who stopped it, and why.
with blocked as materialized (
  select visited.tenant, visited.target
  from (select h.tenant, h.target, h.job_id from holdfast.heads h order by h.tenant, h.target limit $1) visited
  join holdfast.jobs j on j.id = visited.job_id
  where j.state in ('paused', 'error')
), first as (
  select array_agg(b.tenant) as tenants, array_agg(b.target) as targets
  from (select * from blocked order by tenant, target limit 3) b
)
select s.tenant, s.target, s.state, s.job_id, holdfast.readable(s.since) as since, left(s.by, 500) as by,
  left(coalesce(s.note, s.last_error), 1000) as why, (select count(*) from blocked) as count
from first
cross join lateral holdfast.show_targets(first.tenants, first.targets) s
order by s.tenant, s.target;

-- name: doctor_repairs
-- What was found inconsistent and mended, by kind.
select r.kind, r.count, r.last_at from holdfast.repairs r order by r.kind;

-- name: doctor_letters
-- How many dead letters nobody has acknowledged, and when the oldest of them was written.
select count(*) as count, holdfast.readable(min(d.died_at)) as oldest
from holdfast.dead_letters d
where d.acknowledged_at is null;

-- name: doctor_held
-- How many jobs are held in error, and since when the oldest of them is, among the first that fail.
select count(*) as count, holdfast.readable(min(j.last_error_at)) as oldest
from (
  (select f.job_id from holdfast.failing f limit $1)
  union
  (select f.job_id from holdfast.failures f limit $1)) failing
cross join lateral (
  select j.last_error_at from holdfast.jobs j where j.id = failing.job_id and j.state = 'error' offset 0) j;

-- name: doctor_schedules
-- Schedules that could not fire, that are late, or that missed fire times within a day; some, and how many there are.
select s.tenant, s.name, s.failures, s.last_error, s.look_at < now() - interval '1 minute' as late,
  s.missed_at > now() - interval '1 day' as missed, count(*) over () as count
from holdfast.schedules s
where s.retired_at is null
  and (s.failures > 0 or s.look_at < now() - interval '1 minute' or s.missed_at > now() - interval '1 day')
order by s.failures desc, s.tenant, s.name
limit 3;

-- name: doctor_pauses
-- What is paused, by whom and why: some, what stops most first, and how many there are.
select c.kind, c.name, holdfast.readable(c.paused_at) as since, left(c.paused_by, 500) as by, left(c.paused_note, 1000) as why,
  count(*) over () as count
from holdfast.controls c
where c.paused_at is not null and c.kind <> 'circuit'
order by c.kind <> 'everything', c.kind, c.name
limit 3;

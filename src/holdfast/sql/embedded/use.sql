-- How the embedded server is used: what is open now (connections, base backups and other replication, prepared
-- transactions), and how many sessions there were. Run in the database `postgres`: the question itself counts as a
-- session there.
select
  (select count(*)
    from pg_stat_activity a
    where a.backend_type in ('client backend', 'walsender') and a.pid <> pg_backend_pid())
  + (select count(*) from pg_prepared_xacts) as open,
  (select coalesce(sum(d.sessions), 0)
    from pg_stat_database d
    where d.datname <> current_database()) as sessions;

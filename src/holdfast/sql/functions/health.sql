-- Whether a job could be recorded now. Moves: none. Roles: client.
--
-- A connection or a successful read proves nothing: a standby, a read-only session and a full disk all answer queries.
-- So this does what recording a job needs, and leaves nothing behind that has to be vacuumed:
--   1. it is refused where a write would be refused;
--   2. it writes a megabyte to a temporary file beside the tables, which fails where they could not grow;
--   3. its commit writes, flushes and replicates a WAL record, as any other commit does.
create or replace function probe() returns boolean
language plpgsql security definer
set search_path from current
set work_mem = '64kB'
set temp_tablespaces = ''
as $$
begin
  if current_setting('transaction_read_only')::boolean then
    raise exception 'the session is read-only' using errcode = 'read_only_sql_transaction';
  end if;
  begin
    perform count(*)
    from (
      select md5(n::text) || repeat('.', 480) as line
      from generate_series(1, 2000) as n
      order by line
    ) as lines;
  exception
    when configuration_limit_exceeded then null;  -- temporary files are limited here, which says nothing about the disk
  end;
  perform pg_logical_emit_message(true, 'holdfast', 'probe');
  return true;
end
$$;

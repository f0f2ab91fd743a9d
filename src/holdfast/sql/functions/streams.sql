-- How streams are created, forgotten and brought back. Moves: none. Roles: worker (the duties); other functions call
-- the rest.
--
-- A row of `streams` tells workers to look there. Its number is permanent: jobs, entries and leases keep it, whether
-- the row exists or not. A stream that nobody has used for STREAM_IDLE_SECONDS is forgotten in steps, each in a
-- transaction of its own, because a transaction that is open now may have read the number, and use it for its job an
-- hour later:
--
-- 1. The stream is closed. From now on, enqueueing creates another stream for the same names, and workers are not
--    offered this one.
-- 2. Once no transaction has a snapshot older than that, it is marked as unseen: nobody will begin to use it any more.
-- 3. Once no transaction is left that may have begun before that, and the stream is still empty, the row is deleted.
--
-- A job that returns to such a number brings its stream back (`serve_streams`): a retry after a week, a job that was
-- released, resumed or handed back, the next job of a target, a late commit, an entry that was written by hand. Jobs
-- that only wait elsewhere (scheduled, retrying, paused, behind others of their target) do not keep a stream.
--
-- None of this takes a lock that anybody else waits for, and recording a job takes none at all: rows of `streams` that
-- somebody has locked are skipped, and left to the next walk.

-- How long a stream must be idle before it is forgotten.
create or replace function stream_idle() returns interval
language sql stable
set search_path from current
as $$
  select make_interval(secs => least(setting('STREAM_IDLE_SECONDS')::double precision, highest('stream_idle')))
$$;

-- The stream of each of these new jobs of a tenant, created if there is none; null for a job without a queue. Streams
-- are deliberately not unique: see the first migration. Requests do not count against the limit, so that anybody can
-- always ask to cancel something.
create or replace function find_streams(tenant text, queues text[], types text[]) returns integer[]
language plpgsql
set search_path from current
as $$
#variable_conflict use_column
declare
  homes      integer[] := array(
    select (
      select s.id
      from streams s
      where s.type = job.type and s.queue = job.queue and s.tenant = find_streams.tenant and s.closed_in is null
      order by s.id
      limit 1)
    from unnest(queues, types) with ordinality as job (queue, type, position)
    order by job.position);
  new_queues text[];
  new_types  text[];
  asked      integer;
  found      integer;
  most       integer;
begin
  if array_position(homes, null) is null then
    return homes;
  end if;
  select array_agg(lacking.queue), array_agg(lacking.type), count(*) filter (where lacking.queue <> 'holdfast')
  into new_queues, new_types, asked
  from (
    select distinct job.queue, job.type
    from unnest(queues, types, homes) as job (queue, type, home)
    where job.queue is not null and job.home is null
  ) lacking;

  if asked > 0 then
    most := setting('STREAMS_PER_TENANT');
    found := (
      select count(*)
      from (
        select
        from streams s
        where s.tenant = find_streams.tenant and s.closed_in is null and s.queue <> 'holdfast'
        limit most) counted);
    if found + asked > most then
      raise exception
        'tenant % has % combinations of queue and job type in use, and may have % (STREAMS_PER_TENANT): use fewer names of '
        'queues and job types, wait until idle ones are forgotten, or raise the limit', find_streams.tenant, found, most
        using errcode = 'HF002', constraint = 'streams_per_tenant';
    end if;
  end if;
  with made as (
    insert into streams (tenant, queue, type)
    select find_streams.tenant, name.queue, name.type
    from unnest(new_queues, new_types) as name (queue, type)
    order by 2, 3
    returning id, queue, type
  )
  select array_agg(coalesce(job.home, made.id) order by job.position) into homes
  from unnest(queues, types, homes) with ordinality as job (queue, type, home, position)
  left join made using (queue, type);
  return homes;
end
$$;

-- Serve these streams, which have waiting or running jobs: closed ones are opened, missing ones are created again under
-- their old numbers, and all of them count as used. If there is nothing to do, this costs one look. The names are taken
-- from the jobs: those in `examples`, or those with entries in the stream. Answers how many streams were brought back.
create or replace function serve_streams(ids integer[], examples uuid[] default null) returns integer
language plpgsql
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
#variable_conflict use_column
declare
  stale  timestamptz := now() - stream_idle() / 10;
  served integer;
  made   integer;
begin
  if not exists (
    select
    from unnest(ids) as asked (id)
    left join streams s on s.id = asked.id
    where s.id is null or s.closed_in is not null or s.used_at not between stale and now()
  ) then
    return 0;
  end if;

  with free as materialized (
    select s.id, s.closed_in
    from streams s
    where s.id = any (ids) and (s.closed_in is not null or s.used_at not between stale and now())
    order by s.id
    for update skip locked
  ), used as (
    update streams s
    set used_at = now(), closed_at = null, closed_in = null, unseen_in = null
    from free
    where s.id = free.id
  )
  select count(*) filter (where free.closed_in is not null) into served from free;

  -- An insert would wait for another session that creates the same row. The session with the lock creates it; others
  -- skip.
  with lost as materialized (
    select distinct asked.id
    from unnest(ids) as asked (id)
    where not is_parked(asked.id) and not exists (select from streams s where s.id = asked.id)
  ), named as materialized (
    select distinct on (lost.id) lost.id, j.tenant, j.queue, j.type
    from lost
    cross join lateral (
      select j.tenant, j.queue, j.type
      from jobs j
      where j.id = any (examples) and j.stream = lost.id
      union all
      (select j.tenant, j.queue, j.type
       from (
         select r.job_id from ready r where r.stream = any (entry_streams(lost.id)) limit 100) entry
       join jobs j on j.id = entry.job_id and j.stream = lost.id)
      limit 1) j
    order by lost.id
  )
  insert into streams (id, tenant, queue, type)
  overriding system value
  select named.id, named.tenant, named.queue, named.type
  from named
  where pg_try_advisory_xact_lock(hashtext(current_schema() || '.streams'), named.id)
  on conflict do nothing;
  get diagnostics made = row_count;
  return served + made;
end
$$;

-- Whether all of these streams are offered to workers.
create or replace function all_open(ids integer[]) returns boolean
language sql stable
set search_path from current
set enable_seqscan = off
as $$
  select not exists (
    select
    from unnest(ids) as asked (id)
    where not exists (select from streams s where s.id = asked.id and s.closed_in is null))
$$;

-- Serve streams to which jobs have returned, in case they were forgotten, and notify workers.
create or replace function wake_again(streams integer[]) returns void
language plpgsql
set search_path from current
as $$
begin
  -- Workers that do not know a stream would ignore a notification for it, for some seconds.
  if serve_streams(streams) > 0 then
    perform pg_notify(current_schema() || '.ready', '');
  else
    perform wake('ready', streams);
  end if;
end
$$;

-- Bring back the streams that have entries, walking from one to the next; those of parked entries come first.
-- Looks at up to `max_rows` of them after `after`, and answers where to go on: null at the end. Roles: worker.
create or replace function serve_ready(after text[] default null, max_rows integer default 1000)
returns table (mended integer, reached text[])
language plpgsql security definer
set search_path from current
set jit = off
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
#variable_conflict use_column
declare
  found integer[];
begin
  with recursive line as (
    (select r.stream, 1 as number
     from ready r
     where r.stream > coalesce(after[1]::integer, -2147483648)
     order by r.stream
     limit 1)
    union all
    select following.stream, line.number + 1
    from line
    cross join lateral (
      select r.stream from ready r where r.stream > line.stream order by r.stream limit 1) following
    where line.number < max_rows
  )
  select array_agg(line.stream order by line.number) into found from line;
  mended := serve_streams(array(select distinct stream_of(stream) from unnest(found) as stream));
  if mended > 0 then
    perform pg_notify(current_schema() || '.ready', '');
  end if;
  if cardinality(found) = max_rows then
    reached := array[found[max_rows]::text];
  end if;
  return next;
end
$$;

-- Forget idle streams. The walk visits leases first, because there is no index by which the running jobs of a stream
-- can be found: a stream with running jobs counts as used, and is not idle for the rest of this walk, however short the
-- idle time is. Then it visits the streams. Looks at up to `max_rows` rows after `after`, and answers how many streams
-- it deleted, and where to go on: null at the end. Roles: worker.
create or replace function forget_streams(after text[] default null, max_rows integer default 1000)
returns table (mended integer, reached text[])
language plpgsql security definer
set search_path from current
set datestyle = 'iso, ymd'
set jit = off
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
#variable_conflict use_column
declare
  began timestamptz := coalesce(after[3]::timestamptz, now());
  ids   uuid[];
  seen  integer[];
begin
  mended := 0;
  if after[1] = 'streams' then
    seen := array(
      select s.id from streams s where s.id > after[2]::integer order by s.id limit max_rows);
    mended := forget_among(seen, began);
    if cardinality(seen) = max_rows then
      reached := array['streams', seen[max_rows]::text, began::text];
    end if;
  else
    select array_agg(l.job_id), array_agg(l.stream) into ids, seen
    from (
      select l.job_id, l.stream
      from leases l
      where l.job_id > coalesce(after[2]::uuid, '00000000-0000-0000-0000-000000000000')
      order by l.job_id
      limit max_rows) l;
    if ids is not null then
      perform serve_streams(array(select distinct stream from unnest(seen) as stream), ids);
    end if;
    reached := case
      when cardinality(ids) = max_rows then array['leases', ids[max_rows]::text, began::text]
      else array['streams', '0', began::text]
    end;
  end if;
  return next;
end
$$;

-- Do one step for each of these streams that was used neither since the walk began nor within the idle time. A stream
-- with entries stays as it is. Every statement must have a snapshot of its own, newer than the look at open
-- transactions; in an isolation level where that is not so, nothing is done.
create or replace function forget_among(ids integer[], walk_began timestamptz) returns integer
language plpgsql
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
#variable_conflict use_column
declare
  idle    interval := stream_idle();
  since   timestamptz := least(now() - idle, walk_began);
  oldest  xid8;
  present xid8;
  gone    integer;
begin
  if current_setting('transaction_isolation') not in ('read committed', 'read uncommitted') then
    return 0;
  end if;
  if not exists (
    select from streams s
    where s.id = any (ids) and (s.closed_in is not null or s.used_at not between since and now())
  ) then
    return 0;
  end if;

  oldest := oldest_transaction();
  present := pg_snapshot_xmax(pg_current_snapshot());
  delete from streams s
  where s.ctid = any (array(
    select f.ctid
    from streams f
    where f.id = any (ids)
      and f.unseen_in < oldest
      -- Workers keep a list of streams for some seconds.
      and f.closed_at <= now() - least(idle, interval '1 minute')
      and not exists (select from ready r where r.stream = any (entry_streams(f.id)))
    for update skip locked));
  get diagnostics gone = row_count;

  -- A transaction number from the future comes from another server, from which this database was copied.
  update streams s
  set unseen_in = case when s.closed_in < oldest and s.unseen_in is null then pg_current_xact_id() end,
    closed_in = case when s.closed_in < present then s.closed_in else pg_current_xact_id() end
  where s.ctid = any (array(
    select f.ctid
    from streams f
    where f.id = any (ids)
      and f.closed_in is not null
      and (f.unseen_in is null and f.closed_in < oldest or greatest(f.closed_in, f.unseen_in) >= present)
    for update skip locked));

  update streams s
  set closed_in = case when s.used_at < now() then pg_current_xact_id() end,
    closed_at = case when s.used_at < now() then now() end,
    used_at = least(s.used_at, now())
  where s.ctid = any (array(
    select f.ctid
    from streams f
    where f.id = any (ids)
      and f.closed_in is null
      and f.used_at not between since and now()
      and not exists (select from ready r where r.stream = any (entry_streams(f.id)))
      -- A stream with names that are not allowed any more could not be created again.
      and not (unprintable(f.tenant) or unprintable(f.queue) or unprintable(f.type))
    for update skip locked));
  return gone;
end
$$;

-- The oldest transaction that is open in this database, or whose end another session does not see; if there is none,
-- the next one. Everything that earlier transactions wrote is visible to all sessions, current and future.
create or replace function oldest_transaction() returns xid8
language plpgsql volatile
set search_path from current
as $$
declare
  following bigint := pg_snapshot_xmax(pg_current_snapshot())::text::bigint;
  oldest    bigint;
begin
  -- The session may have cached older statistics about others.
  perform pg_stat_clear_snapshot();
  -- 32-bit numbers, at most half of their range away. Prepared transactions are read last: until it is prepared, a
  -- transaction belongs to its session.
  select min(following - case when other.back < 2147483648 then other.back else other.back - 4294967296 end) into oldest
  from (
    select (following - number.xid::text::bigint) & 4294967295 as back
    from pg_stat_get_activity(null) a
    cross join lateral (values (a.backend_xmin), (a.backend_xid)) as number (xid)
    where a.datid = (select d.oid from pg_database d where d.datname = current_database()) and a.pid <> pg_backend_pid()
      -- The server's own vacuum has no user. It records no jobs, and may take hours.
      and a.usesysid is not null
    union all
    select (following - p.transaction::text::bigint) & 4294967295
    from pg_prepared_xacts p
    where p.database = current_database()) other;
  return coalesce(oldest, following)::text::xid8;
end
$$;

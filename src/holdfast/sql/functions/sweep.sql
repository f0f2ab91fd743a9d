-- Take back lapsed leases. Roles: worker.

-- Take back the leases of attempts whose time is over. Moves: running → queued | dead | error | paused | canceled; the
-- attempt is closed as `lost`. A lease lapses only after the database has been up, and the caller connected, for one
-- full lease: an outage costs no attempt. `after` is how far an earlier sweep has come.
create or replace function sweep(
  connected_seconds double precision, max_jobs integer default 200, after timestamptz default '-infinity'
) returns table (job_id uuid, attempt integer, worker text, state text)
language plpgsql security definer
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
  patience double precision := least(
    connected_seconds, extract(epoch from clock_timestamp() - pg_postmaster_start_time()));
  ids uuid[];
begin
  select array_agg(entry.job_id) into ids
  from (
    select l.job_id
    from leases l
    where l.expires_at < now() and l.expires_at >= after and l.lease_seconds <= patience
    order by l.expires_at
    limit max_jobs
    for update skip locked) entry;
  if ids is not null then
    return query select * from lapse(ids, patience);
  end if;
end
$$;

-- Take back lapsed leases, for a leader that knows which of them may be judged. Answers the leases that were taken
-- back, and, with a null state, those that have lapsed by the clock but are spared.
-- 1. Nothing is judged unless the clock shows about what it showed at the leader's last probe: in between, the server
--    may have stood still, or its clock may have been set. Then the only row of the answer has no job.
-- 2. A lease is spared if its length is above `spared_above` and at most `spared_up_to` of one of the breaks.
-- 3. The leader watches spared leases. Those that it names have not been renewed for twice their length of real time:
--    they are taken back, whatever the clock says, unless they were renewed meanwhile.
create or replace function recover(
  clock timestamptz, spared_above double precision[], spared_up_to double precision[], watched uuid[],
  watched_attempts integer[], watched_until timestamptz[], max_jobs integer default 200
) returns table (
  job_id uuid, attempt integer, worker text, state text, expires_at timestamptz, lease_seconds double precision)
language plpgsql security definer
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
#variable_conflict use_column
declare
  ids uuid[];
begin
  -- Without a clock nothing is in doubt: that is the testing kit, which moves time on purpose.
  if clock_timestamp() not between clock - interval '0.25 seconds' and clock + interval '1 second' then
    return query select null::uuid, null::integer, null, 'too-late', null::timestamptz, null::double precision;
    return;
  end if;
  select array_agg(entry.job_id) into ids
  from (
    -- Jobs that somebody has locked are passed over here already, so that any number of them leaves room for others.
    select l.job_id
    from leases l
    join jobs j on j.id = l.job_id
    where l.expires_at < now()
      and not exists (
        select from unnest(spared_above, spared_up_to) as break (above, up_to)
        where l.lease_seconds > break.above and l.lease_seconds <= break.up_to)
    order by l.expires_at
    limit max_jobs
    for update of l skip locked
    for no key update of j skip locked) entry;
  ids := ids || array(
    select l.job_id
    from unnest(watched, watched_attempts, watched_until) as w (job_id, attempt, expires_at)
    join leases l on l.job_id = w.job_id and l.attempt = w.attempt and l.expires_at = w.expires_at
    where l.job_id <> all (coalesce(ids, '{}'))
    order by l.job_id
    limit max_jobs
    for update of l skip locked);
  if cardinality(ids) > 0 then
    return query
    select s.job_id, s.attempt, s.worker, s.state, null::timestamptz, null::double precision from lose_each(ids) s;
  end if;
  if cardinality(spared_above) > 0 then
    return query
    select l.job_id, l.attempt, l.worker, null, l.expires_at, l.lease_seconds::double precision
    from leases l
    where l.expires_at < now() and l.job_id <> all (coalesce(ids, '{}'))
    order by l.expires_at
    limit 5000;
  end if;
end
$$;

-- Close lapsed leases among the given jobs, of any worker. If the caller gives no `patience`, they are judged as the
-- leader would.
create or replace function lapse(job_ids uuid[], patience double precision)
returns table (job_id uuid, attempt integer, worker text, state text)
language plpgsql
set search_path from current
as $$
#variable_conflict use_column
declare
  ids uuid[];
begin
  ids := array(
    select l.job_id
    from leases l
    where l.job_id = any (job_ids)
      and l.expires_at < now()
      and l.lease_seconds <= coalesce(patience, leader_patience())
    order by l.job_id
    for update skip locked);
  if cardinality(ids) > 0 then
    return query select * from lose(ids);
  end if;
end
$$;

-- Close the attempts of these jobs, all at once, or one by one if that fails: a row that cannot be settled must not
-- keep the others. Such a row is tried again after one more lease, counted, and named in the server's log.
create or replace function lose_each(job_ids uuid[])
returns table (job_id uuid, attempt integer, worker text, state text)
language plpgsql
set search_path from current
as $$
#variable_conflict use_column
declare
  one uuid;
begin
  begin
    return query select * from lose(job_ids);
    return;
  exception
    when query_canceled or lock_not_available or deadlock_detected or serialization_failure or admin_shutdown
      or insufficient_resources or read_only_sql_transaction then
      raise;
    when others then
      raise warning 'lapsed leases are settled one by one: %', sqlerrm;
  end;
  foreach one in array job_ids loop
    begin
      return query select * from lose(array[one]);
    exception
      when query_canceled then
        raise;
      when others then
        raise warning 'the lapsed lease of job % cannot be settled: %', one, sqlerrm;
        update leases l set expires_at = now() + make_interval(secs => l.lease_seconds) where l.job_id = one;
        perform note_repair('lapse-refused', 1);
    end;
  end loop;
end
$$;

-- Close the attempts of these jobs as lost: their workers stopped renewing their leases.
create or replace function lose(job_ids uuid[])
returns table (job_id uuid, attempt integer, worker text, state text)
language sql
set search_path from current
as $$
  select * from take_back(job_ids, 'LeaseLost', 'the worker stopped renewing its lease')
$$;

-- Close the attempts of these jobs as lost, or as released where they never began (see beginnings.sql). A job whose row
-- somebody has locked is left for the next sweep, so that it holds up no other.
create or replace function take_back(job_ids uuid[], fault text, message text)
returns table (job_id uuid, attempt integer, worker text, state text)
language plpgsql
set search_path from current
as $$
#variable_conflict use_column
declare
  ids      uuid[];
  numbers  integer[];
  workers  text[];
  outcomes text[];
  faults   text[];
  messages text[];
begin
  select array_agg(l.job_id), array_agg(l.attempt), array_agg(l.worker),
    array_agg(case when l.unbegun then 'released' else 'lost' end),
    array_agg(case when l.unbegun then 'NeverBegan' else fault end),
    array_agg(case when l.unbegun then 'its worker was gone before this could begin' else message end)
  into ids, numbers, workers, outcomes, faults, messages
  from (
    select l.job_id, l.attempt, l.worker, never_began(l.job_id, l.attempt, l.worker, l.number) as unbegun
    from leases l
    join jobs j on j.id = l.job_id
    where l.job_id = any (job_ids)
    order by l.job_id
    for update of l skip locked
    for no key update of j skip locked) l;
  if ids is null then
    return;
  end if;
  return query
  select s.job_id, s.attempt, claimed.worker, s.state
  from settle(null, ids, numbers, outcomes, null, faults, messages, null, null, null, null) s
  join unnest(ids, workers) as claimed (job_id, worker) on claimed.job_id = s.job_id;
end
$$;

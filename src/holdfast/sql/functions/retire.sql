-- Delete ended jobs whose retention is over, with all rows that belong to them. Moves: (terminal) → gone. Roles:
-- worker.
--
-- The walk goes by id, and ids begin with the time at which they were generated: expired jobs come first, and once the
-- walk meets only jobs younger than either retention, it skips the remaining ones. Ids use the client's clock, which may
-- be behind. So jobs after recent ones are taken to be younger only if their ids say so, too. A call looks at up to
-- `max_visited` jobs after `after` and deletes up to `max_jobs` of them. `reached` is where to go on, null at the end;
-- `kept` is the first job that stays.
--
-- Setting the clock ahead makes nothing older: steps that the leader saw are subtracted (see clock.sql). If the clock
-- does not fit the last probe, there may be a step that the leader has not seen yet, and the call ends: then `visited`
-- is null. If the steps add up to more than can be subtracted, `over_at` and `died` are null, and nothing has expired.
create or replace function retire_known(
  clock timestamptz, after uuid default null, max_jobs integer default 2000, max_visited integer default 10000
) returns table (deleted integer, visited integer, reached uuid, kept uuid)
language sql security definer
set search_path from current
as $$
  select r.success + r.canceled + r.dead, r.visited, r.reached, r.kept
  from retire_counted(retire_known.clock, retire_known.after, retire_known.max_jobs, retire_known.max_visited) r
$$;

-- Do what `retire_known` does, and count the deleted jobs by state.
create or replace function retire_counted(clock timestamptz, after uuid, max_jobs integer, max_visited integer)
returns table (success integer, canceled integer, dead integer, visited integer, reached uuid, kept uuid)
language plpgsql
set search_path from current
set jit = off
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
#variable_conflict use_column
declare
  origin  uuid := coalesce(after, '00000000-0000-0000-0000-000000000000');
  over_at timestamptz := retention_horizon(false);
  died    timestamptz := retention_horizon(true);
  expired timestamptz := greatest(over_at, died);
  over    uuid[];
  free    uuid[];
  recent  boolean;
begin
  success := 0;
  canceled := 0;
  dead := 0;
  if clock_timestamp() not between retire_counted.clock - interval '1 second' and retire_counted.clock + interval '1 minute' then
    reached := after;
    return next;
    return;
  end if;
  select count(*), (array_agg(chunk.id))[count(*)::integer], array_agg(chunk.id) filter (where chunk.over),
    (array_agg(chunk.id) filter (where not chunk.over))[1], bool_and(chunk.created_at >= expired)
  into visited, reached, over, kept, recent
  from (
    select c.id, c.created_at, c.over from judged(origin, over_at, died) c limit max_visited) chunk;
  if visited = 0 then
    return next;
    return;
  end if;
  if cardinality(over) > max_jobs then
    over := over[:max_jobs];
    reached := over[max_jobs];
    kept := case when kept < reached then kept end;
  elsif recent and reached >= first_id(expired) then
    -- The following jobs are younger still, up to ids of another kind.
    reached := greatest(reached, first_id(now() + interval '1 day'));
  end if;
  -- A job that somebody has locked stays until a later walk.
  free := array(select j.id from jobs j where j.id = any (over) order by j.id for update skip locked);
  if cardinality(free) < cardinality(over) then
    kept := least(kept, (select o.id from unnest(over) as o (id) where o.id <> all (free) order by o.id limit 1));
    over := free;
  end if;
  select count(*) filter (where j.state = 'success'), count(*) filter (where j.state = 'canceled'),
    count(*) filter (where j.state = 'dead')
  into success, canceled, dead
  from jobs j
  where j.id = any (over);
  -- Jobs are deleted after all their other rows. These may be too many for one call: the next one then starts here
  -- again.
  if success + canceled + dead > 0 and not take_away(over) then
    success := 0;
    canceled := 0;
    dead := 0;
    reached := origin;
    kept := null;
  end if;
  return next;
end
$$;

-- Jobs after the given one, by id, and whether their retention is over: that of dead ones begins when they are
-- acknowledged.
create or replace function judged(origin uuid, ended timestamptz, died timestamptz)
returns table (id uuid, created_at timestamptz, state text, over boolean)
language sql stable
as $$
  select j.id, j.created_at, j.state, coalesce(case
      when j.state in ('success', 'canceled') then j.finished_at < ended
      when j.state = 'dead' then exists (
        select from dead_letters d where d.job_id = j.id and d.acknowledged_at < died)
    end, false)
  from jobs j
  where j.id > origin
  order by j.id
$$;

-- Delete ended jobs whose retention is over, now; or only count them. A call looks at up to `max_visited` jobs after
-- `after`; `reached` is where to go on, null at the end. Answers what was deleted: a job that somebody has locked stays. The
-- call that begins, without `after`, is noted in the audit log. Nothing is deleted unless the leader has renewed its term
-- within the last seconds: then it has seen every step of the clock. Roles: operator.
create or replace function clean_up_as(
  by text, dry_run boolean, after uuid default null, max_visited integer default 5000, by_key uuid default null
) returns table (success bigint, canceled bigint, dead bigint, reached uuid)
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
  origin  uuid := coalesce(after, '00000000-0000-0000-0000-000000000000');
  over_at timestamptz := retention_horizon(false);
  died    timestamptz := retention_horizon(true);
  recent  boolean;
begin
  perform check_signed(by, null);
  if dry_run then
    select count(*) filter (where chunk.over and chunk.state = 'success'),
      count(*) filter (where chunk.over and chunk.state = 'canceled'),
      count(*) filter (where chunk.over and chunk.state = 'dead'),
      case when count(*) = max_visited then (array_agg(chunk.id))[max_visited] end,
      bool_and(chunk.created_at >= greatest(over_at, died))
    into success, canceled, dead, reached, recent
    from (select c.id, c.created_at, c.state, c.over from judged(origin, over_at, died) c limit max_visited) chunk;
    -- As the deletion does: the following jobs are younger still, up to ids of another kind.
    if recent and reached >= first_id(greatest(over_at, died)) then
      reached := greatest(reached, first_id(now() + interval '1 day'));
    end if;
    return next;
    return;
  end if;
  if not exists (
    select from leaders l
    where l.renewed_at between now() - interval '10 seconds' and now() + interval '1 second') then
    raise exception 'no process does maintenance, so a step of the clock would go unnoticed; start a worker'
      using errcode = 'HF001';
  end if;
  if after is null then
    perform note_audit(by, by_key, null, 'jobs.cleanup', 'everything', jsonb_strip_nulls(jsonb_build_object(
      'ended_before', readable(over_at), 'acknowledged_before', readable(died))));
  end if;
  return query
  select r.success::bigint, r.canceled::bigint, r.dead::bigint, r.reached
  from retire_counted(clock_timestamp(), after, max_visited, max_visited) r;
end
$$;

-- The smallest id that a job of this time can have.
create or replace function first_id(moment timestamptz) returns uuid
language sql immutable
as $$
  select (lpad(to_hex(greatest(extract(epoch from moment) * 1000, 0)::bigint), 12, '0') || repeat('0', 20))::uuid
$$;

-- Delete ended jobs with all rows that belong to them, or as many as one call may. Answers whether it is done.
create or replace function take_away(ids uuid[], max_rows integer default 20000) returns boolean
language plpgsql
set search_path from current
set jit = off
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
#variable_conflict use_column
declare
  dropped integer;
begin
  if not drop_items(ids) then
    return false;
  end if;
  delete from job_attempts t
  where t.ctid = any (array(select e.ctid from job_attempts e where e.job_id = any (ids) limit max_rows));
  get diagnostics dropped = row_count;
  if dropped = max_rows then
    return false;
  end if;
  delete from job_events t
  where t.ctid = any (array(select e.ctid from job_events e where e.job_id = any (ids) limit max_rows));
  get diagnostics dropped = row_count;
  if dropped = max_rows then
    return false;
  end if;
  delete from job_progress p where p.job_id = any (ids);
  delete from erasures e where e.job_id = any (ids);
  delete from pending_decisions d where d.job_id = any (ids);
  delete from dead_letters d where d.job_id = any (ids);
  delete from idempotency_keys k where k.job_id = any (ids);
  delete from jobs j where j.id = any (ids);
  return true;
end
$$;

-- How long ended jobs are kept; dead ones from the moment of their acknowledgement.
create or replace function retention_of(dead boolean) returns interval
language sql stable
set search_path from current
as $$
  select make_interval(secs => 86400 * least(
    setting(case when dead then 'RETENTION_DEAD_DAYS' else 'RETENTION_DAYS' end)::double precision,
    highest('retention_days')))
$$;

-- What ended before this moment is kept no longer; what is dead, if it was acknowledged before it. Setting the clock ahead
-- makes nothing older: steps that the leader saw are subtracted. Null if they add up to more than can be subtracted: then
-- nothing has expired.
create or replace function retention_horizon(dead boolean) returns timestamptz
language sql stable
set search_path from current
as $$
  select now() - retention_of(retention_horizon.dead) - clock_lead(retention_of(retention_horizon.dead))
$$;

-- The retention horizon for callers that do not say when the leader last read the clock. It is null, too, if the leader's
-- last renewal is not of the last seconds: then the clock may have been set since, and the step is not subtracted yet. The
-- renewal and the steps are read at one moment, since a renewal notes its step in the same transaction.
create or replace function seen_horizon(dead boolean) returns timestamptz
language sql stable
set search_path from current
as $$
  select case when not exists (
      select from leaders l
      where l.name = 'maintenance'
        and l.renewed_at not between clock_timestamp() - interval '10 seconds' and clock_timestamp() + interval '1 second')
    then retention_horizon(seen_horizon.dead)
  end
$$;

-- Delete ended jobs whose retention is over, for leaders of older releases, which do not say when they read the clock.
create or replace function retire_from(
  after uuid default null, max_jobs integer default 2000, max_visited integer default 10000
) returns table (deleted integer, visited integer, reached uuid, kept uuid)
language sql security definer
set search_path from current
as $$
  select * from retire_known(null, retire_from.after, retire_from.max_jobs, retire_from.max_visited)
$$;

-- Delete ended jobs whose retention is over, for leaders of older releases.
create or replace function retire(after uuid default null, max_jobs integer default 500)
returns table (deleted integer, reached uuid)
language sql security definer
set search_path from current
as $$
  select r.deleted, r.reached from retire_from(retire.after, retire.max_jobs, retire.max_jobs) r
$$;

-- Mend what hand-written SQL or a bug left inconsistent. Within one snapshot every open job has exactly
-- its side row, so what is missing there is missing; it is checked again under the job's lock.
-- The walk goes by id, a bounded number of jobs a call; the caller passes where the last one ended.
-- Moves: running → queued | dead | error (lease missing). Roles: worker.

create or replace function reconcile(after uuid default null, max_jobs integer default 1000)
returns table (job_id uuid, repair text, last uuid)
language plpgsql security definer
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
#variable_conflict use_column
declare
  broken  record;
  reached uuid;
begin
  select max(chunk.id::text)::uuid into reached
  from (
    select j.id
    from jobs j
    where j.id > coalesce(after, '00000000-0000-0000-0000-000000000000')
    order by j.id
    limit max_jobs) chunk;

  for broken in
    select b.job_id, b.fault
    from broken_jobs(coalesce(after, '00000000-0000-0000-0000-000000000000'), reached) b
  loop
    if mend(broken.job_id, broken.fault) then
      perform note_repair(broken.fault, 1);
      return query select broken.job_id, broken.fault, reached;
    end if;
  end loop;
  return query select null::uuid, null::text, reached where reached is not null;
end
$$;

-- Open jobs whose side row is missing, from the first id to the last.
create or replace function broken_jobs(first uuid, last uuid) returns table (job_id uuid, fault text)
language sql stable
set search_path from current
as $$
  select j.id, case j.state
    when 'queued' then 'queued-without-ready'
    when 'running' then 'running-without-lease'
    else 'waiting-without-due'
  end
  from jobs j
  where j.id >= first
    and j.id <= last
    and case j.state
      when 'queued' then
        not exists (
          select from ready r
          where r.stream in (j.stream, -j.stream)
            and r.rank in (0, ready_rank(j.priority, true), ready_rank(j.priority, false))
            and r.seq = j.seq)
        and (j.target is null or (
          not exists (
            select from waiting w
            where w.tenant = j.tenant and w.target = j.target and w.turn = 1 and w.place = j.seq)
          and not exists (
            select from heads h
            join ready r on r.stream in (j.stream, -j.stream)
              and r.rank in (0, ready_rank(j.priority, true), ready_rank(j.priority, false))
              and r.seq = h.seq
            where h.tenant = j.tenant and h.target = j.target and h.job_id = j.id)))
      when 'running' then
        not exists (select from leases l where l.job_id = j.id and l.attempt = j.attempt)
      when 'scheduled' then
        not exists (select from due d where d.run_at = j.run_at and d.job_id = j.id)
      when 'retry' then
        not exists (select from due d where d.run_at = j.run_at and d.job_id = j.id)
      else false
    end
$$;

-- Give one job back what it lacks, if it still lacks it once its row is ours.
create or replace function mend(id uuid, fault text) returns boolean
language plpgsql
set search_path from current
as $$
#variable_conflict use_column
declare
  job jobs;
begin
  select j.* into job from jobs j where j.id = mend.id for update skip locked;
  if not found or not exists (
    select from broken_jobs(mend.id, mend.id) b where b.fault = mend.fault
  ) then
    return false;
  end if;

  if fault = 'waiting-without-due' then
    insert into due (run_at, job_id) values (job.run_at, job.id) on conflict do nothing;
    return true;
  end if;

  if fault = 'running-without-lease' then
    -- It gets the lease that it lacks, and is settled as any other attempt that was lost.
    insert into leases (job_id, attempt, stream, lease_seconds, claimed_at, ready_at, expires_at, worker)
    values (job.id, job.attempt, job.stream, 0, coalesce(job.started_at, job.updated_at),
      coalesce(job.started_at, job.updated_at), now(), 'unknown')
    on conflict on constraint leases_pkey do update set attempt = excluded.attempt, worker = excluded.worker;
    perform from settle(
      null, array[job.id], array[job.attempt], array['lost'], null, array['LeaseMissing'],
      array['the lease of this attempt was missing'], null, null, null, null);
    return true;
  end if;
  if job.target is null then
    insert into ready (stream, rank, seq, job_id)
    values (job.stream, ready_rank(job.priority, job.attempt > 0), job.seq, job.id)
    on conflict do nothing;
    perform wake('ready', array[job.stream]);
  else
    if not exists (
      select from heads h where h.tenant = job.tenant and h.target = job.target and h.job_id = job.id) then
      insert into waiting (tenant, target, turn, place, job_id)
      values (job.tenant, job.target, 1, job.seq, job.id)
      on conflict do nothing;
    end if;
    perform seat(array[job.tenant], array[job.target]);
  end if;
  return true;
end
$$;

-- Side rows whose job does not fit are dropped: leases of jobs that do not run, entries of jobs that do not
-- wait, heads of jobs that have ended. The hot functions pass over them anyway. What is hidden from claims without
-- being parked comes back.
create or replace function drop_strays(max_rows integer default 500) returns integer
language plpgsql security definer
set search_path from current
as $$
#variable_conflict use_column
declare
  dropped  integer;
  total    integer := 0;
  tenants  text[];
  targets  text[];
begin
  delete from leases l
  where l.ctid in (
    select s.ctid
    from leases s
    where not exists (select from jobs j where j.id = s.job_id and j.state = 'running' and j.attempt = s.attempt)
    limit max_rows
    for update skip locked);
  get diagnostics dropped = row_count;
  if dropped > 0 then
    perform note_repair('lease-dropped', dropped);
  end if;
  total := total + dropped;

  with stray as (
    delete from due d
    where d.ctid in (
      select s.ctid
      from due s
      where s.run_at < now() - interval '1 minute'
        and not exists (
          select from jobs j where j.id = s.job_id and j.run_at = s.run_at and j.state in ('scheduled', 'retry'))
      limit max_rows
      for update skip locked)
    returning d.job_id
  )
  select count(*) into dropped from stray;
  if dropped > 0 then
    perform note_repair('due-dropped', dropped);
  end if;
  total := total + dropped;

  update ready r
  set stream = -r.stream
  where r.ctid in (
    select s.ctid
    from ready s
    where s.stream < 0
      and not exists (select from parked p where p.stream = -s.stream and p.rank = s.rank and p.seq = s.seq)
    limit max_rows
    for update skip locked);
  get diagnostics dropped = row_count;
  if dropped > 0 then
    perform note_repair('parked-for-nothing', dropped);
  end if;
  total := total + dropped;

  select array_agg(h.tenant), array_agg(h.target) into tenants, targets
  from (
    select h.tenant, h.target
    from heads h
    left join jobs j on j.id = h.job_id
    where j.state is null or j.state in ('success', 'dead', 'canceled', 'created')
    limit max_rows) h;
  if targets is not null then
    perform seat(tenants, targets);
  end if;
  return total;
end
$$;

-- Targets with a line but no head, which a lost call could leave.
create or replace function headless_targets(max_targets integer default 500) returns integer
language plpgsql security definer
set search_path from current
set enable_hashjoin = off
as $$
#variable_conflict use_column
declare
  found_tenants text[];
  found_targets text[];
begin
  with recursive line as (
    (select w.tenant, w.target from waiting w order by w.tenant, w.target limit 1)
    union all
    select following.tenant, following.target
    from line
    cross join lateral (
      select w.tenant, w.target
      from waiting w
      where (w.tenant, w.target) > (line.tenant, line.target)
      order by w.tenant, w.target
      limit 1) following
  )
  select array_agg(lost.tenant), array_agg(lost.target) into found_tenants, found_targets
  from (
    select line.tenant, line.target
    from line
    where not exists (
      select from heads h where h.tenant = line.tenant and h.target = line.target and h.job_id is not null)
    limit max_targets) lost;
  if found_targets is not null then
    perform seat(found_tenants, found_targets);
  end if;
  return coalesce(cardinality(found_targets), 0);
end
$$;

-- Delete ended jobs whose time is over, walking by id. Moves: (terminal) → gone. Roles: worker.
create or replace function retire(after uuid default null, max_jobs integer default 500)
returns table (deleted integer, reached uuid)
language plpgsql security definer
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
#variable_conflict use_column
declare
  ended  timestamptz := now() - make_interval(secs => setting('RETENTION_DAYS')::double precision * 86400);
  died   timestamptz := now() - make_interval(secs => setting('RETENTION_DEAD_DAYS')::double precision * 86400);
  last   uuid;
  ids    uuid[];
  recent boolean;
begin
  select max(chunk.id::text)::uuid, array_agg(chunk.id) filter (where chunk.over), bool_and(chunk.created_at >= ended)
  into last, ids, recent
  from (
    select j.id, j.created_at,
      (j.state in ('success', 'canceled') and j.finished_at < ended)
        or (j.state = 'dead' and exists (
          select from dead_letters d where d.job_id = j.id and d.acknowledged_at < died)) as over
    from jobs j
    where j.id > coalesce(after, '00000000-0000-0000-0000-000000000000')
    order by j.id
    limit max_jobs) chunk;
  if ids is not null then
    -- Jobs leave after their items, which may be too many for one call: the next one then comes here again.
    if not drop_items(ids) then
      return query select 0, coalesce(after, '00000000-0000-0000-0000-000000000000');
      return;
    end if;
    delete from job_progress p where p.job_id = any (ids);
    delete from job_attempts t where t.job_id = any (ids);
    delete from job_events e where e.job_id = any (ids);
    delete from dead_letters d where d.job_id = any (ids);
    delete from jobs j where j.id = any (ids);
  end if;
  if recent then
    -- Ids begin with the time they were made: what follows is younger still, up to ids of another kind.
    last := greatest(
      last, (lpad(to_hex((extract(epoch from now()) * 1000)::bigint + 86400000), 12, '0') || repeat('0', 20))::uuid);
  end if;
  return query select coalesce(cardinality(ids), 0), last;
end
$$;

-- Mend what hand-written SQL or a bug left inconsistent. Within one snapshot every open job has exactly one side row,
-- so a job without it is broken; this is checked again under the job's lock. Moves: running → queued | dead | error
-- (lease missing). Roles: worker. Side rows of jobs that hand-written SQL moved elsewhere are dropped by the walks in
-- strays.sql.
--
-- The walk follows the table as it lies on disk, a bounded number of pages per call. That is bounded for any ids and
-- any number of dead rows, and so cheap for ended jobs (a fifth of a microsecond each) that it passes millions of them
-- in a second. Only open jobs are looked up in other tables. Answers a row for each job that was mended. The last row
-- has no job: `reached` is the page to go on from, null at the end, and `open_jobs` is how many open jobs were met. If
-- very much is broken, the next call visits the same pages again.
create or replace function reconcile_pages(
  first_page bigint default 0, max_pages integer default 1000, max_repairs integer default 500
) returns table (job_id uuid, repair text, reached bigint, open_jobs integer)
language plpgsql security definer
set search_path from current
as $$
#variable_conflict use_column
declare
  pages  bigint := pg_relation_size('jobs') / current_setting('block_size')::integer;
  ids    uuid[] := open_on_pages(first_page, max_pages);
  broken record;
  mended integer := 0;
begin
  reached := case when first_page + max_pages < pages then first_page + max_pages end;
  if cardinality(ids) > 0 then
    for broken in select b.job_id, b.fault from broken_among(ids) b limit max_repairs loop
      if mend(broken.job_id, broken.fault) then
        perform note_repair(broken.fault, 1);
        mended := mended + 1;
        return query select broken.job_id, broken.fault, null::bigint, null::integer;
      end if;
    end loop;
  end if;
  return query select null::uuid, null::text, case when mended < max_repairs then reached else first_page end, cardinality(ids);
end
$$;

-- The open jobs on some pages of the table, and jobs that somebody ended by hand without the rest: nothing would ever
-- retire them, and they would keep their dedup key. The settings are for this one scan, and must not affect any other.
create or replace function open_on_pages(first_page bigint, max_pages integer) returns uuid[]
language sql stable
set search_path from current
set jit = off
set enable_seqscan = off
set enable_bitmapscan = off
set enable_indexscan = off
set enable_indexonlyscan = off
set enable_tidscan = on
as $$
  select array(
    select j.id
    from jobs j
    where j.ctid >= format('(%s,0)', least(first_page, 4294967295))::tid
      and j.ctid < format('(%s,0)', least(first_page + max_pages, 4294967295))::tid
      and (
        j.state in ('queued', 'running', 'scheduled', 'retry', 'created', 'paused', 'error')
        or has_ended(j.state) and (j.finished_at is null or j.dedup_key is not null)))
$$;

-- Mend inconsistent jobs by id, a bounded number a call; for leaders of older releases.
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
  broken record;
  ids    uuid[];
begin
  ids := array(
    select j.id
    from jobs j
    where j.id > coalesce(after, '00000000-0000-0000-0000-000000000000')
    order by j.id
    limit max_jobs);
  last := ids[cardinality(ids)];
  for broken in select b.job_id, b.fault from broken_among(ids) b loop
    if mend(broken.job_id, broken.fault) then
      perform note_repair(broken.fault, 1);
      return query select broken.job_id, broken.fault, last;
    end if;
  end loop;
  return query select null::uuid, null::text, last where last is not null;
end
$$;

-- Open jobs whose side row is missing, from the first id to the last.
create or replace function broken_jobs(first uuid, last uuid) returns table (job_id uuid, fault text)
language sql stable
set search_path from current
as $$
  select b.job_id, b.fault
  from broken_among(array(
    select j.id
    from jobs j
    where j.id >= first and j.id <= last
      and j.state in ('queued', 'running', 'scheduled', 'retry', 'created', 'paused', 'error'))) b
$$;

-- Those of the given jobs that are open and lack their side row, or that have ended without a time or with a dedup key.
create or replace function broken_among(ids uuid[]) returns table (job_id uuid, fault text)
language sql stable
set search_path from current
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
  select j.id, case j.state
    when 'queued' then 'queued-without-ready'
    when 'running' then 'running-without-lease'
    when 'scheduled' then 'waiting-without-due'
    when 'retry' then 'waiting-without-due'
    when 'created' then 'dormant-without-row'
    when 'paused' then 'dormant-without-row'
    when 'error' then 'dormant-without-row'
    else 'ended-by-hand'
  end
  from jobs j
  where j.id = any (ids)
    and case j.state
      when 'queued' then
        -- Most jobs are here, so look here first: the other places cost several times as much.
        not exists (
          select from ready r
          where j.target is null
            and r.stream = j.stream and r.rank = ready_rank(j.priority, false) and r.seq = j.seq)
        and not exists (
          select from waiting w
          where w.tenant = j.tenant and w.target = j.target and w.turn = 1 and w.place = j.seq)
        and not exists (select from ready_entry(j.stream, j.priority, j.seq))
        and (j.target is null or not exists (
          select from heads h
          cross join lateral ready_entry(j.stream, j.priority, h.seq)
          where h.tenant = j.tenant and h.target = j.target and h.job_id = j.id))
      when 'running' then
        not exists (select from leases l where l.job_id = j.id and l.attempt = j.attempt)
      when 'scheduled' then
        not exists (select from due d where d.run_at = j.run_at and d.job_id = j.id)
      when 'retry' then
        not exists (select from due d where d.run_at = j.run_at and d.job_id = j.id)
      else is_dormant(j.state) and not exists (select from dormant d where d.job_id = j.id)
        -- Those from before there was this table are not broken (`note_dormant`).
        and not exists (select from walks w where w.name = 'dormant')
        or has_ended(j.state) and (j.finished_at is null or j.dedup_key is not null)
    end
$$;

-- Give one job its missing row, if it is still missing once the job is locked.
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
    select from broken_among(array[mend.id]) b where b.fault = mend.fault
  ) then
    return false;
  end if;

  if fault = 'waiting-without-due' then
    insert into due (run_at, job_id) values (job.run_at, job.id) on conflict do nothing;
    return true;
  end if;

  if fault = 'dormant-without-row' then
    perform note_dormancy(job, null);
    return true;
  end if;

  if fault = 'ended-by-hand' then
    update jobs j set finished_at = coalesce(j.finished_at, now()), updated_at = now(), dedup_key = null where j.id = job.id;
    return true;
  end if;

  if fault = 'running-without-lease' then
    -- Give it the missing lease, then settle it like any other lost attempt.
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
    perform wake_again(array[job.stream]);
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

-- Open jobs that neither wait for their turn nor run: created, paused or held in error. `dormant` has a row for each, so that
-- they are found without a walk over `jobs`, where no index may name the state. Moves: none. Roles: worker (the walks).
--
-- 1. Triggers write the rows, in the transaction of the move, whoever makes it: `refuse_move` (guard.sql), which sees
--    every move except the two of a plain job, and the one below for new jobs. A plain job costs nothing more.
-- 2. A row is written under the lock of its job, which the move has. Walks never wait for one.
-- 3. `reconcile` adds rows that are missing, and a walk drops those that do not fit.

-- Whether a job in this state has a row in `dormant`.
create or replace function is_dormant(state text) returns boolean
language sql immutable parallel safe
as $$
  select state in ('created', 'paused', 'error')
$$;

-- Note a new job that is not released yet.
create or replace function note_created() returns trigger
language plpgsql
set search_path from current
as $$
begin
  insert into dormant (job_id, tenant) values (new.id, new.tenant) on conflict do nothing;
  return null;
end
$$;

create or replace trigger note_created after insert on jobs
  for each row
  when (new.state = 'created')
  execute function note_created();

-- Note a job that becomes dormant, or forget one that no longer is. A row that is there already is locked: a walk that
-- is about to drop it is waited for, or finds that it fits.
create or replace function note_dormancy(job jobs, old_state text) returns void
language plpgsql
set search_path from current
as $$
#variable_conflict use_column
begin
  if is_dormant(job.state) then
    insert into dormant as d (job_id, tenant) values (job.id, job.tenant)
    on conflict (job_id) do update set tenant = excluded.tenant;
  elsif is_dormant(old_state) then
    delete from dormant d where d.job_id = job.id;
  end if;
end
$$;

-- Note jobs that were dormant before there was this table. The walk is made once after the migration (`walks`); jobs that
-- become dormant meanwhile have their rows already.
create or replace function note_dormant(after text[] default null, max_rows integer default 1000)
returns table (mended integer, reached text[])
language plpgsql security definer
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
#variable_conflict use_column
declare
  place text[];
  ids   uuid[];
begin
  mended := 0;
  select w.reached into place from walks w where w.name = 'dormant' for update skip locked;
  if not found then
    return next;
    return;
  end if;
  ids := array(
    select j.id
    from jobs j
    where j.id > coalesce(place[1]::uuid, '00000000-0000-0000-0000-000000000000')
    order by j.id
    limit max_rows);
  insert into dormant (job_id, tenant)
  select j.id, j.tenant from jobs j where j.id = any (ids) and is_dormant(j.state)
  on conflict do nothing;
  get diagnostics mended = row_count;
  if cardinality(ids) = max_rows then
    reached := array[ids[max_rows]::text];
    update walks w set reached = note_dormant.reached where w.name = 'dormant';
  else
    delete from walks w where w.name = 'dormant';
  end if;
  return next;
end
$$;

-- Drop rows of jobs that are gone or not dormant. They are checked again once they are locked: a job that becomes dormant
-- meanwhile waits for that lock, or has its row.
create or replace function drop_stray_dormant(after text[] default null, max_rows integer default 1000)
returns table (mended integer, reached text[])
language plpgsql security definer
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
#variable_conflict use_column
declare
  ids    uuid[];
  locked uuid[];
begin
  ids := array(
    select d.job_id
    from dormant d
    where d.job_id > coalesce(after[1]::uuid, '00000000-0000-0000-0000-000000000000')
    order by d.job_id
    limit max_rows);
  locked := array(
    select d.job_id
    from dormant d
    where d.job_id = any (ids)
      and not exists (select from jobs j where j.id = d.job_id and is_dormant(j.state))
    for update skip locked);
  delete from dormant d
  where d.job_id = any (locked)
    and not exists (select from jobs j where j.id = d.job_id and is_dormant(j.state));
  get diagnostics mended = row_count;
  perform note_repair('dormant-dropped', mended);
  if cardinality(ids) = max_rows then
    reached := array[ids[max_rows]::text];
  end if;
  return next;
end
$$;

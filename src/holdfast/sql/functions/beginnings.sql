-- Whether a job has begun when its worker is gone.
--
-- 1. A worker claims very short jobs ahead of its free slots. Their leases have numbers, counted per lane from 1 in the
--    order in which they are to begin; the lane is in the upper bits. A lease without a number began when it was claimed.
-- 2. Before a job with a number begins, the worker has raised the number in `beginnings` to it, for some jobs at a time.
--    What lies above it never began, for certain. What lies below it may have begun, and counts.
-- 3. Where one more lost lease would end or hold the job, that is not precise enough. Such a lease has the number 0,
--    with a free slot too, until the worker records the beginning of this very job, right before its handler runs.
-- 4. A lapsed lease that never began costs its job nothing: the attempt is `released`. But a job that came back like that
--    three times in a row is charged the next time, so that nothing can come back for ever.

create or replace function number_in_lane(number bigint) returns bigint
language sql immutable parallel safe
as $$
  select number & ((1::bigint << 48) - 1)
$$;

create or replace function lane_of(number bigint) returns integer
language sql immutable parallel safe
as $$
  select (number >> 48)::integer
$$;

-- Record that jobs up to these numbers, one per lane, are about to begin. As durable as a settlement. Roles: worker.
create or replace function may_begin(worker text, numbers bigint[]) returns void
language plpgsql security definer
set search_path from current
as $$
#variable_conflict use_column
begin
  insert into beginnings as b (worker, lane, number)
  select may_begin.worker, lane_of(n.number), n.number from unnest(numbers) as n (number)
  on conflict on constraint beginnings_pkey do update set number = greatest(b.number, excluded.number);
end
$$;

-- Record that these jobs, each of them at its last chance, are about to begin. As durable as a settlement. A row per
-- lease still held: whether its beginning is recorded, or somebody has locked it, so that it must not begin yet. What
-- is missing was lost. Repeating it does no harm. Moves: none. Roles: worker.
create or replace function record_beginnings(worker text, job_ids uuid[], attempts integer[])
returns table (job_id uuid, recorded boolean)
language plpgsql security definer
set search_path from current
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
#variable_conflict use_column
declare
  free uuid[];
begin
  free := array(
    select l.job_id
    from unnest(job_ids, attempts) as asked (job_id, attempt)
    join leases l on l.job_id = asked.job_id and l.attempt = asked.attempt and l.worker = record_beginnings.worker
    order by l.job_id
    for update of l skip locked);
  update leases l set number = null where l.job_id = any (free);
  return query
  select l.job_id, l.job_id = any (free)
  from unnest(job_ids, attempts) as asked (job_id, attempt)
  join leases l on l.job_id = asked.job_id and l.attempt = asked.attempt and l.worker = record_beginnings.worker;
end
$$;

-- Whether an attempt never began, and may come back for nothing. Of a job that was claimed ahead it is not known without
-- a row, and counts.
create or replace function never_began(job_id uuid, attempt integer, worker text, number bigint) returns boolean
language plpgsql stable
set search_path from current
as $$
#variable_conflict use_column
begin
  return number is not null
    and (
      number = 0
      or exists (
        select from beginnings b
        where b.worker = never_began.worker and b.lane = lane_of(never_began.number) and b.number < never_began.number))
    and 3 > (
      select count(*)
      from job_attempts t
      where t.job_id = never_began.job_id
        and t.attempt between never_began.attempt - 3 and never_began.attempt - 1
        and t.error_type = 'NeverBegan');
end
$$;

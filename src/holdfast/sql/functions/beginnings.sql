-- Whether a job had begun when its worker died.
--
-- 1. A worker claims very short jobs ahead of its free slots. The leases of these jobs have numbers, counted per lane
--    from 1 in the order in which the jobs will begin; the lane is in the upper bits. A lease without a number began
--    when it was claimed.
-- 2. Before a numbered job begins, its worker raises the number in `beginnings` to that of the job, for several jobs at
--    a time. Jobs above that number have certainly not begun. Jobs up to it may have begun, and their attempts count.
-- 3. This is not precise enough where one more lost lease would end or hold the job. Such a lease has the number 0,
--    even if a slot is free, until the worker records the beginning of this job, right before its handler runs.
-- 4. A lapsed lease whose job never began costs that job no attempt: the outcome is `released`. But after three such
--    attempts in a row, the next one counts, so that no job can come back for ever.

-- The number of a claim within its lane: the lower 48 bits.
create or replace function number_in_lane(number bigint) returns bigint
language sql immutable parallel safe
as $$
  select number & ((1::bigint << 48) - 1)
$$;

-- The lane of a claim's number: the upper 16 bits.
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

-- Record that these jobs, each of them at its last chance, are about to begin. As durable as a settlement. Answers a
-- row for each lease that the worker still has: whether the beginning is recorded. It is not if somebody else has
-- locked the lease; then the job must not begin yet. A job without a row was lost. Repeating the call does no harm.
-- Moves: none. Roles: worker.
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

-- Whether an attempt never began, and may come back without costing an attempt. Without a row in `beginnings` it is
-- unknown whether a job that was claimed ahead has begun, so its attempt counts.
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

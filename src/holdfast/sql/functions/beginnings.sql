-- Whether a job that was claimed ahead has begun when its worker is gone.
--
-- 1. A worker claims very short jobs ahead of its free slots. Their leases have numbers, counted per lane from 1 in the
--    order in which they are to begin; the lane is in the upper bits. A lease without a number began when it was claimed.
-- 2. Before a job with a number begins, the worker has raised the number in `beginnings` to it, for some jobs at a time.
--    What lies above it never began, for certain. What lies below it may have begun, and counts.
-- 3. A lapsed lease that never began costs its job nothing: the attempt is `released`. But a job that came back like that
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

-- Jobs up to these numbers, one per lane, are about to begin. As durable as a settlement. Roles: worker.
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

-- Whether an attempt never began, and may come back for nothing. Without a row it is not known, and counts.
create or replace function never_began(job_id uuid, attempt integer, worker text, number bigint) returns boolean
language plpgsql stable
set search_path from current
as $$
#variable_conflict use_column
begin
  return number is not null
    and exists (
      select from beginnings b
      where b.worker = never_began.worker and b.lane = lane_of(never_began.number) and b.number < never_began.number)
    and 3 > (
      select count(*)
      from job_attempts t
      where t.job_id = never_began.job_id
        and t.attempt between never_began.attempt - 3 and never_began.attempt - 1
        and t.error_type = 'NeverBegan');
end
$$;

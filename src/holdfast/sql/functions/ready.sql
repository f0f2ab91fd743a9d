-- The entry of a queued job in `ready`: by its stream (or the number of its parked entries), a rank of its priority,
-- and its place. One function finds the entry, one takes it. Moves: none.

-- The entry of a job, inlined into the caller. A caller that needs to be sure compares its `job_id`.
create or replace function ready_entry(stream integer, priority integer, seq bigint) returns setof ready
language sql stable
as $$
  select r.*
  from ready r
  where r.stream = any (entry_streams(ready_entry.stream))
    and r.rank = any (ready_ranks(ready_entry.priority))
    and r.seq = ready_entry.seq
$$;

-- Take the entry of a job away, unless a claim has locked it. Answers whether it was there.
create or replace function take_entry(stream integer, priority integer, seq bigint) returns boolean
language plpgsql
set search_path from current
set enable_seqscan = off
set enable_nestloop = on
set enable_hashjoin = off
set enable_mergejoin = off
as $$
#variable_conflict use_column
begin
  delete from ready r
  where r.ctid in (
    select e.ctid
    from ready_entry(take_entry.stream, take_entry.priority, take_entry.seq) spot
    join ready e on e.stream = spot.stream and e.rank = spot.rank and e.seq = spot.seq
    for update of e skip locked);
  return found;
end
$$;

-- The place of a job in `ready`. The head of a target has a separate one, because `seq` is its place in the target's
-- line.
create or replace function ready_seq(job jobs) returns bigint
language sql stable
set search_path from current
as $$
  select coalesce(
    (select h.seq from heads h where h.tenant = job.tenant and h.target = job.target and h.job_id = job.id), job.seq)
$$;

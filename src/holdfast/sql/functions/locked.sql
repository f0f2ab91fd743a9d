-- How claims pass over jobs whose row somebody has locked, for however long: only those jobs wait. Called only if a
-- claim met a row that may be locked. Moves: none.
--
-- Promotion and sweeps leave the mark of their own lock in the rows that they move. So such a mark is common, while a
-- row that is really locked is rare.

-- Of the entries that a claim has locked: those whose jobs it could lock now, and those without a job.
create or replace function unlocked_entries(tids tid[]) returns claim_entry[]
language sql
set search_path from current
set enable_seqscan = off
set enable_nestloop = on
set enable_hashjoin = off
set enable_mergejoin = off
as $$
  select array_agg(row(r.tid, r.job_id, r.stream, r.rank, r.seq, r.ready_at, null)::claim_entry)
  from (
    select r.ctid as tid, r.job_id, r.stream, r.rank, r.seq, r.ready_at
    from ready r
    left join lateral (
      select j.id from jobs j where j.id = r.job_id for no key update skip locked) free on true
    where r.ctid = any (tids)
      and (free.id is not null or not exists (select from jobs j where j.id = r.job_id))
    order by r.rank, r.seq, r.job_id) r
$$;

-- Drop the remaining entries: their jobs do not fit.
create or replace function drop_entries(entries tid[]) returns void
language plpgsql
set search_path from current
as $$
declare
  dropped bigint;
begin
  delete from ready r where r.ctid = any (entries);
  get diagnostics dropped = row_count;
  perform note_repair('ready-dropped', dropped);
end
$$;

-- The first entry, from a place on, whose job is not locked, among the next ten thousand. If there is none, the end of
-- the range, so that the claim goes on elsewhere.
create or replace function first_free(stream integer, from_rank integer, from_seq bigint, to_rank integer)
returns table (rank integer, seq bigint)
language sql
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set enable_nestloop = on
set enable_hashjoin = off
set enable_mergejoin = off
as $$
  select coalesce(first.rank, to_rank), coalesce(first.seq, 1)
  from (select 1) one
  left join lateral (
    select r.rank, r.seq
    from (
      select r.job_id, r.rank, r.seq
      from ready r
      where r.stream = first_free.stream
        and (r.rank, r.seq) >= (from_rank, from_seq)
        and r.rank < to_rank
      order by r.rank, r.seq
      limit 10000) r
    left join lateral (
      select j.id from jobs j where j.id = r.job_id for no key update skip locked) free on true
    where free.id is not null or not exists (select from jobs j where j.id = r.job_id)
    order by r.rank, r.seq
    limit 1) first on true
$$;

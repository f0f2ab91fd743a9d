-- How claims pass over jobs whose row somebody has locked, for however long: those jobs wait, and nothing else does.
-- Called only where a claim met a row that may be locked. Moves: none.
--
-- Promotion and sweeps leave the mark of their own lock in the rows that they move, so that such a row is common, while
-- one that is really locked is rare.

-- Of the entries that a claim has locked, those whose jobs are locked by us from now on, and those without a job.
create or replace function free_entries(
  entries tid[],
  out tids tid[], out ids uuid[], out lines integer[], out ranks integer[], out seqs bigint[], out times timestamptz[])
language sql
set search_path from current
set enable_seqscan = off
set enable_nestloop = on
set enable_hashjoin = off
set enable_mergejoin = off
as $$
  select array_agg(r.tid), array_agg(r.job_id), array_agg(r.stream), array_agg(r.rank), array_agg(r.seq),
    array_agg(r.ready_at)
  from (
    select r.ctid as tid, r.job_id, r.stream, r.rank, r.seq, r.ready_at
    from ready r
    left join lateral (
      select j.id from jobs j where j.id = r.job_id for no key update skip locked) free on true
    where r.ctid = any (entries)
      and (free.id is not null or not exists (select from jobs j where j.id = r.job_id))
    order by r.rank, r.seq, r.job_id) r
$$;

-- Drop what is left of entries: their jobs do not fit.
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

-- The first entry from a place on whose job can be had, among the next ten thousand; else the end of the range, so that
-- a claim goes on elsewhere.
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

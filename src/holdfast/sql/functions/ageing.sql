-- Jobs that have waited too long go first: see promote.sql. Moves: none. Roles: worker.

-- Let jobs that have waited for long go first. A job that waited longer than AGEING_SECONDS goes first among those of
-- its tenant; between tenants ranks mean nothing (see shares.sql). Jobs are moved only if others could pass them.
--
-- A call looks at `max_lines` lines after (after_stream, after_rank), and answers where to go on; null after the last
-- one. A line is all entries at one rank of one stream. Whether others can pass (`mixed`: there are several ranks)
-- depends on all lines together: the caller passes what it learned from the lines before, including those of its last
-- walk.
create or replace function age_lines(
  after_stream integer default 0, after_rank integer default 0, max_lines integer default 2000,
  max_jobs integer default 500, mixed boolean default false
) returns table (aged integer, reached_stream integer, reached_rank integer, lowest integer, highest integer)
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
  oldest timestamptz := now() - make_interval(secs => least(setting('AGEING_SECONDS')::double precision, 1e9));
  lines  integer[];
  ranks  integer[];
  tids   tid[];
  last   integer;
begin
  with recursive line as (
    (select r.stream, r.rank, 1 as number
     from ready r
     where (r.stream, r.rank) > (after_stream, after_rank)
     order by r.stream, r.rank
     limit 1)
    union all
    select following.stream, following.rank, line.number + 1
    from line
    cross join lateral (
      select r.stream, r.rank
      from ready r
      where (r.stream, r.rank) > (line.stream, line.rank)
      order by r.stream, r.rank
      limit 1) following
    where line.number < max_lines
  )
  select array_agg(line.stream order by line.number), array_agg(line.rank order by line.number),
    min(line.rank), max(line.rank)
  into lines, ranks, lowest, highest
  from line;
  if cardinality(lines) = max_lines then
    reached_stream := lines[max_lines];
    reached_rank := ranks[max_lines];
  end if;

  if mixed or lowest < highest then
    -- The entries of a line are in order of arrival: if the first is not old, none is.
    select array_agg(old.tid), max(old.number) into tids, last
    from (
      select entry.tid, line.number::integer
      from unnest(lines, ranks) with ordinality as line (stream, rank, number)
      cross join lateral (
        select r.ready_at
        from ready r
        where r.stream = line.stream and r.rank = line.rank
        order by r.seq
        limit 1) first
      cross join lateral (
        select r.ctid as tid, r.ready_at
        from ready r
        where r.stream = line.stream and r.rank = line.rank
        order by r.seq
        limit max_jobs) entry
      where line.rank > 0 and first.ready_at < oldest and entry.ready_at < oldest
      limit max_jobs) old;
  end if;

  -- Not an update, which would fail permanently if a stray entry has that place already.
  with free as materialized (
    select r.ctid as tid
    from ready r
    where r.ctid = any (tids) and r.ready_at < oldest
    for update skip locked
  ), taken as (
    delete from ready r
    using free
    where r.ctid = free.tid
    returning r.stream, r.seq, r.job_id, r.ready_at
  ), moved as (
    insert into ready (stream, rank, seq, job_id, ready_at)
    select taken.stream, 0, taken.seq, taken.job_id, taken.ready_at from taken
    on conflict do nothing
  )
  select count(*) into aged from taken;
  if aged > 0 and cardinality(tids) = max_jobs then
    reached_stream := lines[last];
    reached_rank := ranks[last] - 1;
  end if;
  return next;
end
$$;

-- Let jobs that have waited for long go first, for leaders of the previous release. They also ask whether there are
-- several tenants; it makes no difference.
create or replace function age_from(
  after_stream integer default 0, after_rank integer default 0, max_lines integer default 2000,
  max_jobs integer default 500, mixed boolean default false, shared boolean default false
) returns table (
  aged integer, reached_stream integer, reached_rank integer, lowest integer, highest integer, first_tenant text,
  last_tenant text)
language sql security definer
set search_path from current
as $$
  select a.aged, a.reached_stream, a.reached_rank, a.lowest, a.highest, '', ''
  from age_lines(after_stream, after_rank, max_lines, max_jobs, mixed) a
$$;

-- Let jobs that have waited for long go first: the whole walk in one call, for leaders of older releases and for tests.
create or replace function age(max_jobs integer default 500) returns integer
language plpgsql security definer
set search_path from current
as $$
declare
  step     record;
  stream   integer;
  rank     integer;
  any_rank integer;
  mixed    boolean := false;
  total    integer := 0;
begin
  for look in 0..1 loop
    stream := 0;
    rank := 0;
    while stream is not null and total < max_jobs loop
      select a.* into step from age_lines(stream, rank, 10000, look * (max_jobs - total), mixed) a;
      any_rank := coalesce(any_rank, step.lowest);
      mixed := mixed or coalesce(step.lowest <> any_rank or step.highest <> any_rank, false);
      total := total + step.aged;
      stream := step.reached_stream;
      rank := step.reached_rank;
    end loop;
  end loop;
  return total;
end
$$;

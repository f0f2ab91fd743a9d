-- The work of bulk operations (see bulk.sql), for the duty `bulk`. Roles: worker.
--
-- Why no job is missed that fits from the start until its turn:
-- 1. Every open job has its row in the table of its state, at every moment (`verify`). One statement reads the rows of all
--    states that the filter allows, so it sees one moment, and every job that is open then.
-- 2. A job that is not open at that moment is already dead. Dead jobs stay dead, and a letter never moves: the walk over
--    letters, which begins afterwards, finds each.
-- 3. A walk over `jobs` goes by the id, which never changes.
-- 4. Only then is a job judged by the filter, in portions; those that fit are noted, and judged once more at their turn.

-- Find some of the jobs that fit, and note them.
create or replace function fix_bulk(bulk bulks, max_jobs integer) returns void
language plpgsql
set search_path from current
as $$
#variable_conflict use_column
begin
  if bulk.reached is null and bulk.sources && open_tables() then
    perform gather_bulk(bulk);
  elsif bulk.reached[1] = 'gathered' then
    perform judge_gathered(bulk, max_jobs);
  else
    perform note_found(bulk, p.ids, p.reached)
    from bulk_page(bulk.tree, bulk.tenant, bulk.sources, bulk.reached, max_jobs, 10 * max_jobs) p;
  end if;
end
$$;

-- The tables in which open jobs have their rows while they wait or run.
create or replace function open_tables() returns text[]
language sql immutable parallel safe
as $$
  select array['due', 'waiting', 'ready', 'leases', 'dormant']
$$;

-- Gather the ids of all open jobs that may fit, as they are at one moment. Only ids are read and kept: a million take
-- about a second. Where it would take too long, or the tables are very large, the operation walks over all jobs instead.
create or replace function gather_bulk(bulk bulks) returns void
language plpgsql
set search_path from current
set jit = off
as $$
#variable_conflict use_column
declare
  tables  text[] := array(select unnest(bulk.sources) intersect select unnest(open_tables()));
  ends_at timestamptz := clock_timestamp() + make_interval(secs => search_limit('seconds', 2)::double precision);
  is_much boolean;
  id      uuid;
  chunk   uuid[] := '{}';
  chunks  integer := 0;
begin
  -- What an earlier version of the engine left to be found again.
  delete from bulk_found f where f.bulk_id = bulk.id;
  select sum(pg_relation_size(format('%I', t.name)::regclass)) > search_limit('tables', 536870912) into is_much
  from unnest(tables) as t (name);
  if not is_much then
    -- One statement, so one moment.
    for id in
      execute (
        select string_agg(format('select s.job_id from %s', source_rows(t.name, bulk.tenant)), ' union all ')
        from unnest(tables) as t (name))
      using bulk.tenant
    loop
      chunk := chunk || id;
      if cardinality(chunk) = 200 then
        chunks := chunks + 1;
        insert into bulk_found (bulk_id, part, ids) values (bulk.id, chunks, chunk);
        chunk := '{}';
        is_much := clock_timestamp() > ends_at;
        exit when is_much;
      end if;
    end loop;
  end if;
  if is_much then
    delete from bulk_found f where f.bulk_id = bulk.id;
    update bulks b set sources = array['jobs'] where b.id = bulk.id;
  else
    insert into bulk_found (bulk_id, part, ids) values (bulk.id, chunks + 1, chunk);
    update bulks b set reached = array['gathered'] where b.id = bulk.id;
  end if;
end
$$;

-- Judge some of the jobs that were gathered by the filter, and note those that fit. At the end, go on with the letters.
create or replace function judge_gathered(bulk bulks, max_jobs integer) returns void
language plpgsql
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
#variable_conflict use_column
declare
  gathered uuid[];
  next     text[] := array['gathered'];
begin
  with portion as (
    delete from bulk_found f
    where f.bulk_id = bulk.id
      and f.part = any (array(
        select g.part from bulk_found g where g.bulk_id = bulk.id order by g.part limit greatest(1, max_jobs / 200)))
    returning f.part, f.ids
  ),
  rest as (
    insert into bulk_found (bulk_id, part, ids)
    select bulk.id, -p.part, p.ids[max_jobs + 1:]
    from portion p
    where max_jobs < cardinality(p.ids)
  )
  select array_agg(i.id order by p.part, i.place) into gathered
  from portion p, unnest(p.ids[:max_jobs]) with ordinality as i (id, place);
  if not exists (select from bulk_found f where f.bulk_id = bulk.id) then
    next := array[array_position(bulk.sources, 'letters')::text];
  end if;
  perform note_found(bulk, fitting_jobs(bulk, gathered), nullif(next, array[null::text]));
end
$$;

-- Note jobs as those that a bulk operation is about, and how far it has come; null if these were the last.
create or replace function note_found(bulk bulks, ids uuid[], reached text[]) returns void
language plpgsql
set search_path from current
as $$
#variable_conflict use_column
declare
  added integer;
begin
  insert into bulk_jobs (bulk_id, place, job_id)
  select bulk.id, bulk.last_place + found.place, found.id
  from unnest(ids) with ordinality as found (id, place)
  on conflict do nothing;
  get diagnostics added = row_count;
  update bulks b
  set matched = b.matched + added, last_place = b.last_place + cardinality(ids), reached = note_found.reached,
    state = case when note_found.reached is null then 'running' else b.state end
  where b.id = bulk.id;
end
$$;

-- Those of some jobs that fit now.
create or replace function fitting_jobs(bulk bulks, ids uuid[]) returns uuid[]
language plpgsql stable
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
#variable_conflict use_column
declare
  fitting uuid[];
begin
  execute format($q$
    select array(
      select noted.id
      from unnest($1) as noted (id)
      cross join lateral (
        select from jobs j where j.id = noted.id and ($2 is null or j.tenant = $2) and (%s) offset 0) fits)
    $q$, query_condition(bulk.tree))
  into fitting
  using ids, bulk.tenant, null, null, null, null, bulk.tree;
  return fitting;
end
$$;

-- Work on some of the jobs that were noted, for about a second. A job that somebody else has locked gets another turn
-- after the others; one that raises counts as failed.
create or replace function work_bulk(bulk bulks, max_jobs integer) returns void
language plpgsql
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
#variable_conflict use_column
declare
  ends_at   timestamptz := clock_timestamp() + interval '1 second';
  entry     bulk_jobs;
  fitting   uuid[];
  verdict   text;
  fault     text;
  verdicts  text[] := '{}';
  postponed integer := 0;
begin
  fitting := fitting_jobs(bulk, array(
    select e.job_id from bulk_jobs e where e.bulk_id = bulk.id and e.place > bulk.place order by e.place limit max_jobs));
  for entry in
    select e.* from bulk_jobs e where e.bulk_id = bulk.id and e.place > bulk.place order by e.place limit max_jobs
  loop
    exit when cardinality(verdicts) > 0 and clock_timestamp() > ends_at;
    begin
      verdict := case when entry.job_id = any (fitting) then bulk_act(bulk, entry.job_id) else 'skipped' end;
    exception
      when serialization_failure or deadlock_detected or lock_not_available then
        verdict := 'later';
      when others then
        get stacked diagnostics fault = message_text;
        verdict := 'failed';
    end;
    -- This was its twentieth turn.
    if verdict = 'later' and entry.tries >= 19 then
      verdict := 'failed';
      fault := 'somebody else has locked it';
    end if;
    if verdict = 'later' then
      postponed := postponed + 1;
      update bulk_jobs e
      set place = bulk.last_place + postponed, tries = e.tries + 1
      where e.bulk_id = bulk.id and e.place = entry.place;
    else
      delete from bulk_jobs e where e.bulk_id = bulk.id and e.place = entry.place;
      if verdict = 'failed' then
        bulk.error := coalesce(bulk.error, left(format('job %s: %s', entry.job_id, fault), 1000));
      end if;
    end if;
    verdicts := verdicts || verdict;
    bulk.place := entry.place;
  end loop;
  update bulks b
  set place = bulk.place,
    last_place = b.last_place + postponed,
    rests_until = case when postponed > 0 and postponed = cardinality(verdicts) then now() + interval '1 second' end,
    done = b.done + cardinality(array_positions(verdicts, 'done')),
    skipped = b.skipped + cardinality(array_positions(verdicts, 'skipped')),
    failed = b.failed + cardinality(array_positions(verdicts, 'failed')),
    error = bulk.error,
    state = case when cardinality(verdicts) = 0 then 'done' else b.state end,
    finished_at = case when cardinality(verdicts) = 0 then now() end
  where b.id = bulk.id;
end
$$;

-- Do what a bulk operation does to one job: `done`, `skipped`, or `later` if somebody else has locked it.
create or replace function bulk_act(bulk bulks, id uuid) returns text
language plpgsql
set search_path from current
as $$
#variable_conflict use_column
declare
  job     jobs;
  verdict text;
begin
  select j.* into job from jobs j where j.id = bulk_act.id;
  if bulk.action = 'ack' then
    verdict := case when acknowledge_letter(id, bulk."by", bulk.note) then 'done' end;
  elsif bulk.action = 'requeue' or (bulk.action = 'retry' and job.state = 'dead') then
    if bulk.args ? 'options' then
      perform check_enqueue(array[job.type], array['{}'::jsonb], array[bulk.args -> 'options'], job.tenant);
    end if;
    select r.outcome into verdict from requeue_letter(id, null, bulk.args -> 'options', bulk."by", bulk.note) r;
  elsif bulk.action = 'retry' and job.state in ('success', 'canceled') then
    if not is_erased(id) then
      perform run_again(job, bulk."by");
      verdict := 'done';
    end if;
  elsif bulk.action = 'reprioritize' then
    if job.state in ('created', 'scheduled', 'queued', 'retry', 'paused', 'error')
      and job.priority <> (bulk.args ->> 'priority')::integer then
      if not reprioritized(job, (bulk.args ->> 'priority')::integer) then
        return 'later';
      end if;
      insert into job_events (job_id, event, by, note)
      values (id, 'reprioritized', bulk."by",
        concat_ws(': ', format('priority %s', bulk.args ->> 'priority'), nullif(bulk.note, '')));
      verdict := 'done';
    end if;
  else
    verdict := carry_out(bulk.action, id, null, bulk."by", bulk.note, null);
    if verdict = 'when-ended' or (bulk.action = 'delete' and verdict = 'later') then
      -- What has to wait for the end of the attempt, or is too much for one go, becomes a request of its own.
      perform record_requests(bulk.action, array[id], bulk."by", bulk.note, null, null, false, false);
    elsif verdict = 'later' then
      return 'later';
    end if;
  end if;
  return case
    when verdict is null or verdict in ('repeated', 'request', 'erased', 'not-found', 'already-final', 'not-possible')
      and not (bulk.action = 'delete' and verdict = 'erased') then 'skipped'
    else 'done'
  end;
end
$$;

-- Forget what is left of a bulk operation that was stopped, some of it at a time.
create or replace function end_bulk(bulk bulks, max_jobs integer) returns void
language plpgsql
set search_path from current
set enable_seqscan = off
set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
  dropped   integer;
  last_seen bigint;
  is_last   boolean;
begin
  select count(*), max(portion.place) into dropped, last_seen
  from (
    select e.place from bulk_jobs e where e.bulk_id = bulk.id and e.place > bulk.place order by e.place limit max_jobs) portion;
  delete from bulk_jobs e where e.bulk_id = bulk.id and e.place > bulk.place and e.place <= last_seen;
  delete from bulk_found f
  where f.bulk_id = bulk.id
    and f.part = any (array(
      select g.part from bulk_found g where g.bulk_id = bulk.id order by g.part limit greatest(1, max_jobs / 10)));
  is_last := dropped < max_jobs and not exists (select from bulk_found f where f.bulk_id = bulk.id);
  update bulks b
  set place = coalesce(last_seen, b.place),
    state = case when is_last then 'stopped' else b.state end,
    finished_at = case when is_last then now() end
  where b.id = bulk.id;
end
$$;

-- Forget bulk operations that ended long ago, as ended jobs are. Answers how many. Setting the clock ahead makes none older
-- (see retire.sql).
create or replace function forget_bulks(max_bulks integer) returns integer
language plpgsql security definer
set search_path from current
as $$
declare
  horizon timestamptz := seen_horizon(false);
  dropped integer;
begin
  delete from bulks b
  where b.id in (
    select o.id from bulks o
    where o.finished_at < horizon
    order by o.finished_at
    limit max_bulks
    for update skip locked);
  get diagnostics dropped = row_count;
  return dropped;
end
$$;

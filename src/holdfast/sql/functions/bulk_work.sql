-- The work of bulk operations (see bulk.sql), for the duty `bulk`. Roles: worker.

-- Do a portion of one bulk operation. Answers whether there was something to do. Of several, one is taken by chance:
-- then one whose portions fail altogether holds up no other.
create or replace function advance_bulks(max_jobs integer default 100) returns boolean
language plpgsql security definer
set search_path from current
set lock_timeout = '200ms'
as $$
#variable_conflict use_column
declare
  bulk  bulks;
  fault text;
begin
  select b.* into bulk
  from bulks b
  where b.state in ('fixing', 'running', 'stopping') and (b.rests_until is null or b.rests_until <= now())
  order by random()
  limit 1
  for update skip locked;
  if not found then
    return forget_bulks(100) > 0;
  end if;
  begin
    if bulk.state = 'fixing' then
      perform fix_bulk(bulk, 20 * max_jobs);
    elsif bulk.state = 'running' then
      perform work_bulk(bulk, case when bulk.action in ('requeue', 'ack') then max_jobs else greatest(1, max_jobs / 10) end);
    else
      perform end_bulk(bulk, 50 * max_jobs);
    end if;
  exception
    when serialization_failure or deadlock_detected or lock_not_available then
      update bulks b set rests_until = now() + interval '1 second' where b.id = bulk.id;
    when others then
      get stacked diagnostics fault = message_text;
      update bulks b set state = 'stopping', error = left(fault, 1000) where b.id = bulk.id;
  end;
  return true;
end
$$;

-- Note some of the jobs that fit.
create or replace function fix_bulk(bulk bulks, max_jobs integer) returns void
language plpgsql
set search_path from current
as $$
#variable_conflict use_column
declare
  page  record;
  added integer;
begin
  select p.* into page
  from bulk_page(bulk.tree, bulk.tenant, bulk.sources, bulk.reached, max_jobs, 10 * max_jobs) p;
  insert into bulk_jobs (bulk_id, place, job_id)
  select bulk.id, bulk.last_place + found.place, found.id
  from unnest(page.ids) with ordinality as found (id, place)
  on conflict do nothing;
  get diagnostics added = row_count;
  update bulks b
  set matched = b.matched + added, last_place = b.last_place + cardinality(page.ids), reached = page.reached,
    state = case when page.reached is null then 'running' else b.state end
  where b.id = bulk.id;
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
  execute format($q$
    select array(
      select noted.id
      from unnest($1) as noted (id)
      cross join lateral (
        select from jobs j where j.id = noted.id and ($2 is null or j.tenant = $2) and (%s) offset 0) fits)
    $q$, query_condition(bulk.tree))
  into fitting
  using array(
      select e.job_id from bulk_jobs e where e.bulk_id = bulk.id and e.place > bulk.place order by e.place limit max_jobs),
    bulk.tenant, null, null, null, null, bulk.tree;
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
    if verdict = 'later' and entry.tries >= 20 then
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
    if bulk.action = 'delete' and verdict in ('later', 'when-ended') then
      -- What has to wait for the job's end, or is too much for one go, becomes a request of its own.
      perform record_requests('delete', array[id], bulk."by", bulk.note, null, null, false, false);
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
begin
  select count(*), max(portion.place) into dropped, last_seen
  from (
    select e.place from bulk_jobs e where e.bulk_id = bulk.id and e.place > bulk.place order by e.place limit max_jobs) portion;
  delete from bulk_jobs e where e.bulk_id = bulk.id and e.place > bulk.place and e.place <= last_seen;
  update bulks b
  set place = coalesce(last_seen, b.place),
    state = case when dropped < max_jobs then 'stopped' else b.state end,
    finished_at = case when dropped < max_jobs then now() end
  where b.id = bulk.id;
end
$$;

-- Forget bulk operations that ended long ago, as ended jobs are. Answers how many.
create or replace function forget_bulks(max_bulks integer) returns integer
language plpgsql
set search_path from current
as $$
declare
  dropped integer;
begin
  delete from bulks b
  where b.id in (
    select o.id from bulks o
    where o.finished_at < now() - retention_of(false) - clock_lead(retention_of(false))
    order by o.finished_at
    limit max_bulks
    for update skip locked);
  get diagnostics dropped = row_count;
  return dropped;
end
$$;

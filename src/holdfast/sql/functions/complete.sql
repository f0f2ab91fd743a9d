-- Record that attempts have succeeded, which most do: settle.sql has the rules, and all other endings.

-- Record that attempts have succeeded, with their results. Moves: running → success. Roles: worker.
create or replace function complete(
  worker       text,
  job_ids      uuid[],
  attempts     integer[],
  results      jsonb[] default null,
  durations_ms integer[] default null,
  log_excerpts text[] default null
) returns table (job_id uuid, attempt integer, state text)
language plpgsql security definer
set search_path from current
set jit = off
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = on
set enable_nestloop = off
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
set lock_timeout = '2s'
as $$
#variable_conflict use_column
declare
  settled uuid[];
  numbers integer[];
  tenants text[];
  targets text[];
  -- Not now(): a handler's own transaction (`ctx.transaction()`) may have begun long before its job ends.
  moment  timestamptz := clock_timestamp();
begin
  if results is not null then
    perform check_results(job_ids, results);
  end if;
  -- As in a claim, ids are looked up all at once. Both sides of the join come in the order of the ids, so that leases
  -- are locked in that order, whichever side drives the join. The joined rows are small: otherwise the join would not
  -- fit into memory and would come in parts. The other columns are found by position. Whether an attempt was logged
  -- before is looked up one by one, because a job may have had very many attempts.
  with gone as (
    delete from leases l
    using (
      select r.job_id, r.attempt, r.position
      from unnest(job_ids, attempts) with ordinality as r (job_id, attempt, position)
      order by r.job_id) report
    where l.job_id = any (job_ids) and l.job_id = report.job_id and l.attempt = report.attempt
      and l.worker = complete.worker
    returning l.job_id, l.attempt, l.claimed_at, l.ready_at, l.worker, report.position,
      coalesce(l.verdict, l.interrupt) as decision, l.interrupted_by, l.interrupt_note
  ), ended as (
    update jobs j
    set state = 'success', result = results[gone.position], finished_at = moment, updated_at = moment, dedup_key = null
    from gone
    where j.id = any (job_ids) and j.id = gone.job_id and j.state = 'running' and j.attempt = gone.attempt
    returning j.id, j.attempt, j.tenant, j.target, gone.claimed_at, gone.ready_at, gone.worker, gone.position,
      gone.decision, gone.interrupted_by, gone.interrupt_note
  ), late as (
    -- Success wins. What somebody had decided about this attempt is in the history, at least.
    insert into job_events (job_id, event, by, note)
    select e.id, 'too-late', e.interrupted_by, too_late_note(e.decision, e.interrupt_note)
    from ended e
    where e.decision is not null
  ), logged as (
    insert into job_attempts (
      job_id, attempt, started_at, finished_at, queue_ms, duration_ms, outcome, worker, log_excerpt)
    select e.id, e.attempt, e.claimed_at, moment, milliseconds(e.claimed_at - e.ready_at),
      greatest(coalesce(durations_ms[e.position], milliseconds(moment - e.claimed_at)), 0), 'success', e.worker,
      left(log_excerpts[e.position], 10000)
    from ended e
    where (select true from job_attempts t where t.job_id = e.id and t.attempt = e.attempt limit 1) is null
  )
  select
    array_agg(e.id),
    array_agg(e.attempt),
    array_agg(e.tenant) filter (where e.target is not null),
    array_agg(e.target) filter (where e.target is not null)
  into settled, numbers, tenants, targets
  from ended e;

  if targets is not null then
    perform seat(tenants, targets);
  end if;
  if exists (select from limited_types()) then
    perform make_room(settled);
  end if;
  if cardinality(settled) = cardinality(job_ids) then
    return query select a.id, a.number, 'success' from unnest(job_ids, attempts) as a (id, number);
  else
    perform vouch();
    return query
    select * from settlement_answer(
      worker, job_ids, attempts, settled, numbers, array_fill('success'::text, array[coalesce(cardinality(settled), 0)]));
  end if;
end
$$;

-- Refuse results that are too large. They are measured like payloads: see sizes.sql.
create or replace function check_results(job_ids uuid[], results jsonb[]) returns void
language plpgsql stable
set search_path from current
as $$
declare
  most  bigint := result_limit();
  fault text;
begin
  select json_fault(
    'the result of ' || coalesce((select j.type from jobs j where j.id = job_ids[r.place]), 'an unknown job'),
    r.result, most, 'RESULT_MAX_BYTES',
    'return less, store it elsewhere and return where it is, or raise the limit') into fault
  from unnest(results) with ordinality as r (result, place)
  where (most < 1024 or not is_small(r.result))
    and not is_storable(r.result, most)
  limit 1;
  if found then
    raise exception '%', fault using errcode = 'HF002';
  end if;
end
$$;

-- How large a result may be, in bytes. Roles: worker.
create or replace function result_limit() returns bigint
language sql stable security definer
set search_path from current
as $$
  select setting('RESULT_MAX_BYTES')::bigint
$$;

-- Plain successes of remote workers, settled together: most reports of a fleet say that a short job is done, and nothing
-- else. Moves: running → success. Roles: none; `remote_report` uses this.
--
-- 1. A report is plain if it says `done`, perhaps with a result, and if it is the only one about its job in this statement;
--    the others of a job are recorded in their order. Its job has reported nothing before.
-- 2. What cannot be settled here, for whatever reason, is recorded like all others, by itself.

-- Settle the plain successes among reports. Answers their places.
create or replace function settle_plain(
  tenants text[], workers text[], job_ids uuid[], attempts integer[], reports text[]
) returns integer[]
language plpgsql
set search_path from current
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
#variable_conflict use_column
declare
  party   record;
  settled integer[] := '{}';
begin
  if exists (select from circuits) then
    return settled;  -- successes count there
  end if;
  for party in
    select r.tenant, r.worker, array_agg(r.job_id order by r.job_id) as ids,
      array_agg(r.attempt order by r.job_id) as numbers, array_agg(r.report order by r.job_id) as reports,
      array_agg(r.place order by r.job_id) as places
    from (
      select r.tenant, r.worker, r.job_id, r.attempt, r.report::jsonb as report, r.place::integer as place,
        count(*) over (partition by r.job_id) as times
      from unnest(tenants, workers, job_ids, attempts, reports) with ordinality
        as r (tenant, worker, job_id, attempt, report, place)) r
    where r.times = 1 and r.tenant <> '' and starts_with(r.worker, 'remote:')
      and r.report - 'result' = '{"done": true}'
    group by r.tenant, r.worker
    order by 1, 2
  loop
    begin
      settled := settled || settle_plainly(
        party.tenant, party.worker, party.ids, party.numbers, party.reports, party.places);
    exception
      when lock_not_available or deadlock_detected or serialization_failure or program_limit_exceeded or check_violation
        or sqlstate 'HF001' or sqlstate 'HF002' or data_exception or statement_too_complex then
        null;  -- each of them by itself
    end;
  end loop;
  return settled;
end
$$;

-- Settle plain successes of one worker, as far as nobody else has locked them. Answers their places.
create or replace function settle_plainly(
  tenant text, worker text, job_ids uuid[], attempts integer[], reports jsonb[], places integer[]
) returns integer[]
language plpgsql
set search_path from current
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
#variable_conflict use_column
declare
  ids     uuid[];
  numbers integer[];
  results jsonb[];
  digests bytea[];
  found   integer[];
begin
  select array_agg(own.job_id order by own.place), array_agg(own.attempt order by own.place),
    array_agg(own.report -> 'result' order by own.place), array_agg(remote_digest(own.report) order by own.place),
    array_agg(places[own.place] order by own.place)
  into ids, numbers, results, digests, found
  from (
    select a.job_id, a.attempt, a.report, a.place
    from unnest(job_ids, attempts, reports) with ordinality as a (job_id, attempt, report, place)
    join leases l on l.job_id = a.job_id and l.attempt = a.attempt and l.worker = settle_plainly.worker
    join jobs j on j.id = l.job_id and j.tenant = settle_plainly.tenant and j.state = 'running'
    where not exists (select from job_progress p where p.job_id = a.job_id)
    order by a.place
    for update of l skip locked
    for no key update of j skip locked) own;
  if ids is null then
    return '{}';
  end if;
  perform from complete(worker, ids, numbers, results);
  update job_attempts t
  set report_digest = ended.digest
  from unnest(ids, numbers, digests) as ended (job_id, attempt, digest)
  where t.job_id = ended.job_id and t.attempt = ended.attempt;
  return found;
end
$$;

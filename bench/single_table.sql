-- The layout that was not chosen, for comparison: one table, partial indexes on its state.
-- Same columns, same guard, attempts written; what moves is updated in place.

create table single_jobs (like jobs including defaults including constraints) with (fillfactor = 50);
alter table single_jobs add primary key (id);
alter table single_jobs add column worker text, add column lease_expires_at timestamptz;
create unique index on single_jobs (tenant, idempotency_key) where idempotency_key is not null;
create unique index on single_jobs (tenant, type, dedup_key) where dedup_key is not null;
create index on single_jobs (correlation_id) where correlation_id is not null;
create index on single_jobs (parent_id) where parent_id is not null;
create index on single_jobs (stream, priority, seq) where state = 'queued';
create index on single_jobs (run_at) where state in ('scheduled', 'retry');
create index on single_jobs (lease_expires_at) where state = 'running';

create function single_claim(worker text, streams integer[], max_jobs integer)
returns table (job_id uuid, attempt integer, payload jsonb)
language sql
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
  with picked as materialized (
    select s.ctid as tid
    from single_jobs s
    where s.state = 'queued' and s.stream = streams[1]
    order by s.stream, s.priority, s.seq
    limit max_jobs
    for update skip locked
  )
  update single_jobs j
  set state = 'running', attempt = j.attempt + 1, worker = single_claim.worker, started_at = now(),
    lease_expires_at = now() + interval '30 seconds', updated_at = now()
  from picked
  where j.ctid = picked.tid
  returning j.id, j.attempt, j.payload
$$;

create function single_complete(worker text, job_ids uuid[], attempts integer[]) returns setof uuid
language sql
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
  with ended as (
    update single_jobs j
    set state = 'success', finished_at = now(), updated_at = now(), dedup_key = null, worker = null
    from unnest(job_ids, attempts) as r (id, attempt)
    where j.id = r.id and j.attempt = r.attempt and j.state = 'running'
    returning j.id, j.attempt, j.started_at
  ), logged as (
    insert into job_attempts (job_id, attempt, started_at, duration_ms, outcome, worker)
    select id, attempt, started_at, 1, 'success', single_complete.worker from ended
  )
  select id from ended
$$;

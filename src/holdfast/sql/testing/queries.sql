-- name: has_clock
-- Whether the testing kit made this schema.
select to_regclass(format('%I.testing_clock', $1::text)) is not null;

-- name: testing_clear
-- Forget every job.
select holdfast.testing_clear();

-- name: testing_reset
-- Forget every job, settings that were changed, and the time.
select holdfast.testing_reset();

-- name: testing_now
-- What time it is for the engine.
select holdfast.now();

-- name: testing_freeze
-- Stop the engine's time: now, or at a given moment.
update holdfast.testing_clock set frozen_at = coalesce($1::timestamptz, holdfast.now());

-- name: testing_advance
-- Move the engine's time on, whether it is stopped or not.
update holdfast.testing_clock
set frozen_at = frozen_at + make_interval(secs => $1::double precision),
  shift = case when frozen_at is null then shift + make_interval(secs => $1::double precision) else shift end;

-- name: testing_unfreeze
-- Let the engine's time go on from its current moment.
update holdfast.testing_clock
set shift = make_interval(secs => extract(epoch from frozen_at - pg_catalog.now())::double precision), frozen_at = null
where frozen_at is not null;

-- name: testing_lapse
-- Let the lease of one attempt lapse.
update holdfast.leases
set expires_at = holdfast.now() - interval '1 second'
where job_id = $1 and attempt = $2;

-- name: testing_sweep
-- Take back every lapsed lease, without the wait after an outage: there was none.
select job_id, attempt, state from holdfast.sweep(1e9, 500);

-- name: testing_claim
-- Lease one job by its id.
select job_id, attempt, type, queue, tenant, payload, correlation_id, target, lease_expires_at,
  holdfast.last_cursor(job_id)::text as cursor
from holdfast.claim_by_id($1, $2);

-- name: testing_cut_connections
-- End every session in a database, and count them.
select count(pg_terminate_backend(pid, 5000)) from pg_stat_activity where datname = $1;

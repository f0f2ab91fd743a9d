-- name: enqueue_many
-- Record intents; one row per position.
select item, job_id, state, outcome
from holdfast.enqueue_many($1::text[], $2::text[]::jsonb[], $3::text[]::jsonb[], $4, $5, $6::uuid[]);

-- name: enqueue_plain
-- Record intents of one type without options; a row per position that was not simply recorded.
select item, job_id, state, outcome
from holdfast.enqueue_plain($1, $2::text[]::jsonb[], $3::uuid[], $4, $5, $6, $7);

-- name: release_held
-- created → queued | scheduled.
select job_id, outcome from holdfast.release_held($1::uuid[], $2, $3);

-- name: request
-- Ask maintenance to cancel, pause, resume, delete or retry jobs.
select job_id, outcome, request_id from holdfast.request($1, $2::uuid[], $3, $4, $5);

-- name: request_later
-- The same inside a longer transaction: no worker has to wait for its commit.
select job_id, outcome, request_id from holdfast.request($1, $2::uuid[], $3, $4, $5, false);

-- name: get_jobs
-- Jobs by id.
with found as materialized (
  select * from holdfast.get_jobs($1::uuid[], $2)
)
select
  id, type, queue, lane, tenant, state, reason, priority, attempt, failures, max_attempts, target, idempotency_key,
  dedup_key, correlation_id, parent_id, retry_of, created_by, created_at, updated_at, run_at, started_at,
  finished_at, last_error, last_error_at, target_count, lease_owner, lease_expires_at, interrupt,
  payload::text as payload, result::text as result, traceparent, progress_count, result_count,
  cursor::text as cursor, last_progress_at, done_reason
from found
left join holdfast.get_progress(array(select id from found)) on job_id = id;

-- name: list_jobs
-- Jobs, newest first, page by page.
with page as materialized (
  select * from holdfast.list_jobs($1::text[], $2::text[], $3::text[], $4, $5, $6, $7, $8)
)
select
  id, type, queue, lane, tenant, state, reason, priority, attempt, failures, max_attempts, target, idempotency_key,
  dedup_key, correlation_id, parent_id, retry_of, created_by, created_at, updated_at, run_at, started_at,
  finished_at, last_error, last_error_at, target_count, lease_owner, lease_expires_at, interrupt,
  payload::text as payload, result::text as result, traceparent, progress_count, result_count,
  cursor::text as cursor, last_progress_at, done_reason
from page
left join holdfast.get_progress(array(select id from page)) on job_id = id
order by id desc;

-- name: get_attempts
-- Every ended attempt of a job.
select * from holdfast.get_attempts($1);

-- name: get_events
-- The rarer moves of a job.
select * from holdfast.get_events($1);

-- name: get_items
-- What a job has stored, page by page.
select id, collection, key, data::text as data, created_at from holdfast.get_items($1, $2, $3);

-- name: backlog
-- How much stands where.
select measure, count from holdfast.backlog();

-- name: verify
-- Offences against the invariants.
select invariant, job_id, detail from holdfast.verify($1);

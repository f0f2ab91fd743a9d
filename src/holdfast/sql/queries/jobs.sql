-- name: enqueue_many
-- Record intents; one row per position.
select item, job_id, state, outcome
from holdfast.enqueue_many($1::text[], $2::text[]::jsonb[], $3::text[]::jsonb[], $4, $5, $6::uuid[]);

-- name: enqueue_plain
-- Record intents of one type without options; a row for each position that was not simply recorded.
select item, job_id, state, outcome
from holdfast.enqueue_plain($1, $2::text[]::jsonb[], $3::uuid[], $4, $5, $6, $7);

-- name: release_held
-- created → queued | scheduled.
select job_id, outcome from holdfast.release_held($1::uuid[], $2, $3);

-- name: request
-- Ask maintenance to cancel, pause, resume, delete or retry jobs.
select job_id, outcome, request_id from holdfast.request($1, $2::uuid[], $3, $4, $5);

-- name: request_later
-- Make a request inside a longer transaction: no worker has to wait for its commit.
select job_id, outcome, request_id from holdfast.request($1, $2::uuid[], $3, $4, $5, false);

-- name: get_jobs
-- Jobs by id, with payloads and results.
with found as materialized (
  select * from holdfast.get_jobs($1::uuid[], $2)
)
select
  id, left(type, 200) as type, left(queue, 200) as queue, lane, left(tenant, 200) as tenant, state,
  left(reason, 255) as reason, priority, attempt, failures, max_attempts, left(target, 255) as target,
  left(idempotency_key, 255) as idempotency_key, left(dedup_key, 255) as dedup_key,
  left(correlation_id, 255) as correlation_id, parent_id, retry_of, left(created_by, 500) as created_by, created_at,
  updated_at, run_at, started_at, finished_at, left(last_error, 10000) as last_error, last_error_at, target_count,
  left(lease_owner, 255) as lease_owner, lease_expires_at, interrupt, payload::text as payload, result::text as result,
  left(traceparent, 255) as traceparent, progress_count, result_count, cursor::text as cursor,
  holdfast.readable(last_progress_at) as last_progress_at, done_reason
from found
left join holdfast.get_progress(array(select id from found)) on job_id = id;

-- name: list_jobs
-- Jobs, newest first, page by page.
select
  id, type, queue, lane, tenant, state, reason, priority, attempt, failures, max_attempts, target, idempotency_key,
  dedup_key, correlation_id, parent_id, retry_of, created_by, created_at, updated_at, run_at, started_at,
  finished_at, last_error, last_error_at, target_count, lease_owner, lease_expires_at, interrupt, traceparent,
  progress_count, result_count, last_progress_at, done_reason
from holdfast.summaries(holdfast.listed_ids($1::text[], $2::text[], $3::text[], $4, $5, $6, $7, $8))
order by id desc;

-- name: summaries
-- What lists show of jobs, by id.
select
  id, type, queue, lane, tenant, state, reason, priority, attempt, failures, max_attempts, target, idempotency_key,
  dedup_key, correlation_id, parent_id, retry_of, created_by, created_at, updated_at, run_at, started_at,
  finished_at, last_error, last_error_at, target_count, lease_owner, lease_expires_at, interrupt, traceparent,
  progress_count, result_count, last_progress_at, done_reason
from holdfast.summaries($1::uuid[], $2);

-- name: attempts_page
-- A page of the ended attempts of a job.
select * from holdfast.attempts_page($1, $2, $3, $4);

-- name: events_page
-- A page of a job's history.
select * from holdfast.events_page($1, $2, $3, $4);

-- name: items_page
-- The items of a job, page by page.
select * from holdfast.items_page($1, null, $2, $3);

-- name: payload_limit
-- How large a payload may be.
select holdfast.payload_limit() as bytes;

-- name: accepted_payloads
-- The shapes by which payloads of these types are judged.
select type, mode, digest, shape from holdfast.accepted_payloads($1::text[], $2::text[]);

-- name: other_names
-- The known names if the given one is unknown; null if it is known.
select holdfast.other_names($1, $2) as names;

-- name: answered_key
-- The job that belongs to an idempotency key.
select job_id, state, outcome from holdfast.answered_key($1, $2, $3, $4::text::jsonb);

-- name: backlog
-- How many jobs are ready, running, due, waiting and dead.
select measure, count from holdfast.backlog();

-- name: verify
-- Violations of the invariants.
select invariant, job_id, detail from holdfast.verify($1);

-- name: remote_pull
-- Claim jobs for remote workers: queued → running. A row for each job, or one without a job.
select item, fault, detail, directive, repeated, job_id, attempt, type, queue, payload, max_attempts, correlation_id,
  target, cursor, progress_count, result_count, target_count, traceparent, timeout_seconds, lease_seconds,
  lease_expires_at, lease_remaining
from holdfast.remote_pull($1::text[], $2::text[], $3::text[], $4::text[]::jsonb[]);

-- name: remote_report
-- Record reports of remote workers, each with what they end: running → success | retry | dead | ….
select item, fault, detail, pointer, verdict, state, owned, directive, lease_expires_at, lease_remaining,
  progress_count, result_count, outcome
from holdfast.remote_report($1::text[], $2::text[], $3::uuid[], $4::integer[], $5::text[]);

-- name: remote_extend
-- Prolong leases of remote workers.
select item, owned, directive, lease_expires_at, lease_remaining, timeout_remaining
from holdfast.remote_extend($1::text[], $2::text[], $3::uuid[], $4::integer[], $5::double precision[]);

-- name: remote_release
-- Hand back jobs of remote workers: running → queued | paused | canceled.
select item, fault, detail, state
from holdfast.remote_release($1::text[], $2::text[], $3::uuid[], $4::integer[], $5::text[]);

-- name: remote_beat
-- Note that remote workers live. A row for each that is to claim no more.
select worker from holdfast.remote_beat($1::text[]);

-- name: remote_stock
-- Where there is work for remote workers that wait.
select id, tenant, type, queue, ready from holdfast.remote_stock($1::text[], $2::text[], $3::integer[], $4);

-- name: remote_news
-- What concerns remote workers that wait.
select worker, job_id, attempt, directive from holdfast.remote_news($1::uuid[]);

-- name: remote_repeats
-- Which pulls of remote workers were answered before.
select item from holdfast.remote_repeats($1::text[], $2::text[], $3::text[]);

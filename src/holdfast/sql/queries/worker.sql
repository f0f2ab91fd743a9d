-- name: claim_jobs
-- Lease jobs from ranges of streams; those beyond the free slots have numbers. A large payload and its cursor are left
-- out until the handler is about to run (see `payloads`): hundreds of jobs may be claimed at once.
select job_id, attempt, stream, rank, seq,
  case
    when octet_length(payload_text) <= 16384 and coalesce(octet_length(cursor_text) <= 16384, last_cursor is null)
    then payload_text
  end as payload,
  correlation_id, target, failures, max_attempts,
  holdfast.readable(ready_at) as ready_at, claimed_at, lease_seconds_given,
  cursor_text as cursor, last_chance, number, left(traceparent, 255) as traceparent
from (
  select c.*, case when pg_column_size(c.last_cursor) <= 2000 then c.last_cursor::text end as cursor_text
  from (
    select c.*, case when pg_column_size(c.payload) <= 2000 then c.payload::text end as payload_text,
      case when c.attempt > 1 then holdfast.last_cursor(c.job_id) end as last_cursor
    from holdfast.claim_jobs($1, $2, $3, $4::integer[], $5::integer[], $6::bigint[], $7::integer[], $8, $9, $10) c
    offset 0) c
  offset 0) c;

-- name: payloads
-- Payloads and cursors that were too large to come with a claim.
select job_id, payload, cursor from holdfast.claimed_payloads($1, $2::uuid[], $3::integer[]);

-- name: may_begin
-- Record that jobs up to these numbers are about to begin.
select holdfast.may_begin($1, $2::bigint[]);

-- name: record_beginnings
-- Record that these jobs, at their last chance, are about to begin.
select job_id, recorded from holdfast.record_beginnings($1, $2::uuid[], $3::integer[]);

-- name: open_streams
-- The streams from which a worker may claim now; it says from which it has claimed.
select id, tenant, queue, type, limited, keyed
from holdfast.offer($1::text[], $2::text[], $3::text[], $4::integer[]);

-- name: ready_streams
-- Those of the streams in which something is ready.
select id from holdfast.ready_streams($1::integer[]);

-- name: worker_settings
-- The settings that the database has a value for.
select holdfast.worker_settings();

-- name: work_left
-- Whether a worker for these streams has anything left to do.
select holdfast.work_left($1::integer[]);

-- name: renew
-- Prolong leases; a row for each lease that the worker still has.
select job_id, attempt, lease_remaining, interrupt from holdfast.renew($1, $2::uuid[], $3::integer[]);

-- name: interrupted
-- Leases that somebody wants to interrupt.
select job_id, attempt, interrupt from holdfast.interrupted($1, $2::uuid[], $3::integer[]);

-- name: mark_transaction
-- Give the transaction a mark that ends with it.
select set_config('holdfast.job_transaction', $1, true);

-- name: complete_and_commit
-- running → success, in a transaction whose commit is next. If the commit does not come, the server ends the session:
-- until then the lease can be neither renewed nor swept. No row if the transaction is not the one with this mark ($7).
select ended.job_id, ended.attempt, ended.state
from (
  select $1::text as worker, $2::uuid[] as ids, $3::integer[] as attempts, $4::text[]::jsonb[] as results,
    $5::integer[] as durations, $6::text[] as excerpts,
    current_setting('holdfast.job_transaction', true) = $7::text as is_marked) given
cross join lateral holdfast.complete(
  given.worker, case when given.is_marked then given.ids else '{}' end,
  case when given.is_marked then given.attempts else '{}' end, given.results, given.durations, given.excerpts) ended
cross join set_config('idle_in_transaction_session_timeout', '20s', true);

-- name: complete_many
-- running → success; a row for each attempt that did not reach it.
select job_id, attempt, state
from holdfast.complete($1, $2::uuid[], $3::integer[], $4::text[]::jsonb[], $5::integer[], $6::text[])
where state <> 'success';

-- name: fail
-- running → retry | dead | error | paused | canceled.
select job_id, attempt, state
from holdfast.fail($1, $2::uuid[], $3::integer[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[],
  $9::double precision[], $10::text[], $11::integer[]);

-- name: snooze
-- running → scheduled | queued.
select job_id, attempt, state
from holdfast.put_off($1, $2::uuid[], $3::integer[], $4::double precision[], $5::text[], $6::text[]);

-- name: release
-- running → queued.
select job_id, attempt, state from holdfast.hand_back($1, $2::uuid[], $3::integer[], $4);

-- name: stop
-- running → canceled | paused.
select job_id, attempt, state from holdfast.stop($1, $2::uuid[], $3::integer[], $4::text[], $5::text[]);

-- name: report
-- Record what an attempt reports before it ends.
select state, duplicate, progress_count, result_count, target_count, target_reached
from holdfast.report($1, $2, $3, $4, $5::text::jsonb, $6, $7::text::jsonb, $8, $9);

-- name: enlist
-- Register a worker, with its job types.
select holdfast.enlist($1, $2, $3, $4, $5::text::jsonb, $6::text[], $7::text[], $8::text[], $9::text::jsonb);

-- name: other_shapes
-- The shapes of other live workers that could run a job.
select shape from holdfast.other_shapes($1, $2, $3, $4);

-- name: beat
-- Record that a worker is alive, and how many slots of each lane it uses. It learns in return the settings, whether
-- somebody told it to claim no more, and who stopped claims everywhere.
select holdfast.beat_with_slots($1, $2, $3::text::jsonb), holdfast.worker_settings(), holdfast.is_quiet($1),
  holdfast.stopped_by();

-- name: unregister_worker
-- Record that a worker has left in good order.
select holdfast.unregister_worker($1);

-- name: publish_types
-- Publish job types.
select holdfast.publish_types($1::text::jsonb);

-- name: claim_mark
-- A mark: every lease that is claimed from now on is younger.
select claimed_until, before_number from holdfast.claim_mark();

-- name: release_unheard
-- Hand back leases whose claim was never answered.
select holdfast.hand_back_unheard($1, $2::uuid[], $3, $4);

-- name: declare_schedules
-- Say which schedules this worker's code declares.
select tenant, name, fault from holdfast.declare_schedules($1, $2::text::jsonb);

-- name: queue_depths
-- How many jobs of each type wait for a worker.
select type, depth from holdfast.queue_depths();

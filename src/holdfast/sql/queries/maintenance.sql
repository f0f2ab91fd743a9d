-- name: preside
-- Become or stay the leader, and learn the state of the database's clock and server.
select leads, clock, server_started, unheard, renewals from holdfast.preside($1, $2, $3, $4, $5::text::jsonb, $6, $7);

-- name: unheard
-- Whether there may be work for which no notification was sent.
select holdfast.unheard();

-- name: resign
-- Give up leadership.
select holdfast.resign($1, $2);

-- name: promote
-- scheduled | retry → queued.
select promoted, next_in_seconds, nullif(reached, '-infinity') as reached
from holdfast.promote_due($1, coalesce($2::timestamptz, '-infinity'));

-- name: promote_behind
-- scheduled | retry → queued, for tenants with nothing due before the given entry.
select promoted, ended, reached_run_at, reached_job_id, left_tenants, left_run_at, left_job_ids
from holdfast.promote_behind(
  coalesce($1::timestamptz, '-infinity'), coalesce($2::uuid, '00000000-0000-0000-0000-000000000000'), $3::text[], $4, $5);

-- name: elect
-- Seat the heads of targets that were called.
select called, reached from holdfast.elect_from($1, $2);

-- name: execute_requests
-- Carry out requests to cancel, pause, resume, delete and retry.
select holdfast.execute_requests($1);

-- name: recover
-- Take back lapsed leases, and learn which are spared.
select job_id, attempt, worker, state, expires_at, lease_seconds
from holdfast.recover($1, $2::double precision[], $3::double precision[], $4::uuid[], $5::integer[], $6::timestamptz[], $7);

-- name: ended_attempts
-- Attempts that were settled in place of their worker, for the log.
select job_id, attempt, type, tenant, queue, outcome, failures, duration_seconds, queue_seconds, correlation_id, worker,
  error_type, error_message
from holdfast.ended_attempts($1::uuid[], $2::integer[]);

-- name: review_leases
-- As clamp_leases, with all leases that were looked at.
select job_id, attempt, lease_seconds, was, expires_at, reached from holdfast.review_leases($1, $2);

-- name: clamp_leases
-- No lease lasts longer than its length.
select job_id, attempt, lease_seconds, was, expires_at, reached from holdfast.clamp_leases($1, $2);

-- name: clamp_rates
-- No permit of a rate was granted in the future.
select changed, reached_gate, reached_slot from holdfast.clamp_rates($1, $2, $3);

-- name: clamp_backoff
-- No backoff lasts longer than its length.
select changed, reached_run_at, reached_job from holdfast.clamp_backoff($1, $2, $3);

-- name: age
-- Let old jobs go first.
select aged, reached_stream, reached_rank, lowest, highest from holdfast.age_lines($1, $2, $3, $4, $5);

-- name: reconcile
-- Mend open jobs that lack their side row.
select job_id, repair, reached, open_jobs from holdfast.reconcile_pages($1, $2);

-- name: drop_stray_leases
-- Drop leases of attempts that do not run.
select mended, reached from holdfast.drop_stray_leases($1, $2);

-- name: drop_stray_entries
-- Drop entries of `ready` whose job does not fit.
select mended, reached from holdfast.drop_stray_entries($1, $2);

-- name: drop_stray_due
-- Drop entries of `due` whose job does not fit.
select mended, reached from holdfast.drop_stray_due($1, $2);

-- name: drop_stray_dormant
-- Drop rows of `dormant` whose job does not fit.
select mended, reached from holdfast.drop_stray_dormant($1, $2);

-- name: note_dormant
-- Note jobs that were created, paused or in error before there was a table of them.
select mended, reached from holdfast.note_dormant($1, $2);

-- name: show_hidden
-- Bring back entries that are hidden from claims without being parked.
select mended, reached from holdfast.show_hidden($1, $2);

-- name: replace_heads
-- Replace heads that have ended or are gone.
select mended, reached from holdfast.replace_heads($1, $2);

-- name: seat_headless
-- Seat a head for targets without one.
select mended, reached from holdfast.seat_headless($1, $2);

-- name: retire
-- Delete ended jobs whose retention is over.
select deleted, visited, reached, kept from holdfast.retire_known($1, $2, $3, $4);

-- name: forget_workers
-- Forget workers that have been silent for a day.
select holdfast.forget_workers();

-- name: admit
-- Bring back parked jobs for which there is room.
select looked, reached from holdfast.admit($1, $2);

-- name: forget_idle_permits
-- Forget permits that nobody uses any more.
select mended, reached from holdfast.forget_idle_permits($1, $2);

-- name: serve_streams
-- Bring back the streams that have entries.
select mended, reached from holdfast.serve_ready($1, $2);

-- name: forget_streams
-- Forget idle streams.
select mended, reached from holdfast.forget_streams($1, $2);

-- name: add_failures
-- Add up failures by fingerprint.
select added, reached from holdfast.add_failures($1, $2);

-- name: drop_recovered
-- Take out of `failing` what has ended.
select mended, reached from holdfast.drop_recovered($1, $2);

-- name: forget_fingerprints
-- Forget fingerprints that are old, or too many.
select mended, reached from holdfast.forget_fingerprints($1, $2);

-- name: read_letters
-- Give letters from before there were fingerprints theirs.
select mended, reached from holdfast.read_letters($1, $2);

-- name: note_held
-- Count open jobs among what fails that failed before there were fingerprints.
select mended, reached from holdfast.note_held($1, $2);

-- name: turn_bulk
-- The bulk operation whose turn it is.
select holdfast.turn_bulk();

-- name: advance_bulk
-- Do a portion of a bulk operation.
select holdfast.advance_bulk($1, $2);

-- name: due_schedules
-- Schedules that are to be looked at, and when the next one follows.
select id, tenant, name, revision, cron, every_seconds, anchor, tz, next_fire_at, reckoned_from, catch_up, clock, next_in_seconds
from holdfast.due_schedules($1, $2);

-- name: fire_schedules
-- Decide fire times.
select id, tenant, name, fired, skipped, missed_from, fault, failures
from holdfast.fire_schedules(
  $1::bigint[], $2::integer[], $3::timestamptz[], $4::timestamptz[], $5::timestamptz[], $6::bigint[], $7::timestamptz[]);

-- name: refuse_schedule
-- Note that fire times cannot be computed.
select holdfast.refuse_schedule($1, $2, $3);

-- name: rewind_schedules
-- Compute fire times again that were computed from a later clock.
select mended, reached from holdfast.rewind_schedules($1, $2);

-- name: retire_schedules
-- Retire schedules that nobody declares any more.
select mended, reached from holdfast.retire_schedules($1, $2);

-- name: forget_fires
-- Forget old fire times.
select mended, reached from holdfast.forget_fires($1, $2);

-- name: forget_bulks
-- Forget bulk operations that ended long ago.
select holdfast.forget_bulks($1);

-- name: forget_pulls
-- Forget what pulls of remote workers were answered long ago.
select mended, reached from holdfast.forget_pulls($1::text[], $2);

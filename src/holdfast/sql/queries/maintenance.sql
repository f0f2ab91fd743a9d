-- name: lead
-- Become or stay the leader.
select holdfast.lead($1, $2, $3);

-- name: resign
-- Let another lead.
select holdfast.resign($1, $2);

-- name: promote
-- scheduled | retry → queued.
select promoted, next_in_seconds, reached from holdfast.promote($1, $2);

-- name: elect
-- Seat the heads of targets that were called.
select holdfast.elect($1);

-- name: execute_requests
-- Cancel, pause, resume, delete and retry what was asked for.
select holdfast.execute_requests($1);

-- name: sweep
-- Take back lapsed leases.
select job_id, attempt, worker, state from holdfast.sweep($1, $2, $3);

-- name: age
-- Let old jobs go first.
select holdfast.age($1);

-- name: reconcile
-- Mend open jobs that lack their side row.
select job_id, repair, last from holdfast.reconcile($1, $2);

-- name: drop_strays
-- Drop side rows without a fitting job.
select holdfast.drop_strays($1);

-- name: headless_targets
-- Seat heads where a line has none.
select holdfast.headless_targets($1);

-- name: retire
-- Delete ended jobs whose time is over.
select deleted, reached from holdfast.retire($1, $2);

-- name: forget_workers
-- Forget workers that have been silent for a day.
select holdfast.forget_workers();

-- name: admit
-- Bring back jobs that were parked and have room.
select looked, reached from holdfast.admit($1, $2);

-- name: forget_permits
-- Forget permits that nobody uses any more.
select holdfast.forget_permits($1);

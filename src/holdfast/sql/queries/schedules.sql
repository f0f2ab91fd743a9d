-- name: put_schedule
-- Make or change a schedule.
select holdfast.put_schedule($1::text::jsonb, $2, $3, holdfast.as_caller($4, $7, $8), $5, $6);

-- name: pause_schedule
-- Stop a schedule from firing.
select holdfast.pause_schedule($1, $2, holdfast.as_caller($3, $6, $7), $4, $5);

-- name: resume_schedule
-- Let a schedule fire again.
select holdfast.resume_schedule($1, $2, holdfast.as_caller($3, $6, $7), $4, $5);

-- name: delete_schedule
-- Remove a schedule.
select holdfast.delete_schedule($1, $2, holdfast.as_caller($3, $6, $7), $4, $5);

-- name: run_schedule
-- Record a job of a schedule now.
select outcome, job_id from holdfast.run_schedule($1, $2, holdfast.as_caller($3, $6, $7), $4, $5);

-- name: list_schedules
-- Schedules by name; with their payloads only if asked for.
select id, tenant, name, cron, every_seconds, anchor, tz, type, case when $6 then payload::text end as payload, options::text as options,
  overlap, catch_up, jitter, digest is not null as declared, holdfast.readable(declared_at) as declared_at,
  holdfast.readable(retired_at) as retired_at, holdfast.readable(paused_at) as paused_at, paused_by, paused_note,
  holdfast.readable(next_fire_at) as next_fire_at, holdfast.readable(reckoned_from) as reckoned_from, holdfast.readable(last_fire_at) as last_fire_at,
  last_job_id, fired, skipped, failures, last_error, holdfast.readable(last_error_at) as last_error_at,
  holdfast.readable(missed_at) as missed_at, holdfast.readable(created_at) as created_at, created_by, holdfast.readable(updated_at) as updated_at,
  updated_by
from holdfast.list_schedules($1, $2, $3, $4, $5);

-- name: list_fires
-- What became of the last fire times of a schedule.
select holdfast.readable(fire_at) as fire_at, outcome, job_id, state, holdfast.readable(missed_to) as missed_to, by,
  holdfast.readable(decided_at) as decided_at
from holdfast.list_fires($1, $2, $3);

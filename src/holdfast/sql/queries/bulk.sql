-- name: preview_bulk
-- How many jobs a bulk operation would be about.
select matches, exact, sample from holdfast.preview_bulk($1, $2::text::jsonb, $3::text::jsonb, $4);

-- name: start_bulk
-- Start a bulk operation.
select holdfast.start_bulk(
  $1, $2, $3::text::jsonb, holdfast.as_caller($4, $9, $10), $5::text::jsonb, $6, $7, $8);

-- name: stop_bulk
-- Ask a bulk operation to stop.
select holdfast.stop_bulk($1, holdfast.as_caller($2, $6, $7), $3, $4, $5);

-- name: is_maintained
-- Whether some process does maintenance.
select holdfast.is_maintained();

-- name: list_bulks
-- Bulk operations, newest first.
select id, tenant, action, left(query, 2000) as query, left(args::text, 100000) as args, by, note, state, matched, done, skipped, failed, error,
  holdfast.readable(started_at) as started_at, holdfast.readable(finished_at) as finished_at
from holdfast.list_bulks($1, $2, $3, $4);

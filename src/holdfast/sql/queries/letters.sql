-- name: search_letters
-- The jobs of one page of dead letters, and how far the search went.
select ids, holdfast.readable(reached_at) as reached_at, reached_id
from holdfast.search_letters($1::text::jsonb, $2, $3, $4, $5, $6, $7, $8);

-- name: get_letters
-- Dead letters by the ids of their jobs.
select job_id, tenant, type, queue, error_type, error_message, fingerprint, attempts, died_at, acknowledged,
  acknowledged_by, acknowledged_at, note, requeued_as
from holdfast.get_letters($1::uuid[], $2) with ordinality
order by ordinality;

-- name: acknowledge_letters
-- Acknowledge dead letters.
select job_id, outcome, state
from holdfast.acknowledge_letters($1::uuid[], holdfast.as_caller($2, $6, $7), $3, $4, $5);

-- name: requeue_letters
-- Run dead jobs again as new ones.
select job_id, outcome, state, runs_as
from holdfast.requeue_letters(
  $1::uuid[], holdfast.as_caller($2, $8, $9), $3, $4::text::jsonb, $5::text::jsonb, $6, $7);

-- name: pause_scope
-- Stop claims in a subject.
select holdfast.pause_subject($1, $2, holdfast.as_caller($3, $8, $9), $4, $5, $6, $7);

-- name: claims_ended
-- Wait a moment for claims that were under way when something was decided.
select holdfast.claims_ended();

-- name: resume_scope
-- Let claims go on in a subject.
select holdfast.resume_subject($1, $2, holdfast.as_caller($3, $7, $8), $4, $5, $6);

-- name: change_limits
-- Set how many jobs may run at once, how many may start per time, and a tenant's weight.
select holdfast.change_limits($1, $2, $3::text[], $4, $5, $6, $7, holdfast.as_caller($8, $10, $11), $9);

-- name: operator_request
-- Make a request in an operator's name.
select outcome, runs_as from holdfast.operator_request_as($1, $2, holdfast.as_caller($3, $8, $9), $4, $5, $6, $7);

-- name: list_controls
-- What operators have paused, limited and weighted.
select kind, name, holdfast.readable(paused_at) as paused_at,
  left(paused_by, 500) as paused_by, left(paused_note, 1000) as paused_note, paused_tenant, paused_public,
  limit_count, rate_count, rate_seconds, weight,
  holdfast.readable(updated_at) as updated_at, left(updated_by, 500) as updated_by
from holdfast.list_steering();

-- name: list_queues
-- Queues by name.
select left(name, 200) as name, waiting, waiting_more, running, holdfast.readable(paused_at) as paused_at,
  left(paused_by, 500) as paused_by, left(paused_note, 1000) as paused_note, limit_count, rate_count, rate_seconds
from holdfast.list_queues($1, $2, $3, $4);

-- name: list_types
-- Job types by name.
select left(t.name, 200) as name, waiting, waiting_more, running, holdfast.readable(paused_at) as paused_at,
  left(paused_by, 500) as paused_by, left(paused_note, 1000) as paused_note, limit_count, rate_count, rate_seconds,
  queue, lane, version, declared_limit, declared_limit_key, declared_rate_count, declared_rate_seconds,
  declared_rate_key, workers, holdfast.readable(c.closed_at) as closed_at, left(c.closed_by, 500) as closed_by,
  left(c.closed_note, 1000) as closed_note
from holdfast.list_types($1, $2, $3, $4) with ordinality t
left join holdfast.list_closed_types() c on c.name = t.name
order by t.ordinality;

-- name: close_type
-- Close a type to new jobs.
select holdfast.close_type($1, holdfast.as_caller($2, $5, $6), $3, $4);

-- name: open_type
-- Open a type to new jobs again.
select holdfast.open_type($1, holdfast.as_caller($2, $5, $6), $3, $4);

-- name: list_lanes
-- Both lanes.
select left(name, 200) as name, waiting, waiting_more, running, holdfast.readable(paused_at) as paused_at,
  left(paused_by, 500) as paused_by, left(paused_note, 1000) as paused_note, l.slots, coalesce(s.used, 0) as used, utilisation
from holdfast.list_lanes($1, $2) l
left join holdfast.lane_slots($1) s on s.lane = l.name;

-- name: list_tenants
-- Tenants by name.
select left(name, 200) as name, waiting, waiting_more, running, holdfast.readable(paused_at) as paused_at,
  left(paused_by, 500) as paused_by, left(paused_note, 1000) as paused_note, limit_count, rate_count, rate_seconds,
  weight
from holdfast.list_tenants($1, $2, $3, $4);

-- name: drain_progress
-- Whether claims of a subject are stopped, how many of its jobs still run, and whether nothing can begin any more.
select holdfast.readable(paused_at) as paused_at,
  left(paused_by, 500) as paused_by, left(paused_note, 1000) as paused_note, running, drained
from holdfast.drain_progress($1, $2, $3);

-- name: list_targets
-- The names of one page of targets, and how far the search went.
select tenants, targets, reached_tenant, reached_target from holdfast.list_targets($1, $2, $3, $4, $5);

-- name: show_targets
-- Targets by name.
select tenant, target, blocked, job_id, type, state, holdfast.readable(since) as since, holdfast.readable(run_at) as run_at,
  left(worker, 255) as worker, left(by, 500) as by, left(note, 1000) as note, left(last_error, 1000) as last_error, waiting,
  waiting_more, line
from holdfast.show_targets($1::text[], $2::text[], $3, $4);

-- name: explain
-- Why a job does not run.
select code, sentence, culprit::text as culprit from holdfast.explain($1, $2);

-- name: act_by_hand
-- Decide something about a job in an operator's name.
select outcome, state, decided, decided_by
from holdfast.act_by_hand($1, $2, holdfast.as_caller($3, $9, $10), $4, $5, $6, $7, $8);

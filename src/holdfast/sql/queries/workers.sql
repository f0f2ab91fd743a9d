-- name: list_workers
-- Workers by id, with the jobs that they run.
select left(worker, 255) as worker, left(host, 255) as host, pid, left(version, 255) as version, kind, lanes, used, types,
  queues, tenants, started_at, heartbeat_at, state, quiet_at, left(quiet_by, 500) as quiet_by,
  left(quiet_note, 10000) as quiet_note, running, jobs
from holdfast.list_workers($1, $2, $3, $4);

-- name: quiet_worker
-- Tell a worker to claim no more.
select holdfast.quiet_worker($1, holdfast.as_caller($2, $5, $6), $3, $4);

-- name: sync_circuits
-- Report what a worker has counted, and learn how circuits are.
select tenant, name, state, generation, wait_seconds, spread_seconds, troubled, fault
from holdfast.sync_circuits($1, $2::text::jsonb);

-- name: try_probe
-- Whether an attempt may call while a circuit is not closed.
select state, generation, granted, wait_seconds, spread_seconds from holdfast.try_probe($1, $2, $3, $4, $5);

-- name: end_probe
-- How a probe ended.
select state, generation, wait_seconds, spread_seconds
from holdfast.end_probe($1, $2, $3, $4, $5, $6, $7, $8);

-- name: list_circuits
-- Circuits by name.
select left(name, 200) as name, nullif(left(tenant, 200), '') as tenant, state, failure_count, success_count,
  holdfast.readable(opened_at) as opened_at, holdfast.readable(half_opened_at) as half_opened_at,
  holdfast.readable(next_probe_at) as next_probe_at, holdfast.readable(last_failure_at) as last_failure_at,
  left(last_error, 1000) as last_error, left(forced_by, 500) as forced_by, left(forced_note, 1000) as forced_note,
  failure_threshold, failure_share, window_seconds, open_seconds, probes, success_threshold,
  holdfast.readable(updated_at) as updated_at
from holdfast.list_circuits($1, $2, $3, $4, $5);

-- name: reset_circuit
-- Close a circuit.
select holdfast.reset_circuit($1, $2, holdfast.as_caller($3, $6, $7), $4, $5);

-- name: open_circuit
-- Open a circuit by hand.
select holdfast.open_circuit($1, $2, $3, holdfast.as_caller($4, $7, $8), $5, $6);

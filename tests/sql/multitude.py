"""Very many jobs at once: inserted as they would have become, past the guard, since running them would take hours."""

from __future__ import annotations

import asyncpg

#: Of a thousand jobs, this many are in other states than success, beside the dead ones. The rest of `seq` says which.
_STATES = {
    "running": "n % 1000 = 500",
    "retry": "n % 200 = 111",
    "error": "n % 1000 = 21",
    "paused": "n % 1000 = 31",
    "canceled": "n % 1000 = 41",
    "queued": "n % 100 = 51",
    "scheduled": "n % 100 = 52",
}
_STATE = " ".join(f"when {rule} then '{state}'" for state, rule in _STATES.items())

_JOBS = f"""
    insert into jobs (
      id, seq, created_at, updated_at, run_at, started_at, finished_at, stream, state, attempt, failures, tenant, type,
      queue, correlation_id, parent_id, payload, last_error, last_error_at)
    select first_id(m.at), n, m.at, m.at,
      case when s.state in ('retry', 'scheduled') then now() + interval '30 days' else m.at end,
      case when s.state not in ('queued', 'scheduled') then m.at end,
      case when s.state in ('success', 'dead', 'canceled') then m.at end, t.id, s.state,
      case when s.state in ('queued', 'scheduled') then 0 else 1 end, case when f.so then 1 else 0 end, t.tenant,
      t.type, 'default', case when n % 10 < 5 then 'order-' || n / 100 end,
      case when n % 10 between 1 and 4 then first_id(b.start + (n - n % 10) * interval '1 millisecond') end,
      jsonb_build_object('n', n, 'text', repeat('x', 100)), case when f.so then 'cannot reach host ' || n end,
      case when f.so then m.at end
    from (select now() - interval '2 hours' as start) b
    cross join generate_series(1, $1::integer) n
    cross join lateral (select b.start + n * interval '1 millisecond' as at) m
    cross join lateral (select case when n % ($1 / $2) = 7 then 'dead' {_STATE} else 'success' end as state) s
    cross join lateral (select s.state in ('dead', 'retry', 'error') as so) f
    join streams t on t.id = n / 7 % 20 + 1"""

#: What stands beside these jobs. $1 is the number of fingerprints.
_BESIDE = """
    insert into leases (job_id, attempt, stream, lease_seconds, claimed_at, ready_at, expires_at, worker)
    select id, 1, stream, 30, started_at, started_at, now() + interval '1 day', 'w1' from jobs where state = 'running';
    insert into due (run_at, job_id) select run_at, id from jobs where state in ('retry', 'scheduled');
    insert into dormant (job_id, tenant) select id, tenant from jobs where state in ('error', 'paused');
    insert into ready (stream, rank, seq, job_id) select stream, 100, seq, id from jobs where state = 'queued';
    insert into job_attempts (
      job_id, attempt, started_at, finished_at, outcome, worker, error_type, error_message)
    select id, 1, created_at, created_at, case state when 'success' then state else 'failed' end, 'w1', 'Fault',
      last_error
    from jobs
    where state in ('success', 'dead', 'retry', 'error')"""
_LETTERS = """
    insert into dead_letters (
      job_id, tenant, type, error_type, error_message, fingerprint, died_at, acknowledged_at, acknowledged_by)
    select id, tenant, type, 'Fault', last_error, lpad(to_hex(seq / 10 % $1), 16, '0'), created_at,
      case when seq % 3 = 0 then created_at end, case when seq % 3 = 0 then 'ada' end
    from jobs
    where state = 'dead'"""
_FAILING = """
    insert into failing
    select id, tenant, lpad(to_hex(seq / 10 % $1), 16, '0'), attempt from jobs where state in ('retry', 'error')"""
_FINGERPRINTS = """
    insert into fingerprints
    select 'default', lpad(to_hex(n), 16, '0'), 'type-' || n % 20 + 1, 'Fault', 'cannot reach host ?', 10,
      now() - interval '1 day', now() - make_interval(secs => n),
      first_id(now() - interval '2 hours' + n * interval '1 millisecond')
    from generate_series(0, $1::integer - 1) n"""


async def populate(conn: asyncpg.Connection, jobs: int, dead: int, prints: int) -> None:
    """Fill an empty database with jobs of 20 types and 2 tenants; half of them belong to correlations of 50 jobs."""
    await conn.execute("set session_replication_role = replica; set synchronous_commit = off")
    await conn.execute(
        "insert into streams (id, tenant, queue, type) overriding system value"
        " select n, case when n % 4 = 0 then 'acme' else 'default' end, 'default', 'type-' || n"
        " from generate_series(1, 20) n"
    )
    await conn.execute(_JOBS, jobs, dead)
    await conn.execute(_BESIDE)
    for statement in (_LETTERS, _FAILING, _FINGERPRINTS):
        await conn.execute(statement, prints)
    await conn.execute("set session_replication_role = default")
    await conn.execute("vacuum analyze")

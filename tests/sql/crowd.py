"""Large tables within seconds: rows written straight into them, as the engine's own moves would have left them."""

from __future__ import annotations

import asyncpg

__all__ = [
    "calls",
    "due_later",
    "ended",
    "failures",
    "held_targets",
    "overdue",
    "permits",
    "ready_streams",
    "schedules",
]

#: Jobs of one kind. Ids of version 7 whose time begins {age} ago, twenty to a millisecond.
_JOBS = """
    with numbered as (
      select n, nextval('places') as seq, (
          lpad(to_hex((extract(epoch from now() - {age}::interval) * 1000)::bigint + n / 20), 12, '0')
          || '7' || lpad(to_hex($2::integer), 3, '0') || '8000' || lpad(to_hex(n), 12, '0'))::uuid as id
      from generate_series(1, $1::integer) n
    ), recorded as (
      insert into jobs (
        id, seq, created_at, updated_at, run_at, finished_at, stream, state, attempt, tenant, type, queue, target,
        payload)
      select id, seq, now() - {age}::interval, now() - {age}::interval, {run_at}, {finished}, {stream}, {state},
        {attempt}, 'default', 'crowd', 'default', {target}, '{{"n": 1}}'
      from numbered
    )
    {side}"""


async def _fill(conn: asyncpg.Connection, count: int, kind: int, side: str, **parts: str) -> None:
    usual = {
        "age": "'1 hour'", "run_at": "now()", "finished": "null", "stream": "1", "state": "'queued'",
        "attempt": "0", "target": "null",
    }  # fmt: skip
    async with conn.transaction():
        await conn.execute("set local session_replication_role = replica")
        await conn.execute("set local synchronous_commit = off")
        await conn.execute(_JOBS.format(side=side, **{**usual, **parts}), count, kind)


async def ended(conn: asyncpg.Connection, count: int, *, age: str = "1 hour") -> None:
    """Jobs that succeeded so long ago, with their attempts."""
    await _fill(
        conn, count, 1,
        "insert into job_attempts (job_id, attempt, started_at, outcome, worker) "
        "select id, 1, now(), 'success', 'w0' from numbered",
        age=f"'{age}'", state="'success'", attempt="1", finished=f"now() - '{age}'::interval",
    )  # fmt: skip


async def due_later(conn: asyncpg.Connection, count: int, *, after: str = "1 hour") -> None:
    """Scheduled jobs."""
    moment = f"now() + '{after}'::interval"
    await _fill(
        conn, count, 2, f"insert into due (run_at, job_id) select {moment}, id from numbered",
        state="'scheduled'", run_at=moment,
    )  # fmt: skip


async def overdue(conn: asyncpg.Connection, count: int) -> None:
    """Scheduled jobs that nobody has promoted yet."""
    moment = "now() - '1 hour'::interval"
    await _fill(
        conn, count, 6, f"insert into due (run_at, job_id) select {moment}, id from numbered",
        state="'scheduled'", run_at=moment,
    )  # fmt: skip


async def held_targets(conn: asyncpg.Connection, count: int) -> None:
    """Targets, each with a head in error and one job behind it."""
    name = "'t' || lpad(n::text, 7, '0')"
    await _fill(
        conn, count, 3, ", noted as (insert into dormant (job_id, tenant) select id, 'default' from numbered)"
        f" insert into heads select 'default', {name}, id, seq, null from numbered",
        state="'error'", attempt="1", target=name,
    )  # fmt: skip
    await _fill(conn, count, 4, f"insert into waiting select 'default', {name}, 1, seq, id from numbered", target=name)


async def ready_streams(conn: asyncpg.Connection, count: int) -> None:
    """Streams of a thousand tenants, with a job in each."""
    await conn.execute(
        "insert into streams (tenant, queue, type) "
        "select 'tenant' || n % 1000, 'default', 'type' || n from generate_series(1, $1::integer) n",
        count,
    )
    first = await conn.fetchval("select max(id) - $1::integer from streams", count)
    await _fill(
        conn, count, 5, f"insert into ready (stream, rank, seq, job_id) select {first} + n, 202, seq, id from numbered",
        stream=f"{first} + n",
    )  # fmt: skip


async def permits(conn: asyncpg.Connection, count: int) -> None:
    """Gates in use, each with a permit."""
    await conn.execute(
        "insert into permits (gate, slot, granted_at) "
        "select 'key:' || lpad(n::text, 7, '0'), 1, now() from generate_series(1, $1::integer) n",
        count,
    )


async def calls(conn: asyncpg.Connection, count: int) -> None:
    """Calls for targets that have a head."""
    await conn.execute(
        "insert into calls (tenant, target) "
        "select 'default', 't' || lpad(n::text, 7, '0') from generate_series(1, $1::integer) n",
        count,
    )


async def failures(conn: asyncpg.Connection, count: int) -> None:
    """Dead jobs with letters that nobody has read and failures that nobody has added up, and retrying ones that were.

    They have ten fingerprints; two hundred other tenants have the others.
    """
    print_of = "fingerprint_of('crowd', 'Fault', repeat('x', n % 10))"
    await _fill(
        conn, count, 8,
        ", tried as ("
        "  insert into job_attempts (job_id, attempt, started_at, outcome, worker, error_type, error_message)"
        "  select id, 1, now(), 'failed', 'w0', 'Fault', repeat('x', n % 10) from numbered)"
        ", buried as ("
        "  insert into dead_letters (job_id, tenant, type, error_type, error_message)"
        "  select id, 'default', 'crowd', 'Fault', repeat('x', n % 10) from numbered)"
        f" insert into failures (job_id, attempt, fingerprint) select id, 1, {print_of} from numbered",
        state="'dead'", attempt="1", finished="now()",
    )  # fmt: skip
    await _fill(
        conn, count, 9,
        "insert into failing (job_id, tenant, fingerprint, attempt)"
        f" select id, 'default', {print_of}, 1 from numbered",
        state="'retry'", attempt="1",
    )  # fmt: skip
    await conn.execute(
        "insert into fingerprints select 'default', fingerprint_of('crowd', 'Fault', repeat('x', n)), 'crowd', 'Fault',"
        " repeat('x', n), 1, now(), now(), gen_random_uuid() from generate_series(0, 9) n"
    )
    await conn.execute(
        "insert into fingerprints select 't' || n % 200, md5(n::text), 'crowd', 'Fault', 'x', 1, now(),"
        " now() - make_interval(secs => n), gen_random_uuid() from generate_series(1, $1::integer) n",
        count,
    )


async def bulk(conn: asyncpg.Connection, count: int) -> None:
    """One bulk operation with this many jobs before it."""
    await conn.execute("delete from bulk_jobs")
    await conn.execute("delete from bulk_found")
    await conn.execute("delete from bulks")
    await conn.execute(
        "insert into bulks (id, action, query, tree, by, state, sources, reached, last_place)"
        " values (gen_random_uuid(), 'ack', '', '{\"and\": []}', 'ada', 'running', array['due'], array['gathered'],"
        " $1::integer)",
        count,
    )
    await conn.execute(
        "insert into bulk_jobs (bulk_id, place, job_id)"
        " select b.id, n, gen_random_uuid() from bulks b, generate_series(1, $1::integer) n",
        count,
    )
    await conn.execute(
        "insert into bulk_found (bulk_id, part, ids)"
        " select b.id, n, array[gen_random_uuid()] from bulks b, generate_series(1, $1::integer) n",
        count,
    )


async def schedules(conn: asyncpg.Connection, count: int) -> None:
    """Schedules that are due, each with an old fire time; and a live worker."""
    await conn.execute(
        "insert into schedules"
        " (tenant, name, every_seconds, type, catch_up, digest, declared_at, created_by, updated_by)"
        " select 'default', gen_random_uuid(), 3600, 'crowd', 0, 'd', now(), 'crowd', 'crowd'"
        " from generate_series(1, $1)",
        count,
    )
    await conn.execute(
        "insert into schedule_fires (schedule_id, fire_at, outcome)"
        " select id, now() - interval '8 days', 'skipped' from schedules on conflict do nothing"
    )
    await conn.execute("select register_worker('of the crowd', 'host', 1, '1', '{}', '{}', null)")
    await conn.execute("update workers set started_at = now() - interval '1 hour' where id = 'of the crowd'")


async def pulls(conn: asyncpg.Connection, count: int) -> None:
    """What remote workers were given long ago."""
    await conn.execute(
        "insert into remote_pulls (tenant, worker, request_id, pulled_at)"
        " select 'default', 'remote:crowd', gen_random_uuid(), now() - interval '1 hour' from generate_series(1, $1)",
        count,
    )

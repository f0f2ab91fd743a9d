"""The engine's verbs as tests speak them, and jobs brought to any state through legal moves alone."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any, NamedTuple
from uuid import UUID

import asyncpg

from holdfast.model.states import State

#: Longer than any lease: a sweep with it waits for nobody.
PATIENT = 1e9

TABLES = (
    "jobs", "ready", "leases", "due", "waiting", "heads", "calls", "streams", "job_attempts", "job_events",
    "dead_letters", "job_types", "settings", "workers", "leaders", "repairs", "job_progress", "job_items",
    "idempotency_keys",
)  # fmt: skip


#: One job of a batch: type, payload, options.
Wish = tuple[str, Any, dict[str, Any] | None]


class Lease(NamedTuple):
    """What a claim gives."""

    job_id: UUID
    attempt: int


async def enqueue_row(
    conn: asyncpg.Connection, job_type: str = "work", payload: Any = None, **options: Any
) -> asyncpg.Record:
    """Enqueue by named arguments, as psql would: job_id, state, outcome."""
    names = ", ".join(f"{name} => ${i}" for i, name in enumerate(options, 3))
    arguments = f"$1, $2::jsonb{', ' if names else ''}{names}"
    row = await conn.fetchrow(
        f"select * from enqueue({arguments})", job_type, json.dumps(payload or {}), *options.values()
    )
    assert row is not None
    return row


async def enqueue(conn: asyncpg.Connection, job_type: str = "work", payload: Any = None, **options: Any) -> UUID:
    """Enqueue one job; its id."""
    job_id: UUID = (await enqueue_row(conn, job_type, payload, **options))["job_id"]
    return job_id


async def enqueue_many(
    conn: asyncpg.Connection,
    jobs: Sequence[Wish],
    *,
    tenant: str = "default",
) -> list[asyncpg.Record]:
    """Enqueue a batch of (type, payload, options); a row per position, in order."""
    return await conn.fetch(
        "select * from enqueue_many($1::text[], $2::text[]::jsonb[], $3::text[]::jsonb[], $4) order by item",
        [job[0] for job in jobs],
        [json.dumps(job[1]) for job in jobs],
        [None if job[2] is None else json.dumps(job[2]) for job in jobs],
        tenant,
    )


async def enqueue_copies(conn: asyncpg.Connection, count: int, job_type: str = "work", **options: Any) -> list[UUID]:
    """Enqueue this many equal jobs. Returns their ids, in order."""
    return [row["job_id"] for row in await enqueue_many(conn, [(job_type, {}, options)] * count)]


async def claim(conn: asyncpg.Connection, *types: str, limit: int = 1, worker: str = "w1", **more: Any) -> list[Lease]:
    """Claim by types ("work" if none is named)."""
    names = "".join(f", {name} => ${i}" for i, name in enumerate(more, 4))
    rows = await conn.fetch(
        f"select job_id, attempt from claim($1, $2::text[], $3{names})",
        worker, list(types or ("work",)), limit, *more.values(),
    )  # fmt: skip
    return [Lease(*row) for row in rows]


async def claim_by_id(conn: asyncpg.Connection, job_id: UUID, *, worker: str = "w1") -> Lease | None:
    """Claim one job by its id."""
    row = await conn.fetchrow("select job_id, attempt from claim_by_id($1, $2)", worker, job_id)
    return None if row is None else Lease(*row)


async def settle(
    conn: asyncpg.Connection, verb: str, leases: Sequence[Lease], *, worker: str = "w1", **more: Any
) -> list[str]:
    """Call complete, fail, snooze, release or stop with named arguments; the answered states, in order."""
    names = "".join(f", {name} => ${i}" for i, name in enumerate(more, 4))
    rows = await conn.fetch(
        f"select job_id, attempt, state from {verb}($1, $2::uuid[], $3::integer[]{names})",
        worker, [lease.job_id for lease in leases], [lease.attempt for lease in leases], *more.values(),
    )  # fmt: skip
    answers = {Lease(row["job_id"], row["attempt"]): row["state"] for row in rows}
    assert len(answers) == len(rows)
    return [answers[lease] for lease in leases]


async def run_one(conn: asyncpg.Connection, job_type: str = "work", **options: Any) -> Lease:
    """Enqueue a job and claim it."""
    job_id = await enqueue(conn, job_type, **options)
    await elect(conn)
    lease = await claim_by_id(conn, job_id)
    assert lease is not None
    return lease


async def publish(conn: asyncpg.Connection, name: str = "work", **fields: Any) -> None:
    """Publish a job type, with the defaults of a worker."""
    definition = {
        "name": name, "queue": "default", "lane": "general", "backoff_base": 1, "backoff_factor": 2,
        "backoff_max": 300, "backoff_jitter": 0, "on_failure": "retry", "version": 1,
    } | fields  # fmt: skip
    await conn.execute("select publish_types($1::text::jsonb)", json.dumps([definition]))


async def request(conn: asyncpg.Connection, verb: str, job_id: UUID, **more: Any) -> str:
    """Ask for something; how the request was taken."""
    names = "".join(f", {name} => ${i}" for i, name in enumerate(more, 3))
    answer = await conn.fetchval(
        f"select outcome from request($1, array[$2::uuid]{names})", verb, job_id, *more.values()
    )
    return str(answer)


async def execute(conn: asyncpg.Connection, verb: str, job_id: UUID) -> str:
    """Ask, and let maintenance execute it; how the request was taken."""
    answer = await request(conn, verb, job_id)
    await conn.execute("select execute_requests()")
    return answer


async def elect(conn: asyncpg.Connection) -> None:
    """Seat the heads of the targets that were called."""
    await conn.execute("select elect()")


async def promote(conn: asyncpg.Connection) -> int:
    """Promote due jobs. Returns how many."""
    return int(await conn.fetchval("select promoted from promote()"))


async def sweep(conn: asyncpg.Connection, connected_seconds: float = PATIENT) -> dict[UUID, str]:
    """Sweep; the states of what lapsed."""
    rows = await conn.fetch("select job_id, state from sweep($1)", connected_seconds)
    return {row["job_id"]: row["state"] for row in rows}


async def walk(conn: asyncpg.Connection, duty: str, *, rows: int = 1000) -> int:
    """Run one whole walk of a duty over a table, in steps of this many rows. Returns how many it mended."""
    place: list[str] | None = None
    total: int = 0
    for _ in range(1000):
        row = await conn.fetchrow(f"select mended, reached from {duty}($1, $2)", place, rows)
        assert row is not None
        total += int(row["mended"])
        place = row["reached"]
        if place is None:
            return total
    raise AssertionError(f"{duty} does not end")


async def blocked(
    conn: asyncpg.Connection, other: asyncpg.Connection, *, unless: asyncio.Task[Any] | None = None
) -> None:
    """Wait until what another session does waits for a lock, unless it is done first."""
    async with asyncio.timeout(10):
        while not (unless and unless.done()) and not await conn.fetchval(
            "select cardinality(pg_blocking_pids($1)) > 0", other.get_server_pid()
        ):
            await asyncio.sleep(0.001)


async def expire(conn: asyncpg.Connection, *job_ids: UUID) -> None:
    """Let leases lapse that are shorter than the server has been up."""
    await conn.execute(
        "update leases set expires_at = now() - interval '1 second', lease_seconds = 0 where job_id = any ($1)",
        job_ids,
    )


async def make_due(conn: asyncpg.Connection, *job_ids: UUID) -> None:
    """Let the time of scheduled or retrying jobs come."""
    async with conn.transaction():
        await conn.execute("update due set run_at = now() where job_id = any ($1)", job_ids)
        await conn.execute("update jobs set run_at = now() where id = any ($1)", job_ids)


async def state_of(conn: asyncpg.Connection, job_id: UUID) -> str:
    """The state of a job, or `gone`."""
    return str(await conn.fetchval("select state from jobs where id = $1", job_id) or "gone")


async def job_row(conn: asyncpg.Connection, job_id: UUID) -> asyncpg.Record:
    """The whole row of a job."""
    row = await conn.fetchrow("select * from jobs where id = $1", job_id)
    assert row is not None
    return row


async def dump(conn: asyncpg.Connection) -> dict[str, list[str]]:
    """Every row of every table, as text."""
    return {
        table: [row[0] for row in await conn.fetch(f"select t::text from {table} t order by 1")] for table in TABLES
    }


async def offences(conn: asyncpg.Connection) -> list[tuple[str, UUID | None]]:
    """What verify finds."""
    return [(row["invariant"], row["job_id"]) for row in await conn.fetch("select * from verify()")]


async def job_in(conn: asyncpg.Connection, state: State | str, job_type: str = "work", **options: Any) -> UUID:
    """A job in the given state, brought there by the engine's own moves."""
    if state == State.CREATED:
        return await enqueue(conn, job_type, hold=True, **options)
    if state == State.SCHEDULED:
        return await enqueue(conn, job_type, delay=3600.0, **options)
    if state == State.QUEUED:
        return await enqueue(conn, job_type, **options)
    lease = await run_one(conn, job_type, **options)
    if state == State.SUCCESS:
        assert await settle(conn, "complete", [lease]) == ["success"]
    elif state in (State.RETRY, State.DEAD, State.ERROR):
        kind = {State.RETRY: "retryable", State.DEAD: "fatal", State.ERROR: "hold"}[State(state)]
        assert await settle(conn, "fail", [lease], kinds=[kind], error_messages=["boom"]) == [state]
    elif state in (State.PAUSED, State.CANCELED):
        assert await settle(conn, "stop", [lease], outcomes=[str(state)]) == [state]
    return lease.job_id


async def portion(conn: asyncpg.Connection, size: int = 100) -> UUID | None:
    """A turn of a bulk operation, as the duty takes it: the turn, then the portion. Answers whose turn it was."""
    chosen: UUID | None = await conn.fetchval("select turn_bulk()")
    if chosen is not None:
        await conn.execute("select advance_bulk($1, $2)", chosen, size)
    return chosen

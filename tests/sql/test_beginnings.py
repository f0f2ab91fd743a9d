"""What was claimed ahead and never began costs its job nothing, but not for ever."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import asyncpg

from holdfast.model.hints import Hints
from tests.sql.factories import (
    Lease,
    dump,
    enqueue,
    enqueue_copies,
    execute,
    expire,
    job_row,
    offences,
    request,
    settle,
    state_of,
    sweep,
)

GENERAL = 1 << 48


async def claim_ahead(
    conn: asyncpg.Connection, at_once: int, next_number: int | None, limit: int = 10, worker: str = "w1"
) -> list[tuple[UUID, int | None]]:
    """(job, its number) in the order in which they are to begin."""
    streams = [row["id"] for row in await conn.fetch("select id from streams")]
    rows = await conn.fetch(
        "select job_id from claim_ahead($1, $2, null, $3, $4, $5, $6, $7, $8)",
        worker, limit, *Hints.everything(streams), at_once, next_number,
    )  # fmt: skip
    numbers = {row["job_id"]: row["number"] for row in await conn.fetch("select job_id, number from leases")}
    return [(row["job_id"], numbers[row["job_id"]]) for row in rows]


async def attempts(conn: asyncpg.Connection, job_id: UUID) -> list[tuple[Any, ...]]:
    rows = await conn.fetch("select outcome, error_type from job_attempts where job_id = $1 order by attempt", job_id)
    return [tuple(row) for row in rows]


async def test_jobs_beyond_the_free_slots_are_numbered_in_the_order_in_which_they_are_to_begin(
    conn: asyncpg.Connection,
) -> None:
    late = await enqueue_copies(conn, 3, priority=200)
    soon = await enqueue_copies(conn, 3, priority=5)
    found = await claim_ahead(conn, 2, GENERAL + 1)
    assert found == list(zip([*soon, *late], [None, None, *range(GENERAL + 1, GENERAL + 5)], strict=True))


async def test_a_lapsed_lease_costs_a_failure_only_where_its_job_may_have_begun(conn: asyncpg.Connection) -> None:
    jobs = await enqueue_copies(conn, 5, max_attempts=1)
    await claim_ahead(conn, 1, 1)
    await conn.execute("select may_begin('w1', array[2::bigint])")
    await expire(conn, *jobs)
    await sweep(conn)
    assert [await state_of(conn, job) for job in jobs] == ["dead", "dead", "dead", "queued", "queued"]
    assert await attempts(conn, jobs[2]) == [("lost", "LeaseLost")]
    assert await attempts(conn, jobs[3]) == [("released", "NeverBegan")]
    assert (await job_row(conn, jobs[3]))["failures"] == 0
    assert await offences(conn) == []


async def test_lanes_and_workers_are_counted_apart(conn: asyncpg.Connection) -> None:
    jobs = await enqueue_copies(conn, 2, max_attempts=1)
    await claim_ahead(conn, 0, 1, limit=1)
    await claim_ahead(conn, 0, GENERAL + 1, limit=1)
    await conn.execute("select may_begin('w1', array[5::bigint]), may_begin('w2', array[$1::bigint])", GENERAL + 5)
    await expire(conn, *jobs)
    await sweep(conn)
    assert [await state_of(conn, job) for job in jobs] == ["dead", "queued"]


async def test_a_number_is_never_lowered(conn: asyncpg.Connection) -> None:
    (job,) = await enqueue_copies(conn, 1, max_attempts=1)
    await conn.execute("select may_begin('w1', array[9::bigint])")
    await claim_ahead(conn, 0, 1)  # the first number of a lane makes the row, and must not lower it
    await conn.execute("select may_begin('w1', array[0::bigint])")
    await expire(conn, job)
    assert await sweep(conn) == {job: "dead"}


async def test_what_is_not_known_counts(conn: asyncpg.Connection) -> None:
    (job,) = await enqueue_copies(conn, 1, max_attempts=1)
    await claim_ahead(conn, 0, 7)
    await conn.execute("select unregister_worker('w1')")
    await expire(conn, job)
    assert await sweep(conn) == {job: "dead"}


async def test_a_job_that_came_back_for_nothing_three_times_is_charged(conn: asyncpg.Connection) -> None:
    job = await enqueue(conn, max_attempts=2)
    for failures in (0, 0, 0, 1, 1, 1, 1):
        await claim_ahead(conn, 0, 1)
        await expire(conn, job)
        assert await sweep(conn) == {job: "queued"}
        assert (await job_row(conn, job))["failures"] == failures
    await claim_ahead(conn, 0, 1)
    await expire(conn, job)
    assert await sweep(conn) == {job: "dead"}
    assert (await conn.fetchval("select array_agg(outcome order by attempt) from job_attempts")) == [
        *["released"] * 3, "lost", *["released"] * 3, "lost",
    ]  # fmt: skip


async def test_a_wish_to_cancel_is_heeded_where_nothing_began(conn: asyncpg.Connection) -> None:
    job = await enqueue(conn)
    await claim_ahead(conn, 0, 1)
    await request(conn, "cancel", job)
    await execute(conn, "cancel", job)
    await expire(conn, job)
    assert await sweep(conn) == {job: "canceled"}


async def test_older_workers_number_nothing(conn: asyncpg.Connection) -> None:
    job = await enqueue(conn, max_attempts=1)
    await conn.fetch("select * from claim('old', array['work'], 5)")
    await conn.execute("select may_begin('old', array[0::bigint])")
    await expire(conn, job)
    assert await sweep(conn) == {job: "dead"}


async def test_what_a_worker_said_of_beginnings_goes_with_it(conn: asyncpg.Connection) -> None:
    before = await dump(conn)
    await conn.execute("select may_begin('w1', array[1::bigint])")
    await conn.execute("select unregister_worker('w1')")
    assert await conn.fetchval("select count(*) from beginnings") == 0
    assert await dump(conn) == before


async def test_numbered_jobs_are_settled_like_others(conn: asyncpg.Connection) -> None:
    await enqueue_copies(conn, 3)
    found = await claim_ahead(conn, 1, 1)
    assert await settle(conn, "complete", [Lease(job, 1) for job, _ in found]) == ["success"] * 3

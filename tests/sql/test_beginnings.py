"""A job that was claimed ahead and never began costs no attempt, but not without limit."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import asyncpg

from holdfast.model.hints import Hints
from tests.conftest import ConnectAs
from tests.sql.factories import (
    Lease,
    dump,
    enqueue,
    enqueue_copies,
    execute,
    expire,
    job_row,
    offences,
    publish,
    request,
    settle,
    state_of,
    sweep,
)

GENERAL = 1 << 48


async def claim_ahead(
    conn: asyncpg.Connection, at_once: int, next_number: int | None, limit: int = 10, *, records: bool = False
) -> list[tuple[UUID, int | None]]:
    """(job, the number of its lease) in the order in which they are to begin, as w1 claims them."""
    streams = [row["id"] for row in await conn.fetch("select id from streams")]
    statement = "select job_id, number from claim_jobs('w1', $1, null, $2, $3, $4, $5, $6, $7, $8)"
    rows = await conn.fetch(statement, limit, *Hints.everything(streams), at_once, next_number, records)
    numbers = {row["job_id"]: row["number"] for row in await conn.fetch("select job_id, number from leases")}
    assert all(row["number"] == (numbers[row["job_id"]] or None) for row in rows)
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


async def test_an_attempt_whose_beginning_is_unknown_counts(conn: asyncpg.Connection) -> None:
    (job,) = await enqueue_copies(conn, 1, max_attempts=1)
    await claim_ahead(conn, 0, 7)
    await conn.execute("select unregister_worker('w1')")
    await expire(conn, job)
    assert await sweep(conn) == {job: "dead"}


async def test_after_three_free_returns_in_a_row_an_attempt_counts(conn: asyncpg.Connection) -> None:
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


async def test_a_cancel_takes_effect_although_the_job_never_began(conn: asyncpg.Connection) -> None:
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


async def test_beginnings_are_deleted_with_their_worker(conn: asyncpg.Connection) -> None:
    before = await dump(conn)
    await conn.execute("select may_begin('w1', array[1::bigint])")
    await conn.execute("select unregister_worker('w1')")
    assert await conn.fetchval("select count(*) from beginnings") == 0
    assert await dump(conn) == before


async def test_numbered_jobs_are_settled_like_others(conn: asyncpg.Connection) -> None:
    await enqueue_copies(conn, 3)
    found = await claim_ahead(conn, 1, 1)
    assert await settle(conn, "complete", [Lease(job, 1) for job, _ in found]) == ["success"] * 3


async def record(conn: asyncpg.Connection, *jobs: UUID, worker: str = "w1", attempt: int = 1) -> dict[UUID, bool]:
    rows = await conn.fetch("select * from record_beginnings($1, $2, $3)", worker, jobs, [attempt] * len(jobs))
    return {row["job_id"]: row["recorded"] for row in rows}


async def test_a_job_at_its_last_chance_has_not_begun_until_that_is_recorded(conn: asyncpg.Connection) -> None:
    plain = await enqueue(conn, max_attempts=2)
    last = await enqueue_copies(conn, 3, max_attempts=1)
    found = await claim_ahead(conn, 3, 1, records=True)
    # Those before it had a free slot, and the others keep the numbers of their places.
    assert found == [(plain, None), *((job, 0) for job in last)]
    assert await record(conn, last[1]) == {last[1]: True}
    await expire(conn, plain, *last)
    await sweep(conn)
    assert [await state_of(conn, job) for job in (plain, *last)] == ["queued", "queued", "dead", "queued"]
    assert await attempts(conn, plain) == [("lost", "LeaseLost")]
    assert await attempts(conn, last[0]) == [("released", "NeverBegan")]
    # One has failed once by now.
    assert {number for _, number in await claim_ahead(conn, 10, 1, records=True)} == {0}
    assert await offences(conn) == []


async def test_jobs_with_attempts_left_are_numbered_around_those_at_their_last_chance(conn: asyncpg.Connection) -> None:
    for max_attempts in (2, 1, 2, 1, 2):
        await enqueue(conn, max_attempts=max_attempts)
    found = await claim_ahead(conn, 1, 7, records=True)
    assert [number for _, number in found] == [None, 0, 8, 0, 10]


async def test_a_job_that_a_lost_lease_would_hold_is_always_at_its_last_chance(conn: asyncpg.Connection) -> None:
    await publish(conn, "held", on_failure="hold")
    held = await enqueue(conn, "held", max_attempts=5)
    assert await claim_ahead(conn, 10, 1, records=True) == [(held, 0)]


async def test_the_budget_of_the_type_or_the_settings_tells_the_last_chance(conn: asyncpg.Connection) -> None:
    await publish(conn, "once", max_attempts=1)
    once, more, default = await enqueue(conn, "once"), await enqueue(conn, "once", max_attempts=2), await enqueue(conn)
    assert dict(await claim_ahead(conn, 10, 1, records=True)) == {once: 0, more: None, default: None}


async def test_a_count_of_failures_at_its_end_does_not_hold_up_a_claim(conn: asyncpg.Connection) -> None:
    odd, other = await enqueue_copies(conn, 2)
    await conn.execute("update jobs set failures = 2147483647 where id = $1", odd)
    assert await claim_ahead(conn, 10, 1, records=True) == [(odd, 0), (other, None)]


async def test_a_beginning_is_recorded_only_for_the_holder_of_the_lease(
    conn: asyncpg.Connection, connect_as: ConnectAs
) -> None:
    (job,) = await enqueue_copies(conn, 1, max_attempts=1)
    await claim_ahead(conn, 1, 1, records=True)
    assert await record(conn, job, worker="w2") == {}
    assert await record(conn, job, attempt=2) == {}
    other = await connect_as("superuser")
    async with other.transaction():
        await other.execute("select from leases for update")
        assert await record(conn, job) == {job: False}
    assert await conn.fetchval("select number from leases") == 0
    assert [await record(conn, job), await record(conn, job)] == [{job: True}] * 2
    assert await conn.fetchval("select number from leases") is None


async def test_at_its_last_chance_a_job_returns_free_of_charge_at_most_three_times(conn: asyncpg.Connection) -> None:
    job = await enqueue(conn, max_attempts=1)
    for state in ("queued", "queued", "queued", "dead"):
        await claim_ahead(conn, 1, 1, records=True)
        await expire(conn, job)
        assert await sweep(conn) == {job: state}


async def test_for_workers_that_record_nothing_every_claim_is_a_beginning(conn: asyncpg.Connection) -> None:
    (job,) = await enqueue_copies(conn, 1, max_attempts=1)
    assert await claim_ahead(conn, 1, 1) == [(job, None)]

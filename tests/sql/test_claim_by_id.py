"""Claim by id: queued, due retry or lapsed running; no row for anything else."""

from __future__ import annotations

from uuid import uuid4

import asyncpg
import pytest

from holdfast.model.states import State
from tests.conftest import ConnectAs
from tests.sql.factories import (
    Lease,
    claim,
    claim_by_id,
    dump,
    elect,
    enqueue,
    enqueue_copies,
    expire,
    job_in,
    job_row,
    make_due,
    offences,
    settle,
    state_of,
)


@pytest.mark.parametrize("state", sorted(set(State) - {State.QUEUED}))
async def test_a_job_that_is_not_claimable_gives_no_row_and_is_left_alone(
    conn: asyncpg.Connection, state: State
) -> None:
    job_id = await job_in(conn, state)
    before = await dump(conn)
    assert await claim_by_id(conn, job_id, worker="w2") is None
    assert await dump(conn) == before


async def test_a_queued_job_is_claimed_from_the_middle_of_its_stream(conn: asyncpg.Connection) -> None:
    jobs = await enqueue_copies(conn, 3)
    assert await claim_by_id(conn, jobs[1]) == Lease(jobs[1], 1)
    assert await claim_by_id(conn, jobs[1]) is None
    assert [lease.job_id for lease in await claim(conn, limit=5)] == [jobs[0], jobs[2]]


async def test_a_returned_or_aged_job_is_found_too(conn: asyncpg.Connection) -> None:
    returned, aged = await enqueue(conn), await enqueue(conn)
    await settle(conn, "hand_back", [await claim_by_id(conn, returned) or Lease(returned, 0)])
    await conn.execute("update ready set rank = 0 where job_id = $1", aged)
    assert await claim_by_id(conn, returned) == Lease(returned, 2)
    assert await claim_by_id(conn, aged) == Lease(aged, 1)


async def test_a_due_retry_is_claimed(conn: asyncpg.Connection) -> None:
    job_id = await job_in(conn, "retry")
    await make_due(conn, job_id)
    assert await claim_by_id(conn, job_id) == Lease(job_id, 2)
    assert await offences(conn) == []


async def test_a_lapsed_running_job_is_taken_over(conn: asyncpg.Connection) -> None:
    job_id = await job_in(conn, "running")
    await expire(conn, job_id)
    assert await claim_by_id(conn, job_id, worker="w2") == Lease(job_id, 2)
    assert await settle(conn, "complete", [Lease(job_id, 1)]) == ["lease-lost"]
    assert (await job_row(conn, job_id))["failures"] == 1
    lost = await conn.fetchrow("select outcome, worker from job_attempts where job_id = $1", job_id)
    assert lost is not None
    assert tuple(lost) == ("lost", "w1")
    assert await offences(conn) == []


async def test_a_lapsed_job_without_budget_dies_instead(conn: asyncpg.Connection) -> None:
    job_id = await job_in(conn, "running", max_attempts=1)
    await expire(conn, job_id)
    assert await claim_by_id(conn, job_id, worker="w2") is None
    assert await state_of(conn, job_id) == "dead"


async def test_only_the_head_of_a_target_is_claimed(conn: asyncpg.Connection) -> None:
    first, second = await enqueue(conn, target="t"), await enqueue(conn, target="t", priority=0)
    assert await claim_by_id(conn, second) is None
    await elect(conn)
    assert await claim_by_id(conn, second) is None
    assert await claim_by_id(conn, first) == Lease(first, 1)
    assert await claim_by_id(conn, second) is None
    assert await settle(conn, "complete", [Lease(first, 1)]) == ["success"]
    assert await claim_by_id(conn, second) == Lease(second, 1)


async def test_unknown_jobs_and_those_of_other_tenants_give_no_row(conn: asyncpg.Connection) -> None:
    job_id = await enqueue(conn, tenant="a")
    assert await claim_by_id(conn, uuid4()) is None
    statement = "select job_id from claim_by_id('w1', $1, only_tenant => $2)"
    assert await conn.fetchval(statement, job_id, "b") is None
    assert await conn.fetchval(statement, job_id, "a") == job_id


async def test_an_entry_that_another_claim_holds_is_not_waited_for(connect_as: ConnectAs) -> None:
    one, two = await connect_as("worker"), await connect_as("worker")
    job_id = await enqueue(one)
    await two.execute("set lock_timeout = '1s'")
    async with one.transaction():
        assert await claim(one) == [Lease(job_id, 1)]
        assert await claim_by_id(two, job_id) is None

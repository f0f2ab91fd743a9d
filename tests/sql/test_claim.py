"""Claims: strict priority, first in first out, never the same job twice, only jobs that were asked for."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from holdfast.model.hints import Hints
from holdfast.model.states import State
from tests.conftest import ConnectAs
from tests.sql.factories import (
    Lease,
    claim,
    dump,
    enqueue,
    enqueue_copies,
    enqueue_many,
    job_in,
    job_row,
    offences,
    publish,
    settle,
)


async def ids(conn: asyncpg.Connection, *types: str, limit: int = 100) -> list[UUID]:
    """Claim, and keep the ids in the order they were given."""
    return [lease.job_id for lease in await claim(conn, *types, limit=limit)]


async def test_first_in_first_out_within_a_stream(conn: asyncpg.Connection) -> None:
    jobs = await enqueue_copies(conn, 30)
    assert await ids(conn, limit=7) == jobs[:7]
    assert await ids(conn, limit=100) == jobs[7:]
    assert await ids(conn) == []


async def test_a_claim_takes_at_most_what_it_was_told(conn: asyncpg.Connection) -> None:
    await enqueue_copies(conn, 10, "a")
    await enqueue_copies(conn, 10, "b")
    assert [len(await claim(conn, "a", "b", limit=n)) for n in (0, -1, 1, 3, 100)] == [0, 0, 1, 3, 16]


async def test_priority_is_strict_across_streams(conn: asyncpg.Connection) -> None:
    types = [f"type{n}" for n in range(12)]
    batch: list[tuple[str, Any, dict[str, Any]]] = [
        (types[n % 12], {}, {"priority": priority}) for n, priority in enumerate(list(range(48, 0, -1)) + [5] * 12)
    ]
    rows = await enqueue_many(conn, batch)
    priority = {row["job_id"]: job[2]["priority"] for row, job in zip(rows, batch, strict=True)}
    taken: list[int] = []
    while got := await ids(conn, *types, limit=5):
        taken += [priority[job_id] for job_id in got]
        lowest_left = await conn.fetchval("select min(rank) from ready")
        assert lowest_left is None or 2 * max(priority[job_id] for job_id in got) + 2 <= lowest_left
    assert taken == sorted(priority.values())


async def test_one_claim_may_span_many_streams_and_priorities(conn: asyncpg.Connection) -> None:
    for n in range(10):
        await enqueue(conn, f"type{n}", priority=n % 3)
    got = await ids(conn, *(f"type{n}" for n in range(10)), limit=10)
    priorities = [(await job_row(conn, job_id))["priority"] for job_id in got]
    assert priorities == sorted(priorities)
    assert len(got) == 10


async def test_a_claim_returns_jobs_in_the_order_in_which_they_should_run(conn: asyncpg.Connection) -> None:
    for priority in (9, 3, 7, 3, 1, 9):
        await enqueue(conn, priority=priority)
    everything = Hints.everything([await conn.fetchval("select id from streams")])
    rows = await conn.fetch("select rank, seq from claim_from('w1', 10, null, $1, $2, $3, $4)", *everything)
    places = [(row["rank"], row["seq"]) for row in rows]
    assert len(places) == 6
    assert places == sorted(places)


async def test_each_type_of_a_claim_has_its_own_lease(conn: asyncpg.Connection) -> None:
    own = {"brief": 5.0, "long": 600.0, "plain": None}
    for name, seconds in own.items():
        await conn.execute("insert into job_types (name, lease_seconds) values ($1, $2)", name, seconds)
        await enqueue_copies(conn, 3, name)
    await enqueue_copies(conn, 3, "unpublished")
    assert len(await claim(conn, *own, "unpublished", limit=12)) == 12
    rows = await conn.fetch(
        "select j.type, array_agg(distinct extract(epoch from l.expires_at - l.claimed_at)::float) as seconds "
        "from leases l join jobs j on j.id = l.job_id group by 1"
    )
    found = {row["type"]: row["seconds"] for row in rows}
    assert found == {"brief": [5.0], "long": [600.0], "plain": [30.0], "unpublished": [30.0]}


async def test_only_wanted_types_queues_and_tenants_are_taken(conn: asyncpg.Connection) -> None:
    wanted = await enqueue(conn, queue="q", tenant="t")
    await enqueue(conn, "other", queue="q", tenant="t")
    await enqueue(conn, queue="other", tenant="t")
    await enqueue(conn, queue="q", tenant="other")
    await enqueue(conn, queue="q", tenant="t", delay=60.0)
    await enqueue(conn, queue="q", tenant="t", hold=True)
    assert await claim(conn, limit=10, queues=["q"], tenants=["t"]) == [Lease(wanted, 1)]
    assert await claim(conn, "unknown", limit=10) == []


async def test_a_claim_writes_attempt_owner_and_lease(conn: asyncpg.Connection) -> None:
    await publish(conn, "slow", lease_seconds=600)
    await enqueue(conn)
    await enqueue(conn, "slow")
    await enqueue(conn, "own")
    for job_type, seconds, given in (("work", 30, None), ("slow", 600, None), ("own", 7, 7.0)):
        (lease,) = await claim(conn, job_type, lease_seconds=given)
        row = await conn.fetchrow(
            "select attempt, worker, interrupt, extract(epoch from expires_at - claimed_at)::integer from leases "
            "where job_id = $1",
            lease.job_id,
        )
        assert row is not None
        assert tuple(row) == (1, "w1", None, seconds)
        job = await job_row(conn, lease.job_id)
        assert (job["state"], job["attempt"], job["reason"]) == ("running", 1, None)


@pytest.mark.parametrize("state", State)
async def test_a_claim_takes_only_queued_jobs(conn: asyncpg.Connection, state: State) -> None:
    job_id = await job_in(conn, state)
    before = await dump(conn)
    taken = await claim(conn, limit=10, worker="w2")
    if state == State.QUEUED:
        assert taken == [Lease(job_id, 1)]
    else:
        assert taken == []
        assert await dump(conn) == before


async def test_every_claim_gets_a_larger_attempt(conn: asyncpg.Connection) -> None:
    job_id = await enqueue(conn)
    for attempt in (1, 2, 3, 4, 5):
        assert await claim(conn) == [Lease(job_id, attempt)]
        assert await settle(conn, "hand_back", [Lease(job_id, attempt)]) == ["queued"]


async def test_two_open_claims_get_disjoint_jobs_without_waiting(connect_as: ConnectAs) -> None:
    one, two = await connect_as("worker"), await connect_as("worker")
    jobs = await enqueue_copies(one, 10)
    await two.execute("set lock_timeout = '1s'")
    async with one.transaction():
        assert await ids(one, limit=4) == jobs[:4]
        async with two.transaction():
            assert await ids(two, limit=4) == jobs[4:8]
            assert await ids(two, limit=10) == jobs[8:]
    assert await ids(two, limit=10) == []


async def test_many_workers_together_run_each_job_once(conn: asyncpg.Connection, connect_as: ConnectAs) -> None:
    types = ["a", "b", "c"]
    await enqueue_many(conn, [(types[n % 3], {}, {"priority": n % 7}) for n in range(900)])

    async def work(name: str) -> list[Lease]:
        session = await connect_as("worker")
        done: list[Lease] = []
        while leases := await claim(session, *types, limit=11, worker=name):
            assert set(await settle(session, "complete", leases, worker=name)) == {"success"}
            done += leases
        return done

    taken = [lease for some in await asyncio.gather(*(work(f"w{n}") for n in range(4))) for lease in some]
    assert len(taken) == len(set(taken)) == 900
    assert await offences(conn) == []


async def test_returned_jobs_go_before_new_ones_of_the_same_priority_only(conn: asyncpg.Connection) -> None:
    returned = await enqueue(conn)
    new = await enqueue(conn)
    assert await settle(conn, "hand_back", await claim(conn)) == ["queued"]
    urgent = await enqueue(conn, priority=99)
    assert await ids(conn) == [urgent, returned, new]


async def test_a_job_that_waited_too_long_goes_first(conn: asyncpg.Connection) -> None:
    old, later = await enqueue(conn, priority=500), await enqueue(conn, priority=500)
    urgent = await enqueue(conn, "urgent", priority=0)
    assert await conn.fetchval("select age()") == 0
    await conn.execute("update ready set ready_at = now() - interval '901 seconds' where job_id = $1", old)
    assert await conn.fetchval("select age()") == 1
    assert await conn.fetchval("select age()") == 0
    assert await offences(conn) == []
    assert await ids(conn, "work", "urgent") == [old, urgent, later]


async def test_ageing_changes_nothing_if_no_job_can_be_passed(conn: asyncpg.Connection) -> None:
    await enqueue_copies(conn, 5)
    await conn.execute("update ready set ready_at = now() - interval '901 seconds'")
    before = await dump(conn)
    assert await conn.fetchval("select age()") == 0
    assert await dump(conn) == before


async def test_renewal_prolongs_leases_and_leaves_out_lost_ones(conn: asyncpg.Connection) -> None:
    await enqueue_copies(conn, 3)
    held, lost, foreign = await claim(conn, limit=2) + await claim(conn, worker="w2")
    await conn.execute("update leases set expires_at = now() - interval '1 hour'")
    rows = await conn.fetch(
        "select job_id, lease_remaining, interrupt from renew('w1', $1, $2)",
        [held.job_id, lost.job_id, foreign.job_id], [1, 2, 1],
    )  # fmt: skip
    assert [(row["job_id"], row["lease_remaining"], row["interrupt"]) for row in rows] == [(held.job_id, 30, None)]
    late = await conn.fetch("select job_id from leases where expires_at < now() order by job_id")
    assert [row["job_id"] for row in late] == sorted([lost.job_id, foreign.job_id])


async def test_renewal_does_not_wait_for_a_lease_that_is_being_settled(connect_as: ConnectAs) -> None:
    one, two = await connect_as("worker"), await connect_as("worker")
    await enqueue(one)
    (lease,) = await claim(one)
    await two.execute("set lock_timeout = '1s'")
    async with one.transaction():
        await settle(one, "complete", [lease])
        rows = await two.fetch("select job_id from renew('w1', $1, $2)", [lease.job_id], [1])
        assert [row["job_id"] for row in rows] == [lease.job_id]
    assert await two.fetch("select job_id from renew('w1', $1, $2)", [lease.job_id], [1]) == []

"""Targets: one job at a time, in order of release, and what blocks the line or does not."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from tests.conftest import ConnectAs
from tests.sql.factories import (
    Lease,
    claim,
    elect,
    enqueue,
    enqueue_many,
    execute,
    expire,
    job_in,
    make_due,
    offences,
    promote,
    publish,
    run_one,
    settle,
    state_of,
    sweep,
)


async def line(conn: asyncpg.Connection, count: int, **options: Any) -> list[UUID]:
    """So many jobs for target t, with a head."""
    jobs = [await enqueue(conn, target="t", **options) for _ in range(count)]
    await elect(conn)
    return jobs


async def claimable(conn: asyncpg.Connection) -> list[UUID]:
    """Claim whatever can be claimed."""
    return [lease.job_id for lease in await claim(conn, limit=10)]


async def order_of_runs(conn: asyncpg.Connection) -> list[UUID]:
    """Run everything to its end, and see in which order."""
    done: list[UUID] = []
    while leases := await claim(conn, limit=10):
        assert len(leases) == 1
        assert await settle(conn, "complete", leases) == ["success"]
        done.append(leases[0].job_id)
    assert await offences(conn) == []
    return done


async def test_one_at_a_time_in_order_of_release_whatever_the_priority(conn: asyncpg.Connection) -> None:
    rows = await enqueue_many(conn, [("work", {}, {"target": "t", "priority": 9 - n}) for n in range(10)])
    assert await claimable(conn) == []
    await elect(conn)
    assert await order_of_runs(conn) == [row["job_id"] for row in rows]
    assert await conn.fetchval("select count(*) from heads") == 0


async def test_many_workers_together_never_run_two_jobs_of_a_target(
    conn: asyncpg.Connection, connect_as: ConnectAs
) -> None:
    targets = ["a", "b", "c"]
    rows = await enqueue_many(conn, [("work", {}, {"target": targets[n % 3]}) for n in range(60)])
    lines = {row["job_id"]: targets[n % 3] for n, row in enumerate(rows)}
    await elect(conn)
    running: set[str] = set()
    begun: list[UUID] = []

    async def work(name: str) -> None:
        session = await connect_as("worker")
        while len(begun) < len(rows):
            leases = await claim(session, limit=5, worker=name)
            claimed = [lines[lease.job_id] for lease in leases]
            assert len(set(claimed)) == len(claimed)
            assert not running & set(claimed)
            running.update(claimed)
            begun.extend(lease.job_id for lease in leases)
            await session.fetchval("select 1")  # the others have their turn meanwhile
            running.difference_update(claimed)
            await settle(session, "complete", leases, worker=name)

    async with asyncio.timeout(60):
        await asyncio.gather(*(work(f"w{n}") for n in range(4)))
    for target in targets:
        assert [job_id for job_id in begun if lines[job_id] == target] == [
            job_id for job_id in lines if lines[job_id] == target
        ]
    assert await offences(conn) == []


async def test_targets_and_tenants_do_not_wait_for_each_other(conn: asyncpg.Connection) -> None:
    jobs = [
        await enqueue(conn, target=target, tenant=tenant)
        for target, tenant in (("t", "a"), ("t", "b"), ("u", "a"), ("t", "a"))
    ]
    free = await enqueue(conn)
    await elect(conn)
    assert set(await claimable(conn)) == {*jobs[:3], free}


async def test_jobs_of_a_target_may_be_of_different_types(conn: asyncpg.Connection) -> None:
    first, second = await enqueue(conn, "a", target="t"), await enqueue(conn, "b", target="t")
    await elect(conn)
    assert await claim(conn, "b") == []
    (lease,) = await claim(conn, "a", "b", limit=5)
    assert lease.job_id == first
    await settle(conn, "complete", [lease])
    assert await claim(conn, "a", "b", limit=5) == [Lease(second, 1)]


@pytest.mark.parametrize(
    ("verb", "more"), [("fail", {}), ("snooze", {"delays": [60.0]}), ("snooze", {"delays": [0.0]}), ("hand_back", {})]
)
async def test_a_retrying_snoozed_or_returned_head_keeps_its_place(
    conn: asyncpg.Connection, verb: str, more: dict[str, Any]
) -> None:
    first, second = await line(conn, 2)
    (state,) = await settle(conn, verb, await claim(conn), **more)
    if state != "queued":
        assert await claimable(conn) == []
        await elect(conn)
        await make_due(conn, first)
        assert await promote(conn) == 1
    assert await order_of_runs(conn) == [first, second]


@pytest.mark.parametrize("verb", ["fail", "snooze"])
async def test_a_waiting_head_that_was_paused_and_resumed_keeps_its_place(conn: asyncpg.Connection, verb: str) -> None:
    first, second = await line(conn, 2)
    more: dict[str, Any] = {"delays": [60.0]} | ({"kinds": ["retry"]} if verb == "fail" else {})
    await settle(conn, verb, await claim(conn), **more)
    assert await execute(conn, "pause", first) == "accepted"
    assert await execute(conn, "resume", first) == "accepted"
    assert await state_of(conn, first) == "scheduled"
    assert await claimable(conn) == []
    assert await offences(conn) == []
    await make_due(conn, first)
    await promote(conn)
    assert await order_of_runs(conn) == [first, second]


async def test_a_lapsed_head_keeps_its_place(conn: asyncpg.Connection) -> None:
    first, second = await line(conn, 2)
    await claim(conn)
    await expire(conn, first)
    assert await sweep(conn) == {first: "queued"}
    assert await order_of_runs(conn) == [first, second]


@pytest.mark.parametrize("state", ["paused", "error"])
@pytest.mark.parametrize("verb", ["resume", "cancel"])
async def test_a_paused_or_failed_head_blocks_until_it_is_resumed_or_canceled(
    conn: asyncpg.Connection, state: str, verb: str
) -> None:
    first = await job_in(conn, state, target="t")
    second = await enqueue(conn, target="t")
    await elect(conn)
    await conn.execute("select drop_strays(), headless_targets()")
    assert await claimable(conn) == []
    assert await offences(conn) == []
    await execute(conn, verb, first)
    assert await order_of_runs(conn) == ([first, second] if verb == "resume" else [second])


@pytest.mark.parametrize("verb", ["complete", "fail"])
async def test_the_next_one_follows_when_the_head_has_ended(conn: asyncpg.Connection, verb: str) -> None:
    _, second = await line(conn, 2, max_attempts=1)
    await settle(conn, verb, await claim(conn))
    assert await order_of_runs(conn) == [second]


async def test_cancel_of_a_job_in_line_leaves_the_others_in_order(conn: asyncpg.Connection) -> None:
    jobs = await line(conn, 4)
    await execute(conn, "cancel", jobs[0])
    await execute(conn, "cancel", jobs[2])
    assert await order_of_runs(conn) == [jobs[1], jobs[3]]


async def test_a_paused_job_in_line_blocks_and_its_elders_go_first_once_it_is_resumed(
    conn: asyncpg.Connection,
) -> None:
    jobs = await line(conn, 3)
    assert await execute(conn, "pause", jobs[1]) == "accepted"
    assert await claimable(conn) == []
    assert await offences(conn) == []
    assert await execute(conn, "resume", jobs[1]) == "accepted"
    assert await order_of_runs(conn) == jobs


async def test_a_job_paused_behind_a_running_head_blocks_when_that_has_ended(conn: asyncpg.Connection) -> None:
    jobs = await line(conn, 3)
    leases = await claim(conn)
    await execute(conn, "pause", jobs[2])
    assert await settle(conn, "complete", leases) == ["success"]
    assert await claimable(conn) == []
    await execute(conn, "resume", jobs[2])
    assert await order_of_runs(conn) == [jobs[1], jobs[2]]


async def test_a_held_job_does_not_block_and_joins_when_it_is_released(conn: asyncpg.Connection) -> None:
    held = await enqueue(conn, target="t", hold=True)
    other = await enqueue(conn, target="t")
    await conn.execute("select release_held($1)", [held])
    await elect(conn)
    assert await order_of_runs(conn) == [other, held]


async def test_scheduled_jobs_join_at_their_time(conn: asyncpg.Connection) -> None:
    late, early = await enqueue(conn, target="t", delay=120.0), await enqueue(conn, target="t", delay=60.0)
    now = await enqueue(conn, target="t")
    await elect(conn)
    await settle(conn, "complete", await claim(conn))
    assert await state_of(conn, now) == "success"
    for table, column in (("due", "job_id"), ("jobs", "id")):
        back = f"update {table} set run_at = run_at - interval '1 hour' where {column} = any ($1)"
        await conn.execute(back, [late, early])
    assert await promote(conn) == 2
    assert await order_of_runs(conn) == [early, late]


async def test_a_scheduled_job_that_was_paused_and_resumed_does_not_block_before_its_time(
    conn: asyncpg.Connection,
) -> None:
    later = await enqueue(conn, target="t", delay=60.0)
    other = await enqueue(conn, target="t")
    await elect(conn)
    await execute(conn, "pause", later)
    assert await claimable(conn) == []
    await execute(conn, "resume", later)
    assert await state_of(conn, later) == "scheduled"
    assert await order_of_runs(conn) == [other]


async def test_hold_blocks_the_line_and_keeps_it_in_order(conn: asyncpg.Connection) -> None:
    await publish(conn, on_failure="hold")
    jobs = await line(conn, 3)
    assert await settle(conn, "fail", await claim(conn)) == ["error"]
    assert await claimable(conn) == []
    assert await execute(conn, "retry", jobs[0]) == "accepted"
    assert await order_of_runs(conn) == jobs


async def test_a_released_head_is_returned_before_new_jobs_of_its_stream(conn: asyncpg.Connection) -> None:
    head = await run_one(conn, target="t")
    free = await enqueue(conn)
    await settle(conn, "hand_back", [head])
    assert await claimable(conn) == [head.job_id, free]

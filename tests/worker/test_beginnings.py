"""Nothing that was claimed ahead, or is at its last chance, begins before the database knows that it is about to."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from holdfast import Context, Holdfast, Middleware
from tests.conftest import ConnectAs
from tests.harness.inprocess import reached, working
from tests.harness.waiting import until
from tests.sql.factories import expire, sweep

UNBEGUN = "select job_id from leases l join beginnings b on b.worker = l.worker and l.number > b.number"


async def test_no_job_claimed_ahead_begins_before_the_database_knows(
    hf: Holdfast, conn: asyncpg.Connection, connect_as: ConnectAs
) -> None:
    begun: set[str] = set()

    @hf.job("short")
    async def short(ctx: Context) -> None:
        begun.add(str(ctx.job_id))
        await asyncio.sleep(0.001)

    owner = await connect_as("superuser")
    async with working(hf, lanes="general=4"):
        # While the row is locked, no number can be cleared. What was cleared before, and has no number, may run.
        await hf.enqueue_many([("short", {})] * 200)
        await until(lambda: conn.fetchval("select count(*) > 0 from beginnings"), what="numbers were given")
        async with owner.transaction():
            await owner.execute("select from beginnings for update")
            await hf.enqueue_many([("short", {})] * 3000)
            await until(lambda: _blocked(conn), what="a number waits to be cleared")
            # Leases whose number lies above the row: none of them has begun, nor will it while the row stays as it is.
            # What waited first may be a number of those before.
            unbegun = await until(lambda: conn.fetch(UNBEGUN), what="jobs are claimed whose numbers cannot be cleared")
            assert not {str(row["job_id"]) for row in unbegun} & begun
        await until(lambda: len(begun) == 3200, what="all begin once it can be cleared")


class Before(Middleware):
    """Does something right before a handler would begin, once."""

    def __init__(self, act: Callable[[UUID], Awaitable[Any]]) -> None:
        self._act: Callable[[UUID], Awaitable[Any]] | None = act

    async def run(self, ctx: Context, call_next: Callable[[], Awaitable[Any]]) -> Any:
        act, self._act = self._act, None
        if act is not None:
            await act(ctx.job_id)
        return await call_next()


def declare(hf: Holdfast, executor: str, begun: list[tuple[UUID, int]]) -> None:
    """A job type that says when it begins."""
    if executor == "async":

        @hf.job("last")
        async def coroutine(ctx: Context) -> None:
            begun.append((ctx.job_id, ctx.attempt))

    else:

        @hf.job("last", executor="thread")
        def function(ctx: Context) -> None:
            begun.append((ctx.job_id, ctx.attempt))
            threading.Event().wait(0.005)


@pytest.mark.parametrize("executor", ["async", "thread"])
async def test_at_its_last_chance_a_job_whose_lease_is_locked_waits_and_no_other_does(
    database_url: str, connect_as: ConnectAs, executor: str
) -> None:
    owner = await connect_as("superuser")
    lock = owner.transaction()
    locked: list[UUID] = []

    async def act(job_id: UUID) -> None:
        await lock.start()
        await owner.execute("select from leases where job_id = $1 for update", job_id)
        locked.append(job_id)

    begun: list[tuple[UUID, int]] = []
    async with Holdfast(database_url, middleware=[Before(act)]) as hf:
        declare(hf, executor, begun)
        async with working(hf, lanes="general=2"):
            refs = await hf.enqueue_many([("last", {}, {"max_attempts": 1})] * 20)
            try:
                await until(lambda: len(begun) >= 19, what="the others begin")
                assert locked[0] not in dict(begun)
            finally:
                await lock.rollback()
            await until(lambda: locked[0] in dict(begun), what="it begins, too")
            for ref in refs:
                await reached(hf, ref.id, "success")


@pytest.mark.parametrize("executor", ["async", "thread"])
async def test_at_its_last_chance_a_job_whose_lease_is_over_does_not_begin(
    database_url: str, connect_as: ConnectAs, executor: str
) -> None:
    owner = await connect_as("superuser")
    states: list[dict[UUID, str]] = []

    async def act(job_id: UUID) -> None:
        async with owner.transaction():  # or the worker's own sweep may come first
            await expire(owner, job_id)
            states.append(await sweep(owner))

    begun: list[tuple[UUID, int]] = []
    async with Holdfast(database_url, middleware=[Before(act)]) as hf:
        declare(hf, executor, begun)
        async with working(hf, lanes="general=2"):
            ref = await hf.enqueue("last", {}, max_attempts=1)
            job = await reached(hf, ref.id, "success", "dead")
    assert states in ([{ref.id: "queued"}], [{}]), "it was swept, here or by maintenance"
    # Claimed while the first attempt had not ended, it was put off once.
    assert [attempt > 1 for _, attempt in begun] == [True]
    assert (job.state, job.failures) == ("success", 0)


async def test_a_drain_hands_back_what_could_not_begin(database_url: str, connect_as: ConnectAs) -> None:
    owner = await connect_as("superuser")
    lock = owner.transaction()
    locked = asyncio.Event()

    async def act(job_id: UUID) -> None:
        await lock.start()
        await owner.execute("select from leases where job_id = $1 for update", job_id)
        locked.set()

    begun: list[tuple[UUID, int]] = []
    async with Holdfast(database_url, middleware=[Before(act)]) as hf:
        declare(hf, "async", begun)
        async with working(hf, lanes="general=2") as worker:
            ref = await hf.enqueue("last", {}, max_attempts=1)
            await locked.wait()
            worker.drain()
            worker.drain()  # no grace
            await lock.rollback()
        job = await hf.get(ref.id)
    assert (job.state.value, job.failures) in (("queued", 0), ("success", 0))
    assert len(begun) == (job.state.value == "success")


async def _blocked(conn: asyncpg.Connection) -> bool:
    return bool(
        await conn.fetchval(
            "select count(*) > 0 from pg_stat_activity"
            " where datname = current_database() and query like '%may_begin%' and wait_event_type = 'Lock'"
        )
    )

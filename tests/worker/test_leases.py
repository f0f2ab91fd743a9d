"""Leases are kept while their handler runs, and given up when the database says so."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from uuid import UUID

import asyncpg
import pytest

from holdfast import Context, Holdfast
from holdfast.errors import LeaseLost as LeaseLostError
from holdfast.lifecycle.elapsed import elapsed
from holdfast.store import lifeline
from holdfast.telemetry.events import Event, LeaseLost
from holdfast.worker.claimed import Claimed
from holdfast.worker.leases import LeaseKeeper
from tests.harness.inprocess import reached, working
from tests.harness.waiting import until
from tests.lines import Line, over_lines
from tests.worker.lapse import lapse


async def test_a_lease_shorter_than_the_heartbeat_is_kept(hf: Holdfast) -> None:
    @hf.job("long", lease=1.5)
    async def long(ctx: Context) -> int:
        await asyncio.sleep(4)
        return ctx.attempt

    @hf.job("first")
    async def first(ctx: Context) -> None: ...

    async with working(hf):
        await reached(hf, await first.enqueue(), "success")
        job = await long.enqueue()
        done = await hf.wait(job.id, timeout=30)
    assert (done.result, done.failures) == (1, 0)


async def test_all_leases_are_renewed_at_once_when_one_has_less_than_half_left(
    hf: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    left: list[list[float]] = []
    renew = LeaseKeeper._renew

    async def noted(self: LeaseKeeper, line: lifeline.Lifeline, claimed: list[Claimed]) -> None:
        left.append([(h.lease_end - elapsed()) / h.claim.lease_seconds for h in claimed])
        await renew(self, line, claimed)

    monkeypatch.setattr(LeaseKeeper, "_renew", noted)
    go_on = asyncio.Event()

    @hf.job("long", lease=1.5)
    async def long(ctx: Context) -> None:
        await go_on.wait()

    jobs = [await long.enqueue() for _ in range(2)]
    async with working(hf):
        await until(lambda: len(left) >= 2, what="leases are renewed again")
        shares = left[:2]
        go_on.set()
        done = [await hf.wait(job, timeout=30) for job in jobs]
    assert [len(of_each) for of_each in shares] == [2, 2]
    assert [share for of_each in shares if (share := min(of_each)) >= 0.5] == []
    assert [(job.attempt, job.failures) for job in done] == [(1, 0), (1, 0)]


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="only Linux tells how long a machine was suspended")
async def test_a_handler_does_not_go_on_after_a_suspend_that_was_longer_than_its_lease(
    hf: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on, ended, read = asyncio.Event(), asyncio.Event(), list[str](), time.clock_gettime

    @hf.job("work", lease=30)
    async def work(ctx: Context) -> None:
        try:
            begun.set()
            await go_on.wait()
            ended.append("went on")
        except asyncio.CancelledError:
            ended.append("canceled")
            raise

    def after_a_suspend(clock: int) -> float:
        return read(clock) + (100 if clock == time.CLOCK_BOOTTIME else 0)

    await hf.enqueue("work", target="a target")
    async with working(hf):
        await begun.wait()  # it is `running` before its worker knows
        monkeypatch.setattr(time, "clock_gettime", after_a_suspend)
        go_on.set()
        await until(lambda: ended, what="the handler ends")
    assert ended[0] == "canceled"


@pytest.mark.parametrize("target", [None, "a target"])
async def test_a_lost_lease_is_told_and_its_result_dropped(
    hf: Holdfast, conn: asyncpg.Connection, target: str | None
) -> None:
    """The lease is swept by hand under a living worker, which stops the handler."""
    go_on, told = asyncio.Event(), list[Event]()
    ended: dict[int, str] = {}

    @hf.job("work", lease=1)
    async def work(ctx: Context) -> int:
        try:
            await go_on.wait()
            ended[ctx.attempt] = "returned"
        except asyncio.CancelledError:
            ended[ctx.attempt] = "canceled"
            raise
        return ctx.attempt

    hf.events.subscribe(told.append)
    job = await hf.enqueue("work", target=target)
    async with working(hf):
        await reached(hf, job, "running")
        await lapse(conn)
        lost = await until(lambda: [e for e in told if isinstance(e, LeaseLost)], what="it is told")
        assert (lost[0].job_id, lost[0].attempt) == (job.id, 1)
        await until(lambda: ended, what="the handler is stopped")
        assert ended == {1: "canceled"}
        go_on.set()
        done = await hf.wait(job.id, timeout=30)
    assert (done.state, done.result, done.failures) == ("success", done.attempt, 1)
    outcomes = [a.outcome for a in await hf.attempts(job.id)]
    assert (outcomes[0], set(outcomes[1:-1]), outcomes[-1]) in (
        ("lost", {"snoozed"}, "success"),
        ("lost", set(), "success"),
    )
    assert ended == {1: "canceled", done.attempt: "returned"}
    assert len([e for e in told if isinstance(e, LeaseLost)]) <= 2


async def test_a_lost_attempt_enqueues_nothing_any_more(hf: Holdfast, conn: asyncpg.Connection) -> None:
    told, faults = asyncio.Event(), list[str]()

    @hf.job("child")
    async def child(ctx: Context) -> None: ...

    @hf.job("work", lease=5)
    async def work(ctx: Context) -> None:
        if ctx.attempt == 1:
            await ctx.enqueue("child")
            with suppress(asyncio.CancelledError):  # it does not stop with its lease
                await told.wait()
            try:
                await ctx.enqueue("child")
            except LeaseLostError as fault:
                faults.append(str(fault))

    hf.events.subscribe(lambda _event: told.set(), LeaseLost)
    job = await work.enqueue()
    async with working(hf):
        await reached(hf, job, "running")
        ended = "select count(*) from jobs where type = 'child' and state = 'success'"
        await until(lambda: conn.fetchval(ended), what="the child has a lease no more")
        await lapse(conn)
        assert (await hf.wait(job.id, timeout=30)).state == "success"
    assert faults == ["the lease is lost, and the job somebody else's: nothing is enqueued for this attempt any more"]
    assert await conn.fetchval("select count(*) from jobs where type = 'child'") == 1


async def test_a_job_does_not_run_twice_at_once_in_one_worker(hf: Holdfast, conn: asyncpg.Connection) -> None:
    go_on, running, most = asyncio.Event(), 0, 0

    @hf.job("work", lease=1)
    async def work(ctx: Context) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        while not go_on.is_set():
            with suppress(asyncio.CancelledError):  # it does not stop with its lease
                await go_on.wait()
        running -= 1
        return ctx.attempt

    job = await work.enqueue()
    async with working(hf):
        await reached(hf, job, "running")
        await lapse(conn)
        await until(lambda: _came_back(hf, job.id), what="it is claimed again")
        go_on.set()
        await hf.wait(job.id, timeout=30)
    assert most == 1


async def _came_back(hf: Holdfast, job_id: UUID) -> bool:
    return [a.outcome for a in await hf.attempts(job_id)][:2] == ["lost", "snoozed"]


async def test_a_cut_connection_is_replaced_at_once_and_not_with_the_next_heartbeat(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_HEARTBEAT_SECONDS", "60")
    monkeypatch.setenv("HOLDFAST_LEASE_SEC_DEFAULT", "600")
    async with Holdfast(database_url) as hf:

        @hf.job("long")
        async def long(ctx: Context) -> None:
            await asyncio.Event().wait()

        conn = await asyncpg.connect(database_url)
        try:
            async with working(hf):
                job = await long.enqueue()
                await reached(hf, job, "running")
                cut = await conn.fetchval(LIFELINE)
                await conn.execute("select pg_terminate_backend($1)", cut)

                async def replaced() -> bool:
                    return await conn.fetchval(LIFELINE) not in (None, cut)

                await until(replaced, seconds=20, what="it listens again")
                await hf.cancel(job.id)
                await reached(hf, job, "canceled", seconds=20)
        finally:
            await conn.close()


LIFELINE = (
    "select pid from pg_stat_activity where datname = current_database() and application_name = 'holdfast lifeline'"
)


async def test_leases_are_kept_after_an_answer_to_the_keeper_was_lost(
    database_url: str, conn: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever it asked: it must not wait for that for ever."""
    monkeypatch.setattr(lifeline, "_STATEMENT_SECONDS", 0.5)
    async with Line(database_url).running() as line, Holdfast(over_lines(database_url, line.port)) as hf:

        @hf.job("long", lease=3)
        async def long(ctx: Context) -> int:
            await asyncio.sleep(6)
            return ctx.attempt

        async with working(hf):
            await until(lambda: conn.fetchval(LIFELINE), what="the keeper listens")
            line.swallow(b"LISTEN")
            await conn.execute(f"select pg_terminate_backend(pid) from ({LIFELINE}) as found")
            await asyncio.wait_for(line.swallowed.wait(), 20)
            done = await hf.wait(await long.enqueue(), timeout=60)
    assert (done.result, done.failures) == (1, 0)


@pytest.mark.parametrize("target", ["a target", None])
async def test_a_handler_that_looks_learns_by_the_clock_that_its_lease_is_over(
    hf: Holdfast, target: str | None
) -> None:
    """Though nobody is left to tell it. Without a target it may go on: nothing else waits for it to end."""
    looked: list[bool] = []

    @hf.job("look")
    async def look(ctx: Context) -> None:
        looked.append(ctx.canceled)
        ctx._claimed.lease_end = 0.0  # type: ignore[attr-defined]
        looked.append(ctx.canceled)

    await hf.enqueue("look", target=target)
    async with working(hf):
        await until(lambda: len(looked) >= 2, what="it has looked twice")
    assert looked[:2] == [False, target is not None]

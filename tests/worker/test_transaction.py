"""`ctx.transaction()`: what a handler writes and the success of its job are one."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta

import asyncpg
import pytest

from holdfast import Context, Holdfast, LeaseLost, RetryPolicy, SyncContext
from tests.harness.inprocess import reached, working
from tests.worker.effects import INSERT, ONCE, written
from tests.worker.lapse import lapse

pytestmark = pytest.mark.usefixtures("effects")


async def test_the_writes_of_a_handler_and_its_success_are_committed_together(
    hf: Holdfast, conn: asyncpg.Connection
) -> None:
    within: list[str] = []

    @hf.job("write")
    async def write(ctx: Context) -> None:
        async with ctx.transaction() as mine:
            await mine.execute(INSERT, ctx.job_id)
            within.append((await hf.get(ctx.job_id)).state.value)
            ctx.logger.warning("written")
            ctx.result = {"rows": 1}
        within.append((await hf.get(ctx.job_id)).state.value)

    job = await write.enqueue()
    async with working(hf):
        done = await hf.wait(job, timeout=30)
    assert within == ["running", "success"]
    assert done.result == {"rows": 1}
    assert await written(conn, job) == 1
    (attempt,) = await hf.attempts(job)
    assert attempt.outcome == "success"
    assert attempt.log_excerpt == "WARNING written"


async def test_a_job_has_ended_when_its_transaction_has_not_when_that_began(
    hf: Holdfast, conn: asyncpg.Connection
) -> None:
    @hf.job("write")
    async def write(ctx: Context) -> None:
        async with ctx.transaction() as mine:
            await mine.execute("select pg_sleep(0.3)")

    job = await write.enqueue()
    async with working(hf):
        done = await hf.wait(job, timeout=30)
    (attempt,) = await hf.attempts(job)
    assert attempt.duration_ms is not None
    assert attempt.duration_ms >= 300
    assert attempt.finished_at - attempt.started_at >= timedelta(milliseconds=attempt.duration_ms)
    assert done.finished_at == attempt.finished_at
    assert done.updated_at == attempt.finished_at


async def test_an_error_rolls_back_what_was_written(hf: Holdfast, conn: asyncpg.Connection) -> None:
    @hf.job("write", retry=RetryPolicy(base=0.01, max_attempts=2))
    async def write(ctx: Context) -> None:
        async with ctx.transaction() as mine:
            await mine.execute(INSERT, ctx.job_id)
            if ctx.attempt == 1:
                raise RuntimeError("no")

    job = await write.enqueue()
    async with working(hf):
        done = await hf.wait(job, timeout=30)
    assert (done.state, done.attempt) == ("success", 2)
    assert await written(conn, job) == 1


async def test_a_stale_attempt_commits_nothing(hf: Holdfast, conn: asyncpg.Connection) -> None:
    """The lease is swept while the transaction is open; the next attempt alone has an effect."""
    inside, go_on = asyncio.Event(), asyncio.Event()
    raised: list[BaseException] = []

    @hf.job("write", lease=1)
    async def write(ctx: Context) -> None:
        try:
            async with ctx.transaction() as mine:
                await mine.execute(INSERT, ctx.job_id)
                if ctx.attempt == 1:
                    inside.set()
                    await go_on.wait()
        except BaseException as error:
            raised.append(error)
            raise

    job = await write.enqueue()
    async with working(hf):
        await inside.wait()
        await lapse(conn)
        go_on.set()
        done = await hf.wait(job, timeout=30)
    assert [type(error) for error in raised] == [LeaseLost]
    assert done.attempt > 1
    assert await written(conn, job) == 1
    assert (await hf.attempts(job))[0].outcome == "lost"


async def test_a_cancel_before_the_end_of_the_block_wins_over_it(hf: Holdfast, conn: asyncpg.Connection) -> None:
    inside = asyncio.Event()

    @hf.job("write")
    async def write(ctx: Context) -> None:
        async with ctx.transaction() as mine:
            await mine.execute(INSERT, ctx.job_id)
            inside.set()
            await asyncio.Event().wait()

    job = await write.enqueue()
    async with working(hf):
        await inside.wait()
        await hf.cancel(job)
        await reached(hf, job, "canceled")
    assert await written(conn, job) == 0


async def test_a_result_that_cannot_be_stored_rolls_back(hf: Holdfast, conn: asyncpg.Connection) -> None:
    @hf.job("write", retry=ONCE)
    async def write(ctx: Context) -> None:
        async with ctx.transaction() as mine:
            await mine.execute(INSERT, ctx.job_id)
            ctx.result = object()

    job = await write.enqueue()
    async with working(hf):
        done = await reached(hf, job, "dead")
    assert "cannot be written as JSON" in (done.last_error or "")
    assert await written(conn, job) == 0


async def test_a_second_transaction_is_refused(hf: Holdfast) -> None:
    @hf.job("write")
    async def write(ctx: Context) -> None:
        async with ctx.transaction():
            pass
        with pytest.raises(Exception, match="completed by an earlier transaction"):
            async with ctx.transaction():
                pass
        ctx.logger.info("seen")

    job = await write.enqueue()
    async with working(hf):
        await hf.wait(job, timeout=30)


async def test_a_nested_transaction_is_refused(hf: Holdfast, conn: asyncpg.Connection) -> None:
    @hf.job("write", retry=ONCE)
    async def write(ctx: Context) -> None:
        async with ctx.transaction() as mine:
            await mine.execute(INSERT, ctx.job_id)
            async with ctx.transaction():
                pass

    job = await write.enqueue()
    async with working(hf):
        done = await reached(hf, job, "dead")
    assert "is already open" in (done.last_error or "")
    assert await written(conn, job) == 0


async def test_a_thread_writes_with_a_connection_of_holdfasts(hf: Holdfast, conn: asyncpg.Connection) -> None:
    threads: list[str] = []

    @hf.job("write")
    def write(ctx: SyncContext, fail: bool) -> None:
        threads.append(threading.current_thread().name)
        with ctx.transaction() as mine:
            mine.execute(INSERT, ctx.job_id)
            assert mine.fetchval("select count(*) from public.effects where job_id = $1", ctx.job_id) == 1
            if fail:
                raise RuntimeError("no")
            ctx.result = 5

    kept, dropped = await write.enqueue(False), await write.options(max_attempts=1).enqueue(True)
    async with working(hf):
        assert (await hf.wait(kept, timeout=30)).result == 5
        assert (await hf.wait(dropped, timeout=30)).state == "dead"
    assert (await written(conn, kept), await written(conn, dropped)) == (1, 0)
    assert all(name.startswith("holdfast-handler") for name in threads)

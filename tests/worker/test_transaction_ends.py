"""`ctx.transaction()` and the end of its handler: whichever comes first, and when the connection is cut."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import asyncpg
import pytest

from holdfast import Context, Holdfast, RetryPolicy, SyncContext, events
from holdfast.errors import HoldfastError
from holdfast.worker.claimed import Claimed
from tests.conftest import ConnectAs
from tests.harness.inprocess import reached, working
from tests.harness.waiting import until
from tests.lines import Line, over_lines
from tests.worker.effects import INSERT, ONCE, written

pytestmark = pytest.mark.usefixtures("effects")


@pytest.mark.parametrize("target", [None, "a target"])
async def test_a_handler_that_goes_on_after_its_commit_is_neither_missed_nor_stopped(
    hf: Holdfast, target: str | None
) -> None:
    told: list[events.Event] = []
    hf.events.subscribe(told.append)

    @hf.job("write", lease=1.5)
    async def write(ctx: Context) -> None:
        async with ctx.transaction():
            pass
        await asyncio.sleep(3)  # longer than its lease
        finished.append(ctx.attempt)

    finished: list[int] = []
    job = await hf.enqueue("write", target=target)
    async with working(hf):
        await hf.wait(job, timeout=30)
    assert finished == [1]
    assert [e.state for e in told if isinstance(e, events.AttemptEnded)] == ["success"]
    assert not [e for e in told if isinstance(e, events.LeaseLost)]


async def test_an_error_after_the_commit_changes_nothing(hf: Holdfast, caplog: pytest.LogCaptureFixture) -> None:
    @hf.job("write")
    async def write(ctx: Context) -> None:
        async with ctx.transaction():
            pass
        raise RuntimeError("too late")

    job = await write.enqueue()
    async with working(hf):
        await hf.wait(job, timeout=30)
    done = await hf.get(job)
    assert (done.state, done.attempt, done.failures) == ("success", 1, 0)
    assert "after its transaction had completed the job: too late" in caplog.text


async def test_a_handler_that_goes_on_after_its_commit_ends_with_the_drain(hf: Holdfast) -> None:
    completed = asyncio.Event()

    @hf.job("write")
    async def write(ctx: Context) -> None:
        async with ctx.transaction():
            pass
        completed.set()
        await asyncio.Event().wait()

    job = await write.enqueue()
    async with working(hf) as worker:
        await completed.wait()
        worker.drain()
        worker.drain()
    assert not worker.stuck
    assert (await hf.get(job)).state == "success"


async def test_a_stop_that_came_while_the_job_was_ending_is_made_up_for(
    hf: Holdfast, conn: asyncpg.Connection, connect_as: ConnectAs
) -> None:
    """The commit waits for another transaction and then fails, and the handler goes on: it must stop all the same."""
    await conn.execute("alter table public.effects add constraint late unique (job_id) deferrable initially deferred")
    other = await connect_as("superuser")
    rival = other.transaction()
    await rival.start()
    claimed: list[Claimed] = []

    @hf.job("write", retry=ONCE)
    async def write(ctx: Context) -> None:
        with contextlib.suppress(asyncpg.UniqueViolationError):
            async with ctx.transaction() as mine:
                await other.execute(INSERT, ctx.job_id)
                await mine.execute(INSERT, ctx.job_id)
                claimed.append(ctx._claimed)  # type: ignore[arg-type]
        await asyncio.Event().wait()

    job = await write.enqueue()
    async with working(hf) as worker:
        await until(lambda: claimed and claimed[0].ending, what="the completion is sent")
        worker.drain()
        worker.drain()
        await until(lambda: claimed[0]._later, what="the handler is told to stop")
        await rival.commit()
    assert not worker.stuck
    done = await hf.get(job)
    assert (done.state, done.failures) == ("queued", 0)


async def test_a_result_that_comes_too_late_is_named(hf: Holdfast, caplog: pytest.LogCaptureFixture) -> None:
    @hf.job("write")
    async def write(ctx: Context) -> int:
        async with ctx.transaction():
            pass
        return 5

    job = await write.enqueue()
    async with working(hf):
        await hf.wait(job, timeout=30)
    assert (await hf.get(job)).result is None
    assert "returned a result after its transaction had completed the job" in caplog.text


@pytest.mark.parametrize("moment", ["within", "at the end", "left alone"])
async def test_a_connection_that_is_cut_is_told_of_in_plain_words(
    hf: Holdfast, conn: asyncpg.Connection, moment: str
) -> None:
    """It said "cannot call Connection.terminate(): connection has been released back to the pool"."""

    @hf.job("write", retry=ONCE)
    async def write(ctx: Context) -> None:
        async with ctx.transaction() as mine:
            await mine.execute(INSERT, ctx.job_id)
            pid = mine.get_server_pid()
            await conn.execute("select pg_terminate_backend($1, 5000)", pid)
            if moment == "left alone":
                await until(lambda: closed(mine), what="the driver has noticed")
            if moment != "at the end":
                await mine.execute(INSERT, ctx.job_id)

    job = await write.enqueue()
    async with working(hf):
        done = await hf.wait(job, timeout=30)
    assert done.state == "dead"
    assert done.last_error is not None
    assert "connection" in done.last_error
    for words in ("cannot call", "released back", "another operation", "cannot switch"):
        assert words not in done.last_error
    assert await written(conn, job) == 0


@pytest.mark.parametrize("lost", ["the commit", "its answer"])
async def test_an_answer_to_the_commit_that_is_lost_is_not_waited_for_until_the_timeout(
    database_url: str, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    monkeypatch.setattr("holdfast.store.transactions._COMMIT_SECONDS", 0.5)
    line = Line(database_url)
    async with line.running(), Holdfast(over_lines(database_url, line.port)) as app:
        told: list[Any] = []
        app.events.subscribe(told.append, events.AttemptEnded)

        @app.job("write", retry=RetryPolicy(base=0.01))
        async def write(ctx: Context) -> None:
            async with ctx.transaction() as mine:
                await mine.execute(INSERT, ctx.job_id)
                if ctx.attempt == 1:
                    line.swallow(b"COMMIT", answer=lost == "its answer")

        job = await write.enqueue()
        async with working(app):
            done = await app.wait(job, timeout=30)
            await until(lambda: told, what="the slot is free")
    assert (done.state, done.attempt) == ("success", 1 if lost == "its answer" else 2)


async def closed(conn: asyncpg.Connection) -> bool:
    try:
        return bool(conn.is_closed())
    except asyncpg.InterfaceError:
        return True  # it has left its pool


async def test_a_transaction_that_is_never_left_ends_with_its_handler(hf: Holdfast, conn: asyncpg.Connection) -> None:
    """It used to keep its connection, until no later job could have one."""
    kept: list[Any] = []

    @hf.job("forget", retry=ONCE)
    async def forget(ctx: Context) -> None:
        block = ctx.transaction()
        kept.append(block)
        mine = await block.__aenter__()
        await mine.execute(INSERT, ctx.job_id)

    @hf.job("forget-in-thread", retry=ONCE)
    def forget_in_thread(ctx: SyncContext) -> None:
        block = ctx.transaction()
        kept.append(block)
        block.__enter__().execute(INSERT, ctx.job_id)

    @hf.job("write")
    async def write(ctx: Context) -> None:
        async with ctx.transaction() as mine:
            await mine.execute(INSERT, ctx.job_id)

    forgotten = [await handler.enqueue() for handler in (forget, forget_in_thread) for _ in range(4)]
    async with working(hf, lanes={"general": 2}):
        for job in forgotten:
            dead = await hf.wait(job, timeout=30)
            assert (dead.state, await written(conn, job)) == ("dead", 0)
            assert "returned while its transaction was open" in (dead.last_error or "")
        job = await write.enqueue()
        assert (await hf.wait(job, timeout=30)).state == "success"
    assert await written(conn, job) == 1


@pytest.mark.parametrize("brings", [False, True], ids=["ours", "its own"])
async def test_a_transaction_left_to_a_task_commits_nothing_after_its_handler(
    hf: Holdfast, conn: asyncpg.Connection, database_url: str, brings: bool
) -> None:
    left: list[asyncio.Task[None]] = []
    inside, go_on = asyncio.Event(), asyncio.Event()

    @hf.job("leave", retry=ONCE)
    async def leave(ctx: Context) -> None:
        async def later() -> None:
            own = await asyncpg.connect(database_url) if brings else None
            try:
                async with ctx.transaction(own) as mine:
                    await mine.execute(INSERT, ctx.job_id)
                    inside.set()
                    await go_on.wait()
            finally:
                if own is not None:
                    await own.close()

        left.append(asyncio.create_task(later()))
        await inside.wait()

    job = await leave.enqueue()
    async with working(hf):
        assert (await hf.wait(job, timeout=30)).state == "dead"
        go_on.set()
        (task,) = left
        with pytest.raises((HoldfastError, asyncpg.InterfaceError)):
            await task
    assert await written(conn, job) == 0


async def test_no_transaction_begins_after_the_handler(hf: Holdfast) -> None:
    contexts: list[Context] = []

    @hf.job("keep")
    async def keep(ctx: Context) -> None:
        contexts.append(ctx)

    job = await keep.enqueue()
    async with working(hf):
        await reached(hf, job, "success")
        with pytest.raises(HoldfastError, match="can no longer begin a transaction"):
            async with contexts[0].transaction():
                pass

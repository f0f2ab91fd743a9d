"""`ctx.transaction()`: what a handler writes and the success of its job are one."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import Any

import asyncpg
import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import async_scoped_session, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Session

from holdfast import Context, Fatal, Holdfast, InvalidInput, JobRef, LeaseLost, RetryPolicy, SyncContext, events
from holdfast.errors import HoldfastError
from holdfast.testing.harness import until
from holdfast.testing.inprocess import reached, working
from holdfast.worker.held import Held
from tests.conftest import ConnectAs
from tests.worker.lapse import lapse

INSERT = "insert into public.effects (job_id) values ($1)"
ONCE = RetryPolicy(max_attempts=1)


@pytest.fixture(autouse=True)
async def effects(conn: asyncpg.Connection) -> None:
    """A table of the app's own."""
    await conn.execute("create table public.effects (job_id uuid not null)")


async def written(conn: asyncpg.Connection, job: JobRef) -> int:
    found: int = await conn.fetchval("select count(*) from public.effects where job_id = $1", job.id)
    return found


async def test_both_are_committed(hf: Holdfast, conn: asyncpg.Connection) -> None:
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


@pytest.mark.parametrize("target", [None, "a target"])
async def test_a_handler_that_goes_on_after_its_commit_is_neither_missed_nor_stopped(
    hf: Holdfast, target: str | None
) -> None:
    told: list[events.Event] = []
    hf.events.subscribe(told.append)

    @hf.job("write", lease=0.3)
    async def write(ctx: Context) -> None:
        async with ctx.transaction():
            pass
        await asyncio.sleep(1)
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


async def test_one_within_another_is_refused(hf: Holdfast, conn: asyncpg.Connection) -> None:
    @hf.job("write", retry=ONCE)
    async def write(ctx: Context) -> None:
        async with ctx.transaction() as mine:
            await mine.execute(INSERT, ctx.job_id)
            async with ctx.transaction():
                pass

    job = await write.enqueue()
    async with working(hf):
        done = await reached(hf, job, "dead")
    assert "is open already" in (done.last_error or "")
    assert await written(conn, job) == 0


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
    held: list[Held] = []

    @hf.job("write", retry=ONCE)
    async def write(ctx: Context) -> None:
        with contextlib.suppress(asyncpg.UniqueViolationError):
            async with ctx.transaction() as mine:
                await other.execute(INSERT, ctx.job_id)
                await mine.execute(INSERT, ctx.job_id)
                held.append(ctx._held)  # type: ignore[arg-type]
        await asyncio.Event().wait()

    job = await write.enqueue()
    async with working(hf) as worker:
        await until(lambda: held and held[0].ending, what="the completion is sent")
        worker.drain()
        worker.drain()
        await until(lambda: held[0]._later, what="the handler is told to stop")
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


async def test_a_thread_enqueues_in_the_transaction_that_it_was_given(hf: Holdfast) -> None:
    @hf.job("write", retry=RetryPolicy(base=0.01, max_attempts=2))
    def write(ctx: SyncContext) -> None:
        with ctx.transaction() as mine:
            ctx.enqueue("next", {"attempt": ctx.attempt}, conn=mine)
            if ctx.attempt == 1:
                raise RuntimeError("no")

    job = await write.enqueue()
    async with working(hf):
        await hf.wait(job, timeout=30)
    assert [child.payload for child in await hf.find(types=["next"])] == [{"attempt": 2}]


async def test_a_session_is_flushed_before_the_job_is_completed(
    hf: Holdfast, conn: asyncpg.Connection, database_url: str
) -> None:
    """What the session has only noted is sent first: the completion holds its locks for the commit alone."""
    engine = sa.create_engine(database_url.replace("postgresql://", "postgresql+psycopg://"), poolclass=sa.NullPool)
    effects = sa.Table("effects", sa.MetaData(), sa.Column("job_id", sa.Uuid, primary_key=True), schema="public")
    statements: list[str] = []
    sa.event.listen(engine, "before_cursor_execute", lambda *call: statements.append(call[2]))

    class Base(DeclarativeBase):
        pass

    class Effect(Base):
        __table__ = effects

    @hf.job("write")
    def write(ctx: SyncContext) -> None:
        with Session(engine) as session, ctx.transaction(session):
            session.add(Effect(job_id=ctx.job_id))

    job = await write.enqueue()
    async with working(hf):
        await hf.wait(job, timeout=30)
    assert await written(conn, job) == 1
    assert ["complete" in statement for statement in statements][-2:] == [False, True]


@pytest.mark.parametrize("kind", ["block", "session on a connection"])
async def test_what_the_block_could_not_commit_is_refused_before_it(
    hf: Holdfast, conn: asyncpg.Connection, database_url: str, kind: str
) -> None:
    engine = sa.create_engine(database_url.replace("postgresql://", "postgresql+psycopg://"), poolclass=sa.NullPool)

    @hf.job("write", retry=ONCE)
    def write(ctx: SyncContext) -> None:
        if kind == "block":
            with psycopg.connect(database_url) as mine, mine.transaction(), ctx.transaction(mine):
                pass
        with engine.connect() as connection, connection.begin(), Session(connection) as session:
            with ctx.transaction(session):
                pass

    job = await write.enqueue()
    async with working(hf):
        done = await reached(hf, job, "dead")
    assert "in a transaction already" in (done.last_error or "")


async def test_a_rollback_that_fails_hides_nothing(hf: Holdfast, database_url: str) -> None:
    @hf.job("write")
    def write(ctx: SyncContext) -> None:
        mine = psycopg.connect(database_url)
        with ctx.transaction(mine):
            mine.close()
            raise Fatal("this is what counts")

    job = await write.enqueue()
    async with working(hf):
        done = await reached(hf, job, "dead")
    assert done.last_error == "this is what counts"


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


@pytest.mark.parametrize("kind", ["psycopg", "autocommit", "core", "orm"])
async def test_a_thread_brings_its_own_connection(
    hf: Holdfast, conn: asyncpg.Connection, database_url: str, kind: str
) -> None:
    engine = sa.create_engine(database_url.replace("postgresql://", "postgresql+psycopg://"), poolclass=sa.NullPool)
    statement = sa.text("insert into public.effects (job_id) values (:id)")

    @hf.job("write", retry=RetryPolicy(base=0.01, max_attempts=2))
    def write(ctx: SyncContext) -> None:
        if kind in ("psycopg", "autocommit"):
            with psycopg.connect(database_url, autocommit=kind == "autocommit") as mine, ctx.transaction(mine):
                mine.execute("insert into public.effects (job_id) values (%s)", [ctx.job_id])
                fail_first(ctx)
            return
        with engine.connect() if kind == "core" else Session(engine) as session:
            session.execute(sa.text("select 1"))
            with ctx.transaction(session) as same:
                assert same is session
                session.execute(statement, {"id": ctx.job_id})
                fail_first(ctx)

    def fail_first(ctx: Context) -> None:
        if ctx.attempt == 1:
            raise RuntimeError("no")

    job = await write.enqueue()
    async with working(hf):
        done = await hf.wait(job, timeout=30)
    assert (done.state, done.attempt) == ("success", 2)
    assert await written(conn, job) == 1


@pytest.mark.parametrize(("driver", "scoped"), [("asyncpg", False), ("psycopg", False), ("asyncpg", True)])
async def test_a_coroutine_brings_its_own_session(
    hf: Holdfast, conn: asyncpg.Connection, database_url: str, driver: str, scoped: bool
) -> None:
    url = database_url.replace("postgresql://", f"postgresql+{driver}://")
    engine = create_async_engine(url, poolclass=sa.NullPool)
    new_session = async_sessionmaker(engine)

    @hf.job("write")
    async def write(ctx: Context) -> None:
        session: Any = async_scoped_session(new_session, asyncio.current_task) if scoped else new_session()
        async with ctx.transaction(session):
            await session.execute(sa.text("insert into public.effects (job_id) values (:id)"), {"id": ctx.job_id})
            await ctx.enqueue("next", conn=session)
        await session.close()

    job = await write.enqueue()
    async with working(hf):
        assert (await hf.wait(job, timeout=30)).state == "success"
    assert await written(conn, job) == 1
    (child,) = await hf.find(types=["next"])
    assert child.parent_id == job.id


async def test_a_connection_inside_another_transaction_is_refused(hf: Holdfast, conn: asyncpg.Connection) -> None:
    refused: list[str] = []

    @hf.job("write", retry=ONCE)
    async def write(ctx: Context) -> None:
        async with conn.transaction():
            try:
                async with ctx.transaction(conn):
                    pass
            except InvalidInput as fault:
                refused.append(str(fault))

    job = await write.enqueue()
    async with working(hf):
        await hf.wait(job, timeout=30)
    assert refused == ["the connection is in a transaction already, which this block could not commit"]


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
        with pytest.raises(HoldfastError, match="no transaction can begin"):
            async with contexts[0].transaction():
                pass

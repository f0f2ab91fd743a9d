"""`ctx.transaction(conn)`: on connections and sessions that a handler brings."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import async_scoped_session, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Session

from holdfast import Context, Fatal, Holdfast, InvalidInput, RetryPolicy, SyncContext
from tests.harness.inprocess import reached, working
from tests.worker.effects import ONCE, written

pytestmark = pytest.mark.usefixtures("effects")


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
    assert [(await hf.get(child)).payload for child in await hf.find(types=["next"])] == [{"attempt": 2}]


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
    assert "already in a transaction" in (done.last_error or "")


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
    assert refused == ["the connection is already in a transaction, which this block could not commit"]


async def _role(conn: Any) -> None:
    await conn.execute("set role holdfast_worker")  # which may complete a job


async def _setting(conn: Any) -> None:
    await conn.execute("set search_path = pg_catalog")


async def _temporary(conn: Any) -> None:
    await conn.execute("create temp table effects (job_id uuid)")


async def _statements(conn: Any) -> None:
    await conn.execute("deallocate all")


async def _codec(conn: Any) -> None:
    await conn.set_type_codec("int4", schema="pg_catalog", encoder=str, decoder=lambda _: "seven", format="text")


async def _logger(conn: Any) -> None:
    conn.add_query_logger(lambda record: OVERHEARD.append(record.query))


OVERHEARD: list[str] = []


@pytest.mark.parametrize("change", [_role, _setting, _temporary, _statements, _codec, _logger])
async def test_what_a_handler_does_to_a_connection_does_not_reach_the_next_one(hf: Holdfast, change: Any) -> None:
    """A connection is used again if it cannot be told from a new one, and ended otherwise."""
    backends: list[int] = []

    async def looks(conn: Any) -> list[Any]:
        backends.append(await conn.fetchval("select pg_backend_pid()"))
        return [
            await conn.fetchval("select current_user = session_user"),
            await conn.fetchval("select 'effects'::regclass = 'public.effects'::regclass"),
            str(await conn.fetchval("select 6 + $1::int4", 1)),
        ]

    @hf.job("work", retry=RetryPolicy(max_attempts=1))
    async def work(ctx: Context) -> None:
        async with ctx.transaction() as mine:
            ctx.result = await looks(mine)
            if ctx.tenant == "first":
                await change(mine)

    async with working(hf, lanes={"fast": 0, "general": 1}):
        await hf.wait(await hf.enqueue("work", tenant="first"), timeout=30)
        OVERHEARD.clear()
        assert (await hf.wait(await hf.enqueue("work", tenant="second"), timeout=30)).result == [True, True, "7"]
    assert OVERHEARD == []
    assert (backends[0] == backends[1]) is (change not in (_codec, _logger))


@pytest.mark.parametrize("way", ["session.rollback", "closed session", "psycopg", "rollback and chain", "ours"])
async def test_a_transaction_that_was_ended_inside_its_block_completes_nothing(
    hf: Holdfast, conn: asyncpg.Connection, database_url: str, way: str
) -> None:
    """What the handler wrote before is gone, so the job is not done either."""
    engine = sa.create_engine(database_url.replace("postgresql://", "postgresql+psycopg://"), poolclass=sa.NullPool)
    insert = "insert into public.effects (job_id) values ('{}')"

    @hf.job("write", retry=ONCE)
    def write(ctx: SyncContext) -> None:
        if way == "ours":
            with ctx.transaction() as mine:
                mine.execute(insert.format(ctx.job_id))
                mine.execute("rollback and chain")
        elif way in ("psycopg", "rollback and chain"):
            with psycopg.connect(database_url) as theirs, ctx.transaction(theirs):
                theirs.execute(insert.format(ctx.job_id))
                if way == "psycopg":
                    theirs.rollback()
                else:
                    theirs.execute("rollback and chain")
        else:
            with Session(engine) as session, ctx.transaction(session):
                session.execute(sa.text(insert.format(ctx.job_id)))
                if way == "closed session":
                    session.close()
                else:
                    session.rollback()

    job = await write.enqueue()
    async with working(hf):
        done = await reached(hf, job, "dead", "success")
    assert (done.state, await written(conn, job)) == ("dead", 0), done.last_error
    assert "ended inside it" in str(done.last_error)


async def test_a_savepoint_inside_the_block_may_be_rolled_back(
    hf: Holdfast, conn: asyncpg.Connection, database_url: str
) -> None:
    @hf.job("write", retry=ONCE)
    def write(ctx: SyncContext) -> None:
        with psycopg.connect(database_url) as mine, ctx.transaction(mine):
            mine.execute("insert into public.effects (job_id) values (%s)", [ctx.job_id])
            try:
                with mine.transaction():
                    mine.execute("select 1 / 0")
            except psycopg.errors.DivisionByZero:
                pass

    job = await write.enqueue()
    async with working(hf):
        await reached(hf, job, "success")
    assert await written(conn, job) == 1

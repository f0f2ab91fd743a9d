"""Jobs recorded on a caller's connection exist if and only if its transaction commits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from typing import Any
from uuid import UUID

import asyncpg
import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from holdfast import Context, Holdfast, InvalidInput, InvalidPayload, KeyConflict, NotFound, SchemaError
from holdfast.lifecycle.portal import immediately
from tests.client.lent import BLOCKING, KINDS, Lent, lend
from tests.harness.inprocess import reached, working

every_kind = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture
async def hf(database_url: str, conn: asyncpg.Connection) -> AsyncIterator[Holdfast]:
    """An app that is open, beside a table of the caller's own."""
    await conn.execute("create table public.notes (text text)")
    app = Holdfast(database_url)

    @app.job("greet")
    async def greet(ctx: Context, name: str) -> str:
        return f"hello {name}"

    async with app:
        yield app


@pytest.fixture
async def lent(kind: str, database_url: str, hf: Holdfast) -> AsyncIterator[Lent]:
    async with lend(kind, database_url) as lent:
        yield lent


async def notes(conn: asyncpg.Connection) -> int:
    found: int = await conn.fetchval("select count(*) from public.notes")
    return found


@every_kind
async def test_a_rollback_leaves_nothing(hf: Holdfast, lent: Lent, conn: asyncpg.Connection) -> None:
    await lent.write()
    ref = await hf.enqueue("greet", {"name": "Ada"}, conn=lent.conn)
    many = await hf.enqueue_many([("greet", {"name": str(n)}) for n in range(3)], conn=lent.conn)
    assert isinstance(ref.id, UUID)
    assert ref.outcome == "created"
    assert len({ref.id, *(r.id for r in many)}) == 4
    await lent.rollback()
    assert await hf.find() == []
    assert await conn.fetchval("select count(*) from holdfast.ready") == 0
    assert await notes(conn) == 0


@every_kind
async def test_a_commit_runs_the_job_and_not_before(hf: Holdfast, lent: Lent, conn: asyncpg.Connection) -> None:
    async with working(hf):
        await lent.write()
        ref = await hf.enqueue("greet", {"name": "Ada"}, conn=lent.conn, priority=3, idempotency_key="k")
        with pytest.raises(NotFound):
            await hf.get(ref)
        assert (await hf.get(ref, conn=lent.conn)).payload == {"name": "Ada"}
        await lent.commit()
        job = await hf.wait(ref, timeout=30)
    assert (job.result, job.priority, job.idempotency_key) == ("hello Ada", 3, "k")
    assert await notes(conn) == 1


@every_kind
async def test_a_refused_payload_leaves_the_transaction_usable(
    hf: Holdfast, lent: Lent, conn: asyncpg.Connection
) -> None:
    await lent.write()
    with pytest.raises(InvalidPayload):
        await hf.enqueue("greet", {"name": []}, conn=lent.conn)
    with pytest.raises(InvalidInput, match="did you mean 'priority'"):
        await hf.enqueue("greet", {"name": "Ada"}, conn=lent.conn, priorty=1)  # type: ignore[call-arg]
    await lent.write()
    await lent.commit()
    assert await notes(conn) == 2


@every_kind
async def test_a_conflicting_key_leaves_the_transaction_usable(
    hf: Holdfast, lent: Lent, conn: asyncpg.Connection
) -> None:
    await hf.enqueue("greet", {"name": "Ada"}, idempotency_key="k")
    await lent.write()
    with pytest.raises(KeyConflict):
        await hf.enqueue("greet", {"name": "Grace"}, conn=lent.conn, idempotency_key="k")
    again = await hf.enqueue("greet", {"name": "Ada"}, conn=lent.conn, idempotency_key="k")
    assert again.existing
    await lent.commit()
    assert await notes(conn) == 1
    assert len(await hf.find()) == 1


@every_kind
async def test_what_the_engine_refuses_aborts_the_transaction_clearly(
    hf: Holdfast, lent: Lent, conn: asyncpg.Connection
) -> None:
    await lent.write()
    with pytest.raises(InvalidInput, match="the transaction is aborted: roll it back"):
        await hf.enqueue("unknown", {"name": "Ada"}, conn=lent.conn, parent="nobody")
    with pytest.raises((asyncpg.PostgresError, psycopg.Error, sa.exc.DBAPIError), match="aborted"):
        await lent.write()
    await lent.rollback()
    assert await notes(conn) == 0


@every_kind
async def test_requests_join_the_transaction_too(hf: Holdfast, lent: Lent, conn: asyncpg.Connection) -> None:
    held = await hf.enqueue("greet", {"name": "Ada"}, hold=True)
    job = await hf.enqueue("unknown", delay=3600)
    await hf.cancel(job, conn=lent.conn, reason="not needed")
    await hf.release(held, conn=lent.conn)
    assert (await hf.get(held)).state == "created"
    assert await conn.fetchval("select count(*) from holdfast.jobs where type = 'holdfast.cancel'") == 0
    await lent.commit()
    async with working(hf):
        await reached(hf, job, "canceled")
        assert (await hf.wait(held, timeout=30)).result == "hello Ada"


def run(work: Awaitable[Any]) -> Any:
    """Run what blocks, without any event loop."""

    async def waited() -> Any:
        return await work

    return immediately(waited())


@pytest.mark.parametrize("kind", BLOCKING)
def test_the_blocking_face_uses_the_connection_in_the_calling_thread(kind: str, database_url: str) -> None:
    app = Holdfast(database_url)
    context = lend(kind, database_url)
    lent = run(context.__aenter__())
    try:
        kept = app.sync.enqueue("greet", {"name": "Ada"}, conn=lent.conn)
        assert app.sync._open is None, "no connection of its own was needed"
        run(lent.commit())
        dropped = app.sync.enqueue("greet", {"name": "Grace"}, conn=lent.conn)
        run(lent.rollback())
    finally:
        run(context.__aexit__(None, None, None))
    with app.sync:
        assert app.sync.get(kept).payload == {"name": "Ada"}
        with pytest.raises(NotFound):
            app.sync.get(dropped)


async def test_a_connection_outside_a_transaction_is_refused(hf: Holdfast, database_url: str) -> None:
    plain = await asyncpg.connect(database_url)
    with pytest.raises(InvalidInput, match="not in a transaction"):
        await hf.enqueue("greet", {"name": "Ada"}, conn=plain)
    await plain.close()
    with psycopg.connect(database_url, autocommit=True) as autocommit:
        with pytest.raises(InvalidInput, match="not in a transaction"):
            await hf.enqueue("greet", {"name": "Ada"}, conn=autocommit)
        with autocommit.transaction():
            await hf.enqueue("greet", {"name": "Ada"}, conn=autocommit)
    engine = sa.create_engine(
        database_url.replace("postgresql://", "postgresql+psycopg://"),
        isolation_level="AUTOCOMMIT",
        poolclass=sa.NullPool,
    )
    with engine.connect() as connection, pytest.raises(InvalidInput, match="not in a transaction"):
        await hf.enqueue("greet", {"name": "Ada"}, conn=connection)
    assert len(await hf.find()) == 1


async def test_an_object_that_is_not_a_connection_is_refused_with_advice(hf: Holdfast, database_url: str) -> None:
    async with asyncpg.create_pool(database_url, min_size=1, max_size=1) as pool:
        with pytest.raises(InvalidInput, match=r"conn= takes a connection .* not asyncpg\.pool\.Pool"):
            await hf.enqueue("greet", {"name": "Ada"}, conn=pool)
    with pytest.raises(InvalidInput, match="needs PostgreSQL"), sa.create_engine("sqlite://").connect() as other:
        await hf.enqueue("greet", {"name": "Ada"}, conn=other)


async def test_an_asyncio_connection_is_refused_by_the_blocking_face(hf: Holdfast, database_url: str) -> None:
    async with lend("asyncpg", database_url) as lent:
        with pytest.raises(InvalidInput, match=r"use `await hf\.enqueue`"):
            hf.sync.enqueue("greet", {"name": "Ada"}, conn=lent.conn)
        await lent.rollback()


async def test_a_login_that_may_only_enqueue_joins_its_own_transaction(
    hf: Holdfast, database_url: str, conn: asyncpg.Connection
) -> None:
    await conn.execute("create role lender login password 'x' in role holdfast_api")
    try:
        theirs = await asyncpg.connect(database_url, user="lender", password="x")
        async with theirs.transaction():
            ref = await hf.enqueue("greet", {"name": "Ada"}, conn=theirs)
        assert (await hf.get(ref)).state == "queued"
        await theirs.close()
    finally:
        await conn.execute("drop role lender")


async def test_a_login_without_rights_is_told_so(hf: Holdfast, database_url: str, conn: asyncpg.Connection) -> None:
    await conn.execute("create role stranger login password 'x'")
    try:
        theirs = await asyncpg.connect(database_url, user="stranger", password="x")
        with pytest.raises(SchemaError, match="lacks a right"):
            async with theirs.transaction():
                await hf.enqueue("greet", {"name": "Ada"}, conn=theirs)
        await theirs.close()
    finally:
        await conn.execute("drop role stranger")


async def test_a_deadlock_stays_the_drivers_own_error(hf: Holdfast, database_url: str) -> None:
    async with lend("asyncpg", database_url) as first, lend("asyncpg", database_url) as second:
        await hf.enqueue("greet", {"name": "a"}, conn=first.conn, idempotency_key="a")
        await hf.enqueue("greet", {"name": "b"}, conn=second.conn, idempotency_key="b")
        await second.conn.execute("set local deadlock_timeout = '10ms'")

        waiting = asyncio.create_task(hf.enqueue("greet", {"name": "b"}, conn=first.conn, idempotency_key="b"))
        with pytest.raises(asyncpg.DeadlockDetectedError):
            await asyncio.gather(waiting, hf.enqueue("greet", {"name": "a"}, conn=second.conn, idempotency_key="a"))
        await asyncio.wait({waiting})
        waiting.exception()
        for lent in (first, second):
            await lent.rollback()


async def test_a_handler_joins_by_its_options(hf: Holdfast, database_url: str) -> None:
    @hf.job("join")
    async def join(ctx: Context, number: int) -> int:
        return number

    async with lend("asyncpg", database_url) as lent:
        ref = await join.options(conn=lent.conn, priority=1).enqueue(number=5)
        await lent.commit()
    assert (await hf.get(ref)).priority == 1


async def test_psycopg_in_a_pipeline_and_with_cursors_of_its_own(hf: Holdfast, database_url: str) -> None:
    with psycopg.connect(database_url, cursor_factory=psycopg.RawCursor) as raw:
        first = await hf.enqueue("greet", {"name": "raw"}, conn=raw)
    with psycopg.connect(database_url) as mine, mine.pipeline():
        second = await hf.enqueue("greet", {"name": "piped"}, conn=mine)
    assert {job.id for job in await hf.find()} == {first.id, second.id}


async def test_asyncpg_with_a_codec_of_its_own(hf: Holdfast, database_url: str) -> None:
    theirs = await asyncpg.connect(database_url)
    await theirs.set_type_codec(
        "uuid", schema="pg_catalog", format="binary", encoder=lambda u: u.bytes, decoder=lambda b: UUID(bytes=b)
    )
    async with theirs.transaction():
        ref = await hf.enqueue("greet", {"name": "Ada"}, conn=theirs)
        assert (await hf.get(ref, conn=theirs)).id == ref.id
    await theirs.close()


async def test_a_session_with_several_databases_is_told_what_to_pass(hf: Holdfast) -> None:
    with Session(binds={}) as session, pytest.raises(InvalidInput, match="bind_arguments"):
        await hf.enqueue("greet", {"name": "Ada"}, conn=session)


async def test_a_connection_that_two_tasks_use_at_once_is_named_as_the_mistake(hf: Holdfast, database_url: str) -> None:
    conn = await asyncpg.connect(database_url)
    try:
        async with conn.transaction():
            answers = await asyncio.gather(
                *(hf.enqueue("greet", {"name": "x"}, conn=conn) for _ in range(3)), return_exceptions=True
            )
            assert sum(isinstance(answer, InvalidInput) for answer in answers) == 2
            assert all("another task" in str(a) for a in answers if isinstance(a, InvalidInput))
            own = asyncio.create_task(conn.execute("select pg_sleep(0.3)"))  # the caller's own statement
            await asyncio.sleep(0.05)
            with pytest.raises(InvalidInput, match="another task"):
                await hf.enqueue("greet", {"name": "x"}, conn=conn)
            await own
            await hf.enqueue("greet", {"name": "one at a time"}, conn=conn)
    finally:
        await conn.close()

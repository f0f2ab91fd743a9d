"""The kinds of connection that callers lend, each behind one face for the tests: begin, use, commit, roll back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import asyncpg
import psycopg
import sqlalchemy as sa
from psycopg.rows import dict_row
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

__all__ = ["BLOCKING", "KINDS", "Lent", "lend"]

NOTE = "insert into public.notes (text) values ('mine')"


class Lent:
    """A connection in an open transaction."""

    def __init__(
        self,
        conn: Any,
        execute: Callable[[str], Awaitable[object]],
        commit: Callable[[], Awaitable[object]],
        rollback: Callable[[], Awaitable[object]],
    ) -> None:
        self.conn, self.execute, self.commit, self.rollback = conn, execute, commit, rollback

    async def write(self) -> None:
        """What the caller does for himself in the same transaction."""
        await self.execute(NOTE)


@asynccontextmanager
async def _asyncpg(url: str) -> AsyncIterator[Lent]:
    conn = await asyncpg.connect(url)
    transaction = conn.transaction()
    await transaction.start()
    yield Lent(conn, conn.execute, transaction.commit, transaction.rollback)
    await conn.close()


@asynccontextmanager
async def _asyncpg_pool(url: str) -> AsyncIterator[Lent]:
    async with asyncpg.create_pool(url, min_size=1, max_size=1) as pool, pool.acquire() as conn:
        transaction = conn.transaction()
        await transaction.start()
        yield Lent(conn, conn.execute, transaction.commit, transaction.rollback)


@asynccontextmanager
async def _psycopg(url: str) -> AsyncIterator[Lent]:
    with psycopg.connect(url, row_factory=dict_row) as conn:
        yield Lent(conn, _later(conn.execute), _later(conn.commit), _later(conn.rollback))


@asynccontextmanager
async def _psycopg_async(url: str) -> AsyncIterator[Lent]:
    async with await psycopg.AsyncConnection.connect(url, row_factory=dict_row) as conn:
        yield Lent(conn, conn.execute, conn.commit, conn.rollback)


def _engine(url: str, driver: str) -> sa.Engine:
    return sa.create_engine(url.replace("postgresql://", f"postgresql+{driver}://"), poolclass=sa.NullPool)


def _core(driver: str) -> Callable[[str], AbstractAsyncContextManager[Lent]]:
    @asynccontextmanager
    async def lend(url: str) -> AsyncIterator[Lent]:
        with _engine(url, driver).connect() as conn:
            yield Lent(
                conn, _later(lambda text: conn.execute(sa.text(text))), _later(conn.commit), _later(conn.rollback)
            )

    return lend


def _orm(driver: str) -> Callable[[str], AbstractAsyncContextManager[Lent]]:
    @asynccontextmanager
    async def lend(url: str) -> AsyncIterator[Lent]:
        with Session(_engine(url, driver)) as session:
            yield Lent(
                session,
                _later(lambda text: session.execute(sa.text(text))),
                _later(session.commit),
                _later(session.rollback),
            )

    return lend


@asynccontextmanager
async def _scoped(url: str) -> AsyncIterator[Lent]:
    session = scoped_session(sessionmaker(_engine(url, "psycopg")))
    yield Lent(
        session, _later(lambda text: session.execute(sa.text(text))), _later(session.commit), _later(session.rollback)
    )
    session.remove()


def _core_async(driver: str) -> Callable[[str], AbstractAsyncContextManager[Lent]]:
    @asynccontextmanager
    async def lend(url: str) -> AsyncIterator[Lent]:
        engine = create_async_engine(_engine(url, driver).url, poolclass=sa.NullPool)
        async with engine.connect() as conn:
            yield Lent(conn, lambda text: conn.execute(sa.text(text)), conn.commit, conn.rollback)

    return lend


def _orm_async(driver: str) -> Callable[[str], AbstractAsyncContextManager[Lent]]:
    @asynccontextmanager
    async def lend(url: str) -> AsyncIterator[Lent]:
        engine = create_async_engine(_engine(url, driver).url, poolclass=sa.NullPool)
        async with AsyncSession(engine) as session:
            yield Lent(session, lambda text: session.execute(sa.text(text)), session.commit, session.rollback)

    return lend


@asynccontextmanager
async def _scoped_async(url: str) -> AsyncIterator[Lent]:
    engine = create_async_engine(_engine(url, "asyncpg").url, poolclass=sa.NullPool)
    session = async_scoped_session(async_sessionmaker(engine), asyncio.current_task)
    yield Lent(session, lambda text: session.execute(sa.text(text)), session.commit, session.rollback)
    await session.remove()


def _later(call: Callable[..., object]) -> Callable[..., Awaitable[object]]:
    """A blocking call with the face of a coroutine."""

    async def later(*arguments: object) -> object:
        return call(*arguments)

    return later


BLOCKING: dict[str, Callable[[str], AbstractAsyncContextManager[Lent]]] = {
    "psycopg": _psycopg,
    "sqlalchemy-core": _core("psycopg"),
    "sqlalchemy-core-psycopg2": _core("psycopg2"),
    "sqlalchemy-orm": _orm("psycopg"),
    "sqlalchemy-scoped": _scoped,
}
KINDS = BLOCKING | {
    "asyncpg": _asyncpg,
    "asyncpg-pool": _asyncpg_pool,
    "psycopg-async": _psycopg_async,
    "sqlalchemy-core-asyncpg": _core_async("asyncpg"),
    "sqlalchemy-core-psycopg-async": _core_async("psycopg"),
    "sqlalchemy-orm-asyncpg": _orm_async("asyncpg"),
    "sqlalchemy-orm-psycopg-async": _orm_async("psycopg"),
    "sqlalchemy-scoped-asyncpg": _scoped_async,
}


def lend(kind: str, url: str) -> AbstractAsyncContextManager[Lent]:
    """A connection of that kind, in an open transaction."""
    return KINDS[kind](url)

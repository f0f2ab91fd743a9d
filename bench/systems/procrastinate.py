"""Procrastinate, on psycopg 3 with its C accelerator, notified of new jobs, every job kept as is its default.

Workers and producers bring their own pool, as its guide allows, of autocommitting connections that are not checked
at every use: all its calls are single statements, and the pool it makes by default spends three more round trips on
each, and with them a third to a half of the throughput. Pools of 2, 5, 10 and 20 hardly differ; 10 is its default.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterator

from procrastinate import App, PsycopgConnector, SyncPsycopgConnector
from psycopg import AsyncConnection, Connection
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from bench.tally import note

logging.getLogger("procrastinate").setLevel(logging.WARNING)


async def _noop(text: str) -> None:
    note(text)


_app = App(connector=PsycopgConnector())
_task = _app.task(name="noop")(_noop)


class _Client:
    async def one(self, text: str) -> None:
        await _task.defer_async(text=text)

    async def many(self, texts: list[str]) -> None:
        await _task.batch_defer_async(*({"text": text} for text in texts))


async def prepare(url: str) -> None:
    """`procrastinate schema --apply`."""
    async with _opened(url):
        await _app.schema_manager.apply_schema_async()


@contextlib.asynccontextmanager
async def client(url: str) -> AsyncIterator[_Client]:
    """An open app."""
    async with _opened(url):
        yield _Client()


@contextlib.contextmanager
def blocking(url: str) -> Iterator[Callable[[str], object]]:
    """An open app of blocking code, with a pool alike."""
    app = App(connector=SyncPsycopgConnector())
    task = app.task(name="noop")(_noop)
    pool = ConnectionPool(url, min_size=10, max_size=10, configure=_autocommit_blocking, open=False)
    with pool, app.open(pool):
        pool.wait()
        yield lambda text: task.defer(text=text)


def work(url: str, concurrency: int) -> None:
    """`procrastinate worker`."""
    asyncio.run(_work(url, concurrency))


async def unfinished(url: str) -> int:
    """Jobs to do and jobs being done; the worker sets each to succeeded when it has ended."""
    async with await AsyncConnection.connect(url) as conn:
        found = await conn.execute("select count(*) from procrastinate_jobs where status in ('todo', 'doing')")
        return int((await found.fetchone() or (0,))[0])


async def _work(url: str, concurrency: int) -> None:
    async with _opened(url):
        await _app.run_worker_async(concurrency=concurrency, listen_notify=True)


@contextlib.asynccontextmanager
async def _opened(url: str) -> AsyncIterator[None]:
    pool = AsyncConnectionPool(url, min_size=10, max_size=10, configure=_autocommit, open=False)
    async with pool, _app.open_async(pool):
        await pool.wait()
        yield


async def _autocommit(conn: AsyncConnection) -> None:
    await conn.set_autocommit(True)


def _autocommit_blocking(conn: Connection) -> None:
    conn.autocommit = True

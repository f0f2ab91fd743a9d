"""PgQueuer, on asyncpg and uvloop, tables all logged and vacuumed as its tuning guide says.

The worker has one connection of its own, as the guide advises, and claims half of the concurrency at a time, the
most it allows with that cap (`bench.systems.pgqueuer_1000` has another): smaller batches, a pool, and several managers
in the process (as in its own benchmark) were slower, and no cap on running jobs was no faster. Producers have a pool,
as the guide advises; its connections are not reset after each use, which would cost a round trip per job. Threads have
a connection of psycopg each. Finished jobs move to the log.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import threading
from collections.abc import AsyncIterator, Callable, Iterator

import asyncpg
import psycopg
import uvloop
from pgqueuer import AsyncpgDriver, AsyncpgPoolDriver, Job, PgQueuer, Queries
from pgqueuer.db import SyncPsycopgDriver
from pgqueuer.queries import SyncQueries

from bench.tally import note

asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
logging.getLogger("pgqueuer").setLevel(logging.WARNING)


class _Client:
    def __init__(self, queries: Queries) -> None:
        self._queries = queries

    async def one(self, text: str) -> None:
        await self._queries.enqueue("noop", text.encode())

    async def many(self, texts: list[str]) -> None:
        await self._queries.enqueue(["noop"] * len(texts), [text.encode() for text in texts], [0] * len(texts))


async def prepare(url: str) -> None:
    """`pgq install` and `pgq autovac`."""
    async with _connected(url) as conn:
        queries = Queries(AsyncpgDriver(conn))
        await queries.install()
        await queries.optimize_autovacuum()


@contextlib.asynccontextmanager
async def client(url: str) -> AsyncIterator[_Client]:
    """A producer with a pool."""
    async with asyncpg.create_pool(url, min_size=5, max_size=20, reset=_leave_as_is) as pool:
        yield _Client(Queries(AsyncpgPoolDriver(pool)))


@contextlib.contextmanager
def blocking(url: str) -> Iterator[Callable[[str], object]]:
    """A connection for each thread."""
    own, connections = threading.local(), list[psycopg.Connection]()

    def enqueue(text: str) -> None:
        if not hasattr(own, "queries"):
            connections.append(psycopg.connect(url, autocommit=True))
            own.queries = SyncQueries(SyncPsycopgDriver(connections[-1]))
        own.queries.enqueue("noop", text.encode())

    yield enqueue
    for conn in connections:
        conn.close()


def work(url: str, concurrency: int) -> None:
    """One manager, as `pgq run` has it."""
    asyncio.run(work_in_batches(url, concurrency // 2))


async def unfinished(url: str) -> int:
    """All rows of the queue, whatever their status; what has ended is deleted from it."""
    async with _connected(url) as conn:
        return sum(row.count for row in await Queries(AsyncpgDriver(conn)).queue_size())


async def _noop(job: Job) -> None:
    note((job.payload or b"").decode())


async def work_in_batches(url: str, batch: int) -> None:
    """Run until SIGTERM, with twice as many handlers at a time as are claimed at once."""
    async with _connected(url) as conn:
        manager = PgQueuer(AsyncpgDriver(conn))
        manager.entrypoint("noop")(_noop)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, manager.shutdown.set)
        await manager.run(batch_size=batch, max_concurrent_tasks=2 * batch)


@contextlib.asynccontextmanager
async def _connected(url: str) -> AsyncIterator[asyncpg.Connection]:
    conn = await asyncpg.connect(url)
    try:
        yield conn
    finally:
        await conn.close()


async def _leave_as_is(conn: asyncpg.Connection) -> None:
    """In place of the queries by which a pool resets a connection: producers change nothing in it."""

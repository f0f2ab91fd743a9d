"""Transactions in which a handler writes and its job ends, so that both commit or neither.

They run on connections in the login's own role, because the engine's roles may not touch the app's tables, or on a
connection that the handler brings. The job's completion is the last statement before the commit, and it is fenced: if
the attempt does not own the job any more, the whole transaction is rolled back. So it is if the block's own transaction
has ended before: a handler that rolls back inside the block leaves another one behind, without its writes.

Nothing that a handler does with one of our connections affects the next handler (`clean`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from typing import Any
from uuid import UUID, uuid4

import asyncpg

from holdfast.config import Config
from holdfast.errors import DatabaseUnavailable, HoldfastError, LeaseLost
from holdfast.store.clean import CleanConnection
from holdfast.store.confirmation import Confirmation, unconfirmed
from holdfast.store.database import connection_arguments
from holdfast.store.disk import DiskWatch
from holdfast.store.faults import CONNECTION_FAULTS, translated
from holdfast.store.foreign import Foreign
from holdfast.store.lenders import lender_of
from holdfast.store.servers import open_connection

__all__ = ["Transactions"]

_IDLE_SECONDS, _ROLLBACK_SECONDS = 30.0, 5.0
#: How long the answer to a commit is waited for. Then the connection is cut, and settling tells what became of it.
_COMMIT_SECONDS = 30.0


class Transactions:
    """The transactions of one worker's handlers. Connections are opened when one is needed."""

    def __init__(self, config: Config, worker: str, size: int) -> None:
        self._config, self._worker, self._size = config, worker, size
        #: The maximal size of a result, as far as it is known here; the engine decides.
        self.result_limit: Callable[[], int] = lambda: config.result_max_bytes
        self._pool: asyncpg.Pool | None = None
        #: The loop in which transactions begin; in a child process, the loop of the first one.
        self._loop: asyncio.AbstractEventLoop | None = None
        with suppress(RuntimeError):
            self._loop = asyncio.get_running_loop()
        self._opening = asyncio.Lock()
        self._confirmation, self._disk = Confirmation(), DiskWatch(config)

    @asynccontextmanager
    async def begin(self, conn: Any = None) -> AsyncIterator[Any]:
        """A connection (the given one, or one of ours) in a transaction that the end of the block commits."""
        if conn is not None:
            async with lender_of(conn).transaction(conn):
                yield conn
            return
        if self._loop not in (None, asyncio.get_running_loop()):
            raise HoldfastError("a transaction begins in the worker's event loop, and this is another one")
        pool = await self._opened()
        try:
            ours: Any = await pool.acquire(timeout=30)
        except (*CONNECTION_FAULTS, asyncpg.PostgresError) as fault:
            raise translated(fault) from fault
        self._confirmation.listen(ours)
        try:
            async with _committed(ours):
                yield ours
            if self._confirmation.missing(ours):
                raise unconfirmed()
        except (asyncpg.InterfaceError, asyncpg.InternalClientError) as fault:
            if _is_cut(ours):
                raise translated(fault) from fault
            raise
        finally:
            # A connection that was cut has left the pool already; the fate of the transaction is known by now.
            with suppress(*CONNECTION_FAULTS, asyncpg.PostgresError):
                self._confirmation.leave(ours)
                if ours.changed:
                    ours.terminate()
                await pool.release(ours, timeout=_ROLLBACK_SECONDS)

    async def mark(self, conn: Any) -> str:
        """Mark the transaction that has begun, to tell it from others. Returns the mark."""
        mark = uuid4().hex
        await Foreign(conn, self._config.schema, self._disk).rows("mark_transaction", mark)
        return mark

    async def complete(
        self,
        conn: Any,
        job_id: UUID,
        attempt: int,
        *,
        mark: str,
        result: str | None,
        duration_ms: int,
        excerpt: str | None,
    ) -> None:
        """End the job within the transaction. Raises LeaseLost if another worker has the job by now."""
        await lender_of(conn).flush(conn)
        rows = await Foreign(conn, self._config.schema, self._disk).rows(
            "complete_and_commit",
            self._worker,
            [job_id],
            [attempt],
            None if result is None else [result],
            [duration_ms],
            None if excerpt is None else [excerpt],
            mark,
        )
        if not rows:
            raise HoldfastError(
                "the transaction of this block was ended inside it, by a rollback, a commit or a closed session: the "
                "writes before that do not belong to the job, so nothing is committed; leave the end to the block, and "
                "use a savepoint for what may fail"
            )
        if [row["state"] for row in rows] != ["success"]:
            raise LeaseLost(f"attempt {attempt} of job {job_id} no longer owns it; nothing was committed")

    async def close(self) -> None:
        """Close the connections; open transactions are cut after a moment, and so rolled back."""
        pool, self._pool = self._pool, None
        if pool is not None:
            try:
                await asyncio.wait_for(pool.close(), 5)
            except CONNECTION_FAULTS:
                pool.terminate()

    async def _opened(self) -> asyncpg.Pool:
        async with self._opening:
            if self._pool is None:
                arguments = connection_arguments(self._config, role=None, name="holdfast transaction", direct=False)
                try:
                    self._pool = await asyncpg.create_pool(
                        connect=partial(_connect, arguments),
                        min_size=0,
                        max_size=self._size,
                        max_inactive_connection_lifetime=_IDLE_SECONDS,
                    )
                except (*CONNECTION_FAULTS, asyncpg.PostgresError) as fault:
                    raise translated(fault) from fault
            if self._pool is None:
                raise DatabaseUnavailable("the pool of transactions could not be opened")
            return self._pool


@asynccontextmanager
async def _committed(conn: Any) -> AsyncIterator[None]:
    """A transaction for the length of a block. A rollback that fails hides no error: the server rolls back itself."""
    # With a snapshot for the whole transaction, a lease that was renewed meanwhile could not be settled any more.
    transaction = conn.transaction(isolation="read_committed")
    with _told():
        await transaction.start()
    try:
        yield
    except BaseException:
        try:
            async with asyncio.timeout(_ROLLBACK_SECONDS):
                await transaction.rollback()
        except (*CONNECTION_FAULTS, asyncpg.PostgresError):
            _cut(conn)
        raise
    # An answer that is lost never comes. The commit is not canceled, which could take its durability from it.
    overdue = asyncio.get_running_loop().call_later(_COMMIT_SECONDS, _cut, conn)
    try:
        with _told():
            await transaction.commit()
    finally:
        overdue.cancel()


def _cut(conn: Any) -> None:
    with suppress(asyncpg.InterfaceError):  # it has left the pool
        conn.terminate()


def _is_cut(conn: Any) -> bool:
    try:
        return bool(conn.is_closed())
    except asyncpg.InterfaceError:
        return True  # it has left the pool


@contextmanager
def _told() -> Iterator[None]:
    """Translate the error of a cut connection; errors of the server (a constraint) stay the driver's."""
    try:
        yield
    except CONNECTION_FAULTS as fault:
        raise translated(fault) from fault


async def _connect(arguments: Mapping[str, Any], *_: Any, **__: Any) -> asyncpg.Connection:
    return await open_connection({**arguments, "connection_class": CleanConnection})

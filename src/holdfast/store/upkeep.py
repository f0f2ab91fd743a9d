"""The connections of maintenance: separate, few, and enough that nobody waits behind a slow statement.

Normally one is enough: a caller waits a moment for the connection in use. Only if it does not come back is another one
made, and it is ended when it has not been needed for a while.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any

import asyncpg

from holdfast.config import Config
from holdfast.errors import DatabaseBusy, NotOpen
from holdfast.store.connections import Connections
from holdfast.store.database import Database, connection_arguments
from holdfast.store.faults import CONNECTION_FAULTS, REPEATABLE, never_sent, translated

__all__ = ["Limited", "UpkeepDatabase"]

_REPEATS = 3
_GROW_AFTER_SECONDS = 0.05
_KEPT_SECONDS = 30.0
#: Time limits in the server, in case the client is gone: longer than any time limit of a duty.
_SESSION = {
    "statement_timeout": "20s",
    "lock_timeout": "4s",
    "idle_in_transaction_session_timeout": "20s",
    "idle_session_timeout": "0",
}
#: A statement was ended because it took too long, or because of locks of others.
_STRUCK = (TimeoutError, asyncpg.QueryCanceledError, asyncpg.LockNotAvailableError)


class UpkeepDatabase(Database):
    """A pool for maintenance, whose statements have time limits."""

    def __init__(self, config: Config, *, size: int) -> None:
        super().__init__(config, role="worker", size=size)

    async def open(self) -> None:
        """Be ready to connect; the code that opened the app has checked the schema."""
        self._loop = asyncio.get_running_loop()
        arguments = connection_arguments(self.config, role=self.role, name="holdfast maintenance", direct=False)
        if arguments["server_settings"]:
            arguments["server_settings"] |= _SESSION
        self._connections = Connections(
            arguments, self._size, grow_after=_GROW_AFTER_SECONDS, kept_seconds=_KEPT_SECONDS
        )

    def within(self, seconds: float) -> Limited:
        """The same database, for statements that are ended after this time, here and in the server."""
        return Limited(self, seconds)

    @property
    def connections(self) -> Connections:
        """The pool, while it is open."""
        if self._connections is None:
            raise NotOpen("maintenance has stopped")
        return self._connections

    def text(self, statement: str) -> str:
        """The SQL of a named statement."""
        return self._sql[statement]


class Limited:
    """Named statements with a time limit."""

    #: Whether the server is executing a statement. While this only waits for a connection, nothing has begun.
    under_way = False

    def __init__(self, database: UpkeepDatabase, seconds: float) -> None:
        self._database, self._seconds = database, seconds

    async def rows(self, statement: str, *arguments: Any) -> list[asyncpg.Record]:
        """The rows of a named statement."""
        return await self._run("fetch", statement, arguments)  # type: ignore[no-any-return]

    async def row(self, statement: str, *arguments: Any) -> Any:
        """The first row of a named statement."""
        return await self._run("fetchrow", statement, arguments)

    async def value(self, statement: str, *arguments: Any) -> Any:
        """The first value of the first row of a named statement."""
        return await self._run("fetchval", statement, arguments)

    async def _run(self, method: str, statement: str, arguments: Sequence[Any]) -> Any:
        """Run one statement. Raises DatabaseBusy if its time was over."""
        seconds, sql = self._seconds, self._database.text(statement)
        for repeat in range(_REPEATS):
            connections = self._database.connections
            try:
                conn = await connections.take(seconds)
            except (*CONNECTION_FAULTS, asyncpg.PostgresError) as fault:
                raise translated(fault) from fault
            self.under_way = True
            try:
                return await getattr(conn, method)(sql, *arguments, timeout=seconds)
            except _STRUCK as fault:
                if isinstance(fault, TimeoutError):
                    connections.drop(conn)
                what = str(fault) or f"it took longer than {seconds:g} s"
                raise DatabaseBusy(f"{statement} was not done: {what}") from fault
            except REPEATABLE as fault:
                if repeat == _REPEATS - 1:
                    raise translated(fault) from fault
                pause = random.uniform(0, 0.02 * 2**repeat)  # noqa: S311 - jitter is no secret
            except (*CONNECTION_FAULTS, asyncpg.PostgresError) as fault:
                if isinstance(fault, asyncpg.ReadOnlySQLTransactionError):
                    connections.doubt(conn)
                elif isinstance(fault, CONNECTION_FAULTS):
                    connections.drop(conn)
                if not never_sent(fault) or repeat == _REPEATS - 1:
                    raise translated(fault) from fault
                pause = 0.0
            except asyncio.CancelledError:
                connections.drop(conn)
                raise
            finally:
                self.under_way = False
                connections.give(conn)
            await asyncio.sleep(pause)
        raise AssertionError("unreachable")

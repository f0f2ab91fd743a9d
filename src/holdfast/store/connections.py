"""A few connections, made when needed and lent to one statement at a time.

asyncpg's own pool is made for lending connections to foreign code: it wraps each one, resets it afterwards with a
second round trip, and gives it back in a task of its own. Our statements are single ones and leave nothing
behind, and for a single enqueue all that would cost about as much as the enqueue.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Mapping
from typing import Any

import asyncpg

from holdfast.errors import NotOpen

__all__ = ["Connections"]

#: How long a connection is kept that nobody needs, and how long one is waited for.
KEPT_SECONDS = 300.0
WAIT_SECONDS = 30.0


class Connections:
    """At most `size` connections, all with the same arguments; the one used last is used first."""

    def __init__(
        self,
        arguments: Mapping[str, Any],
        size: int,
        *,
        grow_after: float = 0.0,
        kept_seconds: float = KEPT_SECONDS,
    ) -> None:
        """With `grow_after`, a caller waits that many seconds for a connection in use before one more is made."""
        self._arguments, self._size = arguments, size
        self._grow_after, self._kept_seconds = grow_after, kept_seconds
        self._idle: list[tuple[asyncpg.Connection, float]] = []
        self._lent: set[asyncpg.Connection] = set()
        self._coming = 0
        self._waiting: deque[asyncio.Future[asyncpg.Connection | None]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        self._all_back = asyncio.Event()

    async def take(self) -> asyncpg.Connection:
        """A connection to be given back; a new one if there may be one more, else whichever is given back first.

        TimeoutError if none is for half a minute: that many statements are under way, or connecting hangs.
        """
        deadline: float | None = None
        patient = self._grow_after > 0
        while not self._closed:
            while self._idle:
                conn, _ = self._idle.pop()
                if not conn.is_closed():
                    self._lent.add(conn)
                    return conn
            if patient and (self._lent or self._coming):
                patient = False
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._grow_after):
                        handed = await self._turn()
                    if handed is not None:
                        return handed
                continue
            if len(self._lent) + self._coming < self._size:
                return await self._connect()
            deadline = deadline or asyncio.get_running_loop().time() + WAIT_SECONDS
            async with asyncio.timeout_at(deadline):
                handed = await self._turn()
            if handed is not None:
                return handed
        raise NotOpen("the app was closed")

    def give(self, conn: asyncpg.Connection) -> None:
        """It is not needed any more. One that is broken is forgotten."""
        self._lent.discard(conn)
        if self._closed:
            conn.terminate()
            if not self._lent:
                self._all_back.set()
        elif conn.is_closed():
            self._hand_on(None)
        elif not self._hand_on(conn):
            self._idle.append((conn, time.monotonic()))
            if self._timer is None:
                self._timer = asyncio.get_running_loop().call_later(self._kept_seconds, self._trim)

    async def close(self, patience: float) -> None:
        """End all connections; those that are lent are waited for, for so many seconds, and then cut."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(None)
        idle, self._idle = [conn for conn, _ in self._idle], []
        try:
            async with asyncio.timeout(patience):
                for conn in idle:
                    with contextlib.suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
                        await conn.close()
                if self._lent:
                    await self._all_back.wait()
        except TimeoutError:
            pass
        finally:
            for conn in [*self._lent, *idle]:
                conn.terminate()

    async def _connect(self) -> asyncpg.Connection:
        self._coming += 1
        try:
            conn: asyncpg.Connection = await asyncpg.connect(**self._arguments)
        except BaseException:
            self._coming -= 1
            self._hand_on(None)
            raise
        self._coming -= 1
        self._lent.add(conn)
        if self._closed:
            self.give(conn)
            raise NotOpen("the app was closed")
        return conn

    async def _turn(self) -> asyncpg.Connection | None:
        """Wait for what is given back: a connection, or the right to look again."""
        waiting: asyncio.Future[asyncpg.Connection | None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        try:
            return await waiting
        except asyncio.CancelledError:
            if waiting.done() and not waiting.cancelled():
                handed = waiting.result()
                if handed is not None:
                    self.give(handed)
                else:
                    self._hand_on(None)
            raise

    def _hand_on(self, conn: asyncpg.Connection | None) -> bool:
        """Give it to whoever has waited longest; False if nobody waits."""
        while self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.done():
                if conn is not None:
                    self._lent.add(conn)
                waiting.set_result(conn)
                return True
        return False

    def _trim(self) -> None:
        """End what nobody has needed for long."""
        self._timer = None
        oldest = time.monotonic() - self._kept_seconds
        for conn, since in self._idle:
            if since <= oldest:
                conn.terminate()
        self._idle = [(conn, since) for conn, since in self._idle if not conn.is_closed()]
        if self._idle:
            wait = self._idle[0][1] - oldest
            self._timer = asyncio.get_running_loop().call_later(max(0.1, wait), self._trim)

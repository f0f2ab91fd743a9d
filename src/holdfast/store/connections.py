"""A few connections, made when needed and lent to one statement at a time.

asyncpg's own pool is made for lending connections to foreign code: it wraps each one, resets it afterwards with a
second round trip, and gives it back in a separate task. We send single statements that leave nothing behind, and for a
single enqueue all this would cost about as much as the enqueue. Rules:

1. A connection is lent to one statement at a time, and comes back once: whole (`give`), or given up (`drop`).
2. A dropped connection keeps its place until the server has confirmed that its statement has ended, for two seconds at
   most. Statements that the server did not confirm are counted for a minute. There may be at most two of them for each
   place.
3. A connection on which a write was refused may lead to a server that is not the primary any more: all connections that
   are older than a few seconds are replaced. If a new one is refused too, the server itself is read-only: it is kept.
4. Tenants take turns: the statements of one tenant wait only for each other. One of the connections is for the others.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Mapping
from typing import Any

import asyncpg

from holdfast.errors import DatabaseUnavailable, NotOpen
from holdfast.lifecycle.waiters import Waiters
from holdfast.model.provenance import speaker
from holdfast.store.confirmation import Confirmation
from holdfast.store.servers import CONNECT_SECONDS, open_connection, retire

__all__ = ["Connections"]

#: How long an unused connection is kept, and how long to wait for one.
KEPT_SECONDS = 300.0
WAIT_SECONDS = 30.0
#: How long an adopted connection waits for its first statement.
_ADOPTED_SECONDS = 5.0
#: How old a connection must be for its server to be in doubt when it refuses a write.
DOUBT_SECONDS = 5.0
#: How long an abandoned statement that may still run in the server is counted.
_GHOST_SECONDS = 60.0
#: How long to wait for a server that does not answer when nothing is under way any more.
_HANG_UP_SECONDS = 1.0


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
        #: The connections that are lent, and to which party.
        self._lent: dict[asyncpg.Connection, str] = {}
        #: When each was made; those made before `_doubted` are in doubt.
        self._made: dict[asyncpg.Connection, float] = {}
        self._doubted = float("-inf")
        self.confirmation = Confirmation()
        self._coming = 0
        self._retiring: set[asyncio.Task[None]] = set()
        self._ghosts: deque[float] = deque()
        self._waiting = Waiters[asyncpg.Connection | None]()
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        self._all_back = asyncio.Event()

    async def take(self, seconds: float | None = None) -> asyncpg.Connection:
        """Lend a connection: a new one if there may be one more, otherwise the first one that is given back.

        Raises DatabaseUnavailable if there is none in time: too many statements are under way, or connecting fails.
        """
        end: float | None = None
        patient = self._grow_after > 0
        party = speaker.get()
        while not self._closed:
            may = self._may(party)
            while may and self._idle:
                conn, _ = self._idle.pop()
                if not conn.is_closed():
                    self._lent[conn] = party
                    return conn
                del self._made[conn]
            now = time.monotonic()
            end = end or now + (seconds or WAIT_SECONDS)
            if patient and (self._lent or self._coming):
                patient = False
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(min(self._grow_after, end - now)):
                        handed = await self._turn(party)
                    if handed is not None:
                        return handed
                continue
            if may and now < end and len(self._lent) + self._coming + len(self._retiring) < self._size:
                try:
                    return await self._connect(party, end - now)
                except DatabaseUnavailable as fault:
                    if fault.reason != "connections" or not (self._lent or self._idle):
                        raise  # else the server has no connection left, but we have some
                    if self._idle:
                        continue  # one was given back while we tried
            try:
                async with asyncio.timeout(end - time.monotonic()):
                    handed = await self._turn(party)
            except TimeoutError:
                told = f"no connection to PostgreSQL was free for {end - now:.1f} s: {self._use(party)}"
                raise DatabaseUnavailable(told, reason="slow") from None
            if handed is not None:
                return handed
        raise NotOpen("the app was closed")

    def adopt(self, conn: asyncpg.Connection) -> None:
        """Take over a connection with the same arguments, for the first statement if that comes soon."""
        self._enter(conn)
        self._idle.append((conn, time.monotonic() - self._kept_seconds + _ADOPTED_SECONDS))
        self._timer = asyncio.get_running_loop().call_later(_ADOPTED_SECONDS, self._trim)

    def give(self, conn: asyncpg.Connection) -> None:
        """Return a connection. A broken one is forgotten; for a dropped one this does nothing."""
        if conn not in self._lent:
            return
        del self._lent[conn]
        if self._closed or self._made[conn] < self._doubted:
            conn.terminate()
        if conn.is_closed():
            del self._made[conn]
            self._leave_place()
        elif not self._hand_on(conn):
            self._idle.append((conn, time.monotonic()))
            if self._timer is None:
                self._timer = asyncio.get_running_loop().call_later(self._kept_seconds, self._trim)

    def drop(self, conn: asyncpg.Connection) -> None:
        """End a connection, in the server too: its statement was given up, or its state is unknown."""
        del self._lent[conn]
        del self._made[conn]
        if self._closed or conn.is_closed():
            conn.terminate()
            self._leave_place()
            return
        task = asyncio.get_running_loop().create_task(self._retire(conn), name="retire")
        self._retiring.add(task)
        task.add_done_callback(self._retired)

    def doubt(self, conn: asyncpg.Connection) -> bool:
        """Doubt a connection on which a write was refused: unless it is new, its server may no longer be the primary.

        Returns whether others are made instead, so that another try makes sense.
        """
        now = time.monotonic()
        if now - self._made[conn] < DOUBT_SECONDS:
            return False
        self._doubted = now
        for idle, _ in self._idle:
            idle.terminate()
        return True

    async def close(self, patience: float) -> None:
        """End all connections; those that are lent are waited for, for `patience` seconds, and then cut."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(None)
        idle, self._idle = [conn for conn, _ in self._idle], []
        ending = {*self._retiring, *(asyncio.create_task(_end(conn)) for conn in idle)}
        try:
            if ending:
                await asyncio.wait(ending, timeout=min(patience, _HANG_UP_SECONDS))
            if self._lent:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(patience):
                        await self._all_back.wait()
        finally:
            for task in ending:
                task.cancel()
            for conn in [*self._lent, *idle]:
                conn.terminate()

    async def _connect(self, party: str, seconds: float) -> asyncpg.Connection:
        self._refuse_more_ghosts()
        self._coming += 1
        try:
            conn = await open_connection(self._arguments, min(seconds, CONNECT_SECONDS))
        except BaseException:
            self._coming -= 1
            self._hand_on(None)
            raise
        self._coming -= 1
        self._enter(conn)
        self._lent[conn] = party
        if self._closed:
            self.give(conn)
            raise NotOpen("the app was closed")
        return conn

    def _enter(self, conn: asyncpg.Connection) -> None:
        """Register a new connection: its age, and a listener for unconfirmed commits."""
        self.confirmation.listen(conn)
        self._made[conn] = time.monotonic()

    async def _retire(self, conn: asyncpg.Connection) -> None:
        if not await retire(conn):
            self._ghosts.append(time.monotonic())

    def _retired(self, task: asyncio.Task[None]) -> None:
        self._retiring.discard(task)
        self._leave_place()

    def _refuse_more_ghosts(self) -> None:
        """Refuse to connect if too many abandoned statements may still run: they must not fill the server."""
        while self._ghosts and self._ghosts[0] < time.monotonic() - _GHOST_SECONDS:
            self._ghosts.popleft()
        if len(self._ghosts) >= 2 * self._size:
            told = f"{len(self._ghosts)} statements that were given up may still run in PostgreSQL; no more are sent"
            raise DatabaseUnavailable(told, reason="slow")

    @property
    def _share(self) -> int:
        """How many connections one tenant may have."""
        return max(1, self._size - 1)

    def _may(self, party: str) -> bool:
        """Whether a party may have one more connection."""
        return not party or sum(one == party for one in self._lent.values()) < self._share

    def _use(self, party: str) -> str:
        """Why a party has to wait."""
        if self._may(party):
            return f"{self._size} are in use"
        return f"one tenant may use {self._share} of {self._size}, and {party} uses as many"

    async def _turn(self, party: str) -> asyncpg.Connection | None:
        """Wait until something is given back: a connection, or (None) the right to look again."""
        waiting = self._waiting.join(party)
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

    def _leave_place(self) -> None:
        """Free a place: there may be one connection more."""
        if not self._closed:
            self._hand_on(None)
        elif not self._lent:
            self._all_back.set()

    def _hand_on(self, conn: asyncpg.Connection | None) -> bool:
        """Pass it to the party whose turn it is; False if nobody waits."""
        turn = self._waiting.next(self._may)
        if turn is None:
            return False
        party, waiting = turn
        if conn is not None:
            self._lent[conn] = party
        waiting.set_result(conn)
        return True

    def _trim(self) -> None:
        """End connections that nobody has needed for long."""
        self._timer = None
        oldest = time.monotonic() - self._kept_seconds
        for conn, since in self._idle:
            if since <= oldest:
                conn.terminate()
        for conn, _ in self._idle:
            if conn.is_closed():
                del self._made[conn]
        self._idle = [(conn, since) for conn, since in self._idle if not conn.is_closed()]
        if self._idle:
            wait = self._idle[0][1] - oldest
            self._timer = asyncio.get_running_loop().call_later(max(0.1, wait), self._trim)


async def _end(conn: asyncpg.Connection) -> None:
    with contextlib.suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
        await conn.close()

"""Clients that go away while nothing is read from them: the event loop only reports the end of a connection it reads.

A connection is not read while requests wait in line, or while a body waits for its route. A wait or a stream under way
would keep its place for up to a minute. So connections that were not read for a second are checked every second.
"""

from __future__ import annotations

import asyncio
import select
from typing import Any

__all__ = ["HangUps"]

_EVERY_SECONDS = 1.0
#: The client sends no more; that it is gone altogether is reported without being asked for. Not every system has it.
_ENDED = getattr(select, "POLLRDHUP", 0)


class HangUps:
    """The connections that are not read from."""

    def __init__(self) -> None:
        self._unread: dict[asyncio.Transport, bool] = {}  # whether it was so at the last look, too
        self._look: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def watch(self, transport: asyncio.Transport) -> None:
        """Nothing is read from here on."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:  # a server in a new loop, after one whose looks have ended with theirs
            self._unread, self._look, self._loop = {}, None, loop
        self._unread[transport] = False
        if self._look is None and hasattr(select, "poll"):
            self._look = loop.call_later(_EVERY_SECONDS, self._look_around)

    def leave(self, transport: asyncio.Transport) -> None:
        """It is read again, or has ended."""
        self._unread.pop(transport, None)

    def _look_around(self) -> None:
        self._look = None
        watched: dict[int, asyncio.Transport] = {}
        poll = select.poll()
        for transport, before in self._unread.items():
            self._unread[transport] = True
            sock: Any = transport.get_extra_info("socket")
            if before and sock is not None and (number := sock.fileno()) >= 0:
                watched[number] = transport
                poll.register(number, _ENDED)
        for number, _ in poll.poll(0) if watched else ():
            self.leave(watched[number])
            watched[number].abort()
        if self._unread:
            self._look = asyncio.get_running_loop().call_later(_EVERY_SECONDS, self._look_around)

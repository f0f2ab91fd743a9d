"""Answers that wait to be read: for how long they are kept, and how much of them.

What a client does not read stays in the server's memory once the kernel's buffers are full.

1. As long as so much waits that nothing more is written, 64 KiB have to be read every ten seconds, or the connection
   ends.
2. All connections of the process together may keep 32 MiB, or one answer where it is larger. Beyond that, those end
   that have waited longest.
"""

from __future__ import annotations

import asyncio

__all__ = ["Unread"]

_EVERY_SECONDS = 10.0
_LEAST_BYTES = 64 * 1024
_LIMIT = 32 * 1024 * 1024


class Unread:
    """The connections whose clients have not read enough."""

    def __init__(self) -> None:
        self._looks: dict[asyncio.Transport, asyncio.TimerHandle] = {}

    def begin(self, transport: asyncio.Transport) -> None:
        """More waits to be read than should."""
        self._look_again(transport)
        self._make_room()

    def end(self, transport: asyncio.Transport) -> None:
        """It was read, or its connection has ended."""
        look = self._looks.pop(transport, None)
        if look is not None:
            look.cancel()

    @property
    def size(self) -> int:
        """How much waits."""
        return sum(transport.get_write_buffer_size() for transport in self._looks)

    def _look_again(self, transport: asyncio.Transport) -> None:
        left = transport.get_write_buffer_size()
        self._looks[transport] = asyncio.get_running_loop().call_later(_EVERY_SECONDS, self._look, transport, left)

    def _look(self, transport: asyncio.Transport, before: int) -> None:
        if transport.get_write_buffer_size() > before - _LEAST_BYTES:
            self._give_up(transport)
        else:
            self._look_again(transport)

    def _make_room(self) -> None:
        size = self.size
        *older, _newest = self._looks
        for transport in older:
            if size <= _LIMIT:
                return
            size -= transport.get_write_buffer_size()
            self._give_up(transport)

    def _give_up(self, transport: asyncio.Transport) -> None:
        self.end(transport)
        transport.abort()

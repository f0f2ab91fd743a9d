"""Answers that wait to be read: how long they are kept, and how much of them.

What a client does not read stays in the server's memory once the kernel's buffers are full.

1. While so much waits that nothing more can be written, the client has to read 64 KiB every ten seconds, or the
   connection ends.
2. All connections of the process together may keep 32 MiB, and those of a tenant 8 MiB, or one answer if it is larger.
   Beyond that, the tenant that keeps the most loses the connections that have waited longest, so that slow readers of
   one tenant do not cost others their answers.
3. Callers without a key have 32 MiB of their own together, in which the kernel's buffers count as well.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from operator import itemgetter

__all__ = ["Unread"]

_EVERY_SECONDS = 10.0
_LEAST_BYTES = 64 * 1024
_LIMIT, _LIMIT_OF_STRANGERS, _LIMIT_OF_TENANT = 32 * 1024 * 1024, 32 * 1024 * 1024, 8 * 1024 * 1024
#: About how much of a connection's answers and requests the kernel keeps.
_KERNEL_BYTES = 128 * 1024


class Unread:
    """The connections whose clients have not read enough."""

    def __init__(self) -> None:
        self._looks: dict[asyncio.Transport, asyncio.TimerHandle] = {}
        self._reset: dict[asyncio.Transport, tuple[str | None, Callable[[], None]]] = {}

    def begin(self, transport: asyncio.Transport, reset: Callable[[], None], *, party: str | None) -> None:
        """Too much waits to be read by a caller of a tenant, or by one without a key; `reset` ends the connection."""
        self._reset[transport] = party, reset
        self._look_again(transport)
        self._make_room(transport)

    def end(self, transport: asyncio.Transport) -> None:
        """It was read, or its connection has ended."""
        self._reset.pop(transport, None)
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

    def _make_room(self, newest: asyncio.Transport) -> None:
        is_stranger = self._reset[newest][0] is None
        limit = _LIMIT_OF_STRANGERS if is_stranger else _LIMIT
        sizes = {
            transport: transport.get_write_buffer_size() + (_KERNEL_BYTES if is_stranger else 0)
            for transport, (party, _) in self._reset.items()
            if (party is None) is is_stranger
        }
        parties = Counter[str | None]()
        for transport, size in sizes.items():
            parties[self._reset[transport][0]] += size
        while parties:
            most, largest = max(parties.items(), key=itemgetter(1))
            if parties.total() <= limit and (is_stranger or largest <= _LIMIT_OF_TENANT):
                return
            oldest = next(transport for transport in sizes if self._reset[transport][0] == most)
            if oldest is newest:
                return
            parties[most] -= sizes.pop(oldest)
            self._give_up(oldest)

    def _give_up(self, transport: asyncio.Transport) -> None:
        _, reset = self._reset[transport]
        self.end(transport)
        reset()

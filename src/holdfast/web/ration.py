"""Limits expensive work to a few connections in each round of the event loop; the others wait in line."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Hashable

__all__ = ["Ration"]


class Ration:
    """Allows `most` in a round; rounds are at least some seconds apart."""

    def __init__(self, most: int, seconds: float = 0.0) -> None:
        self._most, self._seconds = most, seconds
        self._line: OrderedDict[Hashable, Callable[[], None]] = OrderedDict()
        self._used = 0
        self._round: asyncio.Handle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def take(self, who: Hashable, go_on: Callable[[], None]) -> bool:
        """Whether it may be done now; otherwise `go_on` is called when it may."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:  # a server in a new loop
            self._line, self._used, self._round, self._loop = OrderedDict(), 0, None, loop
        if self._round is None:
            self._round = self._later(loop)
        if self._used < self._most and not self._line:
            self._used += 1
            return True
        self._line[who] = go_on
        return False

    def leave(self, who: Hashable) -> None:
        """Its connection has ended."""
        self._line.pop(who, None)

    def _begin(self) -> None:
        self._round, self._used = None, min(self._most, len(self._line))
        for _ in range(self._used):
            _, go_on = self._line.popitem(last=False)
            go_on()
        if self._used and self._round is None:
            self._round = self._later(asyncio.get_running_loop())

    def _later(self, loop: asyncio.AbstractEventLoop) -> asyncio.Handle:
        return loop.call_later(self._seconds, self._begin) if self._seconds else loop.call_soon(self._begin)

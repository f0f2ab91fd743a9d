"""A time budget for some work in each round of the event loop; work that finds it used up waits in line.

The time is measured, not estimated, so no input costs more than it is charged. The line is served from both ends in
turn, the newest and the longest waiting: served from the front alone, a line whose oldest members are closed to make
room (see holdfast.web.throng) would lose them just before their turn. Work that has begun comes back as the newest, and
so ends soon.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Hashable

__all__ = ["Budget"]


class Budget:
    """`most` seconds in a round. The last piece of work may exceed them."""

    def __init__(self, most: float) -> None:
        self._most, self._used = most, 0.0
        self._line: OrderedDict[Hashable, Callable[[], None]] = OrderedDict()
        self._last = False  # which end of the line is next
        self._round: asyncio.Handle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def take(self, who: Hashable, go_on: Callable[[], None]) -> bool:
        """Whether it may be done now; otherwise `go_on` is called when it may."""
        self._attend()
        if self._used < self._most and not self._line:
            return True
        self._line[who] = go_on
        return False

    def spend(self, seconds: float) -> None:
        """Something has taken this long."""
        self._attend()
        self._used += seconds

    def leave(self, who: Hashable) -> None:
        """Its connection has ended."""
        self._line.pop(who, None)

    def _attend(self) -> None:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:  # a server in a new loop
            self._line, self._used, self._round, self._loop = OrderedDict(), 0.0, None, loop
        if self._round is None:
            self._round = loop.call_soon(self._begin)

    def _begin(self) -> None:
        self._round, self._used = None, 0.0
        waiting = len(self._line)
        while waiting and self._line and self._used < self._most:
            waiting -= 1
            self._last = not self._last
            _, go_on = self._line.popitem(last=self._last)
            go_on()
        if self._line:
            self._attend()

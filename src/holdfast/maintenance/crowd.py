"""How tenants share promotion while more jobs are due than one call promotes.

Due entries are in the order of their time, whichever tenant owns them: tenants behind a backlog must be searched for.

1. A look-ahead walks over all due entries, once. A tenant that it meets gets its share at once. If the tenant has more,
   it gets a line: the place of its first remaining entry.
2. Lines are served in turns, each from its place. Tenants whose line begins earlier are passed over: the jobs of
   a tenant are promoted in the order of their time. While there is only one line, the oldest entries are its entries.
3. Every second call looks ahead, until everything was seen; afterwards it looks for entries that have become due since.
4. Now and then everything starts again, which finds entries that were committed late, behind the look-ahead.

Nothing here decides about a job. Whatever this memory says, a call promotes only due jobs, and each only once.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

from holdfast.store.maintenance import MaintenanceStore
from holdfast.store.maintenance_answers import Place

__all__ = ["Crowd"]

#: How many entries one call looks at, in batches: when looking ahead, and for a line.
_LOOKED_AHEAD, _LOOKED_IN_TURN = 20, 4
#: Beyond the first number, tenants share the last line. With more tenants in lines than the second, no more are sought.
_MOST_LINES, _MOST_TENANTS = 16, 1000
#: How long the look-ahead rests once it has seen everything.
_REST_SECONDS = 0.05
#: The fraction of the time that it may take, which decides when everything starts again.
_ANEW_PART = 1 / 40


@dataclass(slots=True)
class _Line:
    """Tenants with nothing due before a place."""

    place: Place
    tenants: set[str]


class Crowd:
    """The tenants with due jobs, and whose turn it is."""

    #: Whether the last call looked ahead, and whether everything due has been seen.
    _looked: bool
    _seen: bool
    _looked_to: Place | None
    #: When to look ahead again, when to start again, and what the look-ahead has cost, in seconds.
    _look_at: float
    _anew_at: float
    _cost: float

    def __init__(self) -> None:
        self._lines: list[_Line] = []
        self._served: list[_Line] = []
        self._begin()

    async def serve(self, store: MaintenanceStore, size: int, *, oldest: bool) -> bool:
        """Look ahead or serve a line. False if it is the turn of the oldest entries, whichever tenant owns them."""
        now = time.monotonic()
        if self._seen and now >= self._anew_at:
            self._begin()
        if now >= self._look_at and not self._looked:
            await self._look_ahead(store, size)
            return True
        self._looked = False
        if oldest or len(self._lines) < 2:
            return False
        await self._serve_line(store, size)
        return True

    def _begin(self) -> None:
        """Start again: look at everything, from the beginning."""
        self._lines.clear()
        self._served.clear()
        self._looked_to = None
        self._looked = self._seen = False
        self._look_at = self._anew_at = self._cost = 0.0

    async def _look_ahead(self, store: MaintenanceStore, size: int) -> None:
        began = time.monotonic()
        passed = {tenant for line in self._lines for tenant in line.tenants}
        found = await store.promote_behind(self._looked_to, passed, most=size, look_at=size * _LOOKED_AHEAD)
        self._looked, self._looked_to = True, found.reached
        for tenant, place in found.left.items():
            self._line_up(tenant, place)
        ended = time.monotonic()
        if not self._seen:
            self._cost += ended - began
        full = len(passed) > _MOST_TENANTS
        if found.ended or full:
            self._look_at = math.inf if full else ended + _REST_SECONDS
            if not self._seen:
                self._seen, self._anew_at = True, ended + max(_REST_SECONDS, self._cost / _ANEW_PART)

    def _line_up(self, tenant: str, place: Place) -> None:
        if len(self._lines) < _MOST_LINES:
            self._lines.append(_Line(place, {tenant}))
            return
        last = max(self._lines, key=lambda line: line.place)
        last.place = min(last.place, place)
        last.tenants.add(tenant)

    async def _serve_line(self, store: MaintenanceStore, size: int) -> None:
        line = self._next_line()
        before = [other for other in self._lines if other is not line and other.place < line.place]
        passed = {tenant for other in before for tenant in other.tenants}
        found = await store.promote_behind(line.place, passed, most=size, look_at=size * _LOOKED_IN_TURN)
        elsewhere = {tenant for other in self._lines if other is not line for tenant in other.tenants}
        left = {tenant: place for tenant, place in found.left.items() if tenant not in elsewhere}
        line.tenants |= left.keys()
        line.place = min(left.values(), default=found.reached)
        if not left and (found.ended or (self._looked_to is not None and line.place >= self._looked_to)):
            self._lines.remove(line)

    def _next_line(self) -> _Line:
        """The next line; each has its turn."""
        waiting = [line for line in self._lines if not any(line is served for served in self._served)]
        if not waiting:
            self._served.clear()
            waiting = self._lines
        self._served.append(waiting[0])
        return waiting[0]

"""How tenants share promotion while more is due than one call promotes.

Entries that are due stand in the order of their time, whoever owns them: tenants behind a backlog must be looked for.

1. A look-ahead walks over everything due, once. A tenant that it meets gets its share at once. If the tenant has more,
   it gets a line: the place of the first entry that is left.
2. Lines are served in turns, each from its place. Tenants whose line begins earlier are passed over: the jobs of
   a tenant are promoted in the order of their time. While there is only one line, the oldest entries are its entries.
3. The look-ahead is every second call until it has seen everything; then it looks for what has become due since.
4. Now and then everything begins anew: what committed late, behind the look-ahead, is found then.

Nothing here decides about a job. Whatever this memory says, a call promotes only what is due, and only once.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from holdfast.maintenance.duty import Desk

__all__ = ["Crowd"]

Place = tuple[datetime, UUID]

#: How many entries one call looks at, in batches: the look-ahead, and the turn of a line.
_LOOKED_AHEAD, _LOOKED_IN_TURN = 20, 4
#: Beyond this number, tenants share the last line. With more tenants in lines, no further ones are looked for.
_MOST_LINES, _MOST_TENANTS = 16, 1000
#: How long the look-ahead rests once it has seen everything.
_REST_SECONDS = 0.05
#: It may take this part of the time: then it begins anew.
_ANEW_PART = 1 / 40


@dataclass(slots=True)
class _Line:
    """Tenants with nothing due before a place."""

    place: Place
    tenants: set[str]


class Crowd:
    """The tenants that have something due, and whose turn it is."""

    #: Whether the last call looked ahead, and whether all that was due has been seen.
    _looked: bool
    _seen: bool
    _looked_to: Place | None
    #: When to look ahead again, when to begin anew, and what the look-ahead has cost, in seconds.
    _look_at: float
    _anew_at: float
    _cost: float

    def __init__(self) -> None:
        self._lines: list[_Line] = []
        self._served: list[_Line] = []
        self._begin()

    async def serve(self, desk: Desk, size: int, *, oldest: bool) -> bool:
        """Look ahead or serve a line; false where it is the turn of the oldest entries, whoever owns them."""
        now = time.monotonic()
        if self._seen and now >= self._anew_at:
            self._begin()
        if now >= self._look_at and not self._looked:
            await self._look_ahead(desk, size)
            return True
        self._looked = False
        if oldest or len(self._lines) < 2:
            return False
        await self._serve_line(desk, size)
        return True

    def _begin(self) -> None:
        """Look at everything, from the beginning."""
        self._lines.clear()
        self._served.clear()
        self._looked_to = None
        self._looked = self._seen = False
        self._look_at = self._anew_at = self._cost = 0.0

    async def _look_ahead(self, desk: Desk, size: int) -> None:
        began = time.monotonic()
        passed = {tenant for line in self._lines for tenant in line.tenants}
        row = await self._call(desk, self._looked_to, passed, size, _LOOKED_AHEAD)
        self._looked, self._looked_to = True, (row["reached_run_at"], row["reached_job_id"])
        for tenant, place in _left(row).items():
            self._line_up(tenant, place)
        ended = time.monotonic()
        if not self._seen:
            self._cost += ended - began
        full = len(passed) > _MOST_TENANTS
        if row["ended"] or full:
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

    async def _serve_line(self, desk: Desk, size: int) -> None:
        line = self._next_line()
        before = [other for other in self._lines if other is not line and other.place < line.place]
        passed = {tenant for other in before for tenant in other.tenants}
        row = await self._call(desk, line.place, passed, size, _LOOKED_IN_TURN)
        elsewhere = {tenant for other in self._lines if other is not line for tenant in other.tenants}
        left = {tenant: place for tenant, place in _left(row).items() if tenant not in elsewhere}
        line.tenants |= left.keys()
        line.place = min(left.values(), default=(row["reached_run_at"], row["reached_job_id"]))
        if not left and (row["ended"] or (self._looked_to is not None and line.place >= self._looked_to)):
            self._lines.remove(line)

    def _next_line(self) -> _Line:
        """Each in turn."""
        waiting = [line for line in self._lines if not any(line is served for served in self._served)]
        if not waiting:
            self._served.clear()
            waiting = self._lines
        self._served.append(waiting[0])
        return waiting[0]

    @staticmethod
    async def _call(desk: Desk, place: Place | None, passed: set[str], size: int, batches: int) -> Any:
        run_at, job_id = place or (None, None)
        return await desk.row("promote_behind", run_at, job_id, list(passed), size, batches * size)


def _left(row: Any) -> dict[str, Place]:
    """The first entry of each tenant that has more than it got."""
    tenants, moments, job_ids = row["left_tenants"], row["left_run_at"], row["left_job_ids"]
    return dict(zip(tenants or (), zip(moments or (), job_ids or (), strict=True), strict=True))

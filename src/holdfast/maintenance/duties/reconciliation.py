"""Walks over jobs and restores what hand-written SQL or a bug took from them."""

from __future__ import annotations

import time
from typing import Any, ClassVar

from holdfast.maintenance.duty import Duty, Next, Urgency
from holdfast.store.maintenance import MaintenanceStore
from holdfast.telemetry.events import Mended

__all__ = ["Reconciliation"]

#: Pages with open jobs get steps of their own if there are this many times as many pages without.
_MOSTLY_ENDED = 8
#: How long a walk should take, or twice as long with revisits: a small table is walked over slowly.
_WALK_SECONDS = 25.0
_LONGEST_REST_SECONDS = 0.8
_FEWEST_STEPS = 24


class Reconciliation(Duty):
    """A walk over the pages of the table: see docs/decisions/017-bounded-duties.md.

    If most jobs of the table have ended, every other step goes to pages that had open jobs at the last look. So open
    jobs are looked at within seconds, however many ended jobs there are.
    """

    name = "reconcile"
    urgency = Urgency.BACKGROUND
    interval_seconds = 5.0
    limit_seconds = 5.0
    most: ClassVar[int] = 1000

    _page = 0
    _end = 0
    _revisits = False
    _steps = _steps_of_last_walk = 0

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        #: The first pages of stretches that had open jobs, or where the table ended; the least recently visited first.
        self._open: dict[int, None] = {}

    async def work(self, store: MaintenanceStore) -> Next:
        """Look at the jobs on some pages."""
        began = time.monotonic()
        self._revisits = not self._revisits and 0 < _MOSTLY_ENDED * len(self._open) < self._steps_of_last_walk
        if self._revisits:
            first = next(iter(self._open))
            reached = await self._look(store, first)
            if first == self._end and reached is not None:
                self._open[reached] = None  # the table has grown
            return self.after(self._rest(time.monotonic() - began))
        reached = await self._look(store, self._page)
        self._page = reached or 0
        self._steps += 1
        if reached is not None:
            return self.after(self._rest(time.monotonic() - began))
        self._steps_of_last_walk, self._steps = self._steps, 0
        return self.later()

    def _rest(self, worked_seconds: float) -> float:
        """The pause before the next step. The first walk learns the number of steps as it goes."""
        steps = max(self._steps_of_last_walk, 3 * self._steps, _FEWEST_STEPS)
        spare = _WALK_SECONDS / steps - worked_seconds
        return min(_LONGEST_REST_SECONDS, max(worked_seconds, spare))

    async def _look(self, store: MaintenanceStore, first: int) -> int | None:
        """Look at a stretch of pages. Returns the page after it, None at the end."""
        mended, has_open_jobs, reached = await store.reconcile(first, self.batch.size)
        for job_id, repair in mended:
            self.bus.emit(Mended(what=repair, job_id=job_id))
        self._open.pop(first, None)
        if reached is None:
            self._end = first
        if has_open_jobs or reached is None:
            self._open[first] = None
        return reached

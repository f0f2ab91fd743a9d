"""Deletes ended jobs whose retention is over.

Setting the database's clock ahead makes nothing older: the renewals of leadership record the step, and it is subtracted
from the age of jobs that ended before. So nothing is deleted while the clock does not fit the last renewal.
"""

from __future__ import annotations

import time
from typing import ClassVar
from uuid import UUID

from holdfast.maintenance.duties.walks import rest
from holdfast.maintenance.duty import Duty, Next, Urgency
from holdfast.store.maintenance import MaintenanceStore

__all__ = ["Retention"]

#: How many jobs are looked at for each one that may be deleted at once.
_VISITED_PER_JOB = 5
_BUSY_SECONDS = 1.0
_FULL_WALK_SECONDS = 300.0
#: The pause after a clock that did not fit the last probe.
_UNKNOWN_CLOCK_SECONDS = 1.0


class Retention(Duty):
    """A walk by id, which begins with the oldest jobs.

    While walks find expired jobs, they follow one another, so that deletion keeps up with any rate. Then they become
    rarer, and the rarer the longer one takes. A walk begins at the first job that the last one kept, so that it does
    not go over rows that were deleted but not yet vacuumed; now and then one begins at the beginning.
    """

    name = "retire"
    urgency = Urgency.BACKGROUND
    interval_seconds = 30.0
    limit_seconds = 5.0
    most: ClassVar[int] = 2000

    #: Where this walk began, how far it has come, and the first job that it kept.
    _from: UUID | None = None
    _reached: UUID | None = None
    _kept: UUID | None = None
    _worked_seconds = 0.0
    _deleted = 0
    _full_walk_at = 0.0
    _pause_seconds = _BUSY_SECONDS

    async def work(self, store: MaintenanceStore) -> Next:
        """Delete some of the expired jobs."""
        began, size = time.monotonic(), self.batch.size
        if self._reached is None and began >= self._full_walk_at:
            self._from, self._full_walk_at = None, began + _FULL_WALK_SECONDS
        retired = await store.retire(
            self.patience.clock, self._reached or self._from, most=size, visit=size * _VISITED_PER_JOB
        )
        if retired is None:
            return self.later(_UNKNOWN_CLOCK_SECONDS)
        worked = time.monotonic() - began
        self._worked_seconds += worked
        self._deleted += retired.deleted
        self._kept = self._kept or retired.kept
        self._reached = retired.reached
        if self._reached is not None:
            return self.after(rest(worked, share=0.5 if retired.deleted else 0.1))
        return self.later(self._ended())

    def _ended(self) -> float:
        """Choose, after a walk, where the next one begins. Returns the pause before it."""
        if self._deleted:
            pause = self._pause_seconds = _BUSY_SECONDS
        else:
            self._pause_seconds = min(self.interval_seconds, 2 * self._pause_seconds)
            pause = max(self._pause_seconds, 9 * self._worked_seconds)
        self._from = UUID(int=max(0, self._kept.int - 1)) if self._kept is not None else None
        self._kept, self._worked_seconds, self._deleted = None, 0.0, 0
        return pause

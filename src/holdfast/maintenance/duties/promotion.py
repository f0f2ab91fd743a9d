"""Makes due jobs eligible on time: the next call is when the next job is due."""

from __future__ import annotations

import time
from datetime import datetime

from holdfast.maintenance.crowd import Crowd
from holdfast.maintenance.duty import Duty, Next, Urgency
from holdfast.store.maintenance import MaintenanceStore

__all__ = ["Promotion"]

#: The shortest and the longest time between two full looks, whatever they cost.
_FULL_LOOK_SECONDS = (0.05, 1.0)


class Promotion(Duty):
    """Moves scheduled and retrying jobs to queued.

    Entries before the last promoted one are looked at again, a moment after each look that left them out, because a
    transaction may commit late. How soon depends on the cost of such a full look: it takes at most a twentieth of the
    time, but comes at least once a second.

    While more is due than one call promotes, tenants take turns (see `Crowd`): the backlog of one does not delay the
    others.
    """

    name = "promote"
    urgency = Urgency.URGENT
    #: Enqueueing announces jobs that are due within this time, but not later ones: they must be looked for.
    interval_seconds = 2.0
    limit_seconds = 5.0
    heeds = True

    _promoted_to: datetime | None = None
    _full_look_at = 0.0
    _crowd: Crowd | None = None

    async def work(self, store: MaintenanceStore) -> Next:
        """Promote due jobs."""
        asked_at, size = time.monotonic(), self.batch.size
        everything = asked_at >= self._full_look_at
        if self._crowd is not None and await self._crowd.serve(store, size, oldest=everything):
            return self.at_once()
        found = await store.promote(size, None if everything else self._promoted_to)
        if everything:
            least, most = _FULL_LOOK_SECONDS
            self._full_look_at = asked_at + min(most, max(least, 20 * (time.monotonic() - asked_at)))
        if found.reached is not None and (self._promoted_to is None or found.reached > self._promoted_to):
            self._promoted_to = found.reached
        if found.promoted >= size:
            self._crowd = self._crowd or Crowd()
            return self.at_once()
        self._crowd = None
        following = found.next_in_seconds
        wait = self.interval_seconds if following is None else min(self.interval_seconds, following)
        if not everything:
            wait = min(wait, self._full_look_at - time.monotonic())
        return self.later(max(0.001, wait))

    def resume(self) -> None:
        """Start again, because the clock may have been set back: due jobs may lie before those that were promoted."""
        self._promoted_to, self._full_look_at, self._crowd = None, 0.0, None

"""Seats the heads of targets that enqueueing called for."""

from __future__ import annotations

import time

from holdfast.maintenance.duty import Duty, Next, Urgency
from holdfast.store.maintenance import MaintenanceStore

__all__ = ["Seating"]


class Seating(Duty):
    """Chooses the next job of a target.

    Calls before the last answered one are looked for again now and then, because a transaction may commit late.
    """

    name = "elect"
    urgency = Urgency.URGENT
    interval_seconds = 5.0
    limit_seconds = 5.0
    heeds = True

    _answered_to = 0
    _full_look_at = 0.0

    async def work(self, store: MaintenanceStore) -> Next:
        """Answer some of the calls."""
        asked_at, size = time.monotonic(), self.batch.size
        everything = asked_at >= self._full_look_at
        elected = await store.elect(0 if everything else self._answered_to, size)
        if everything and elected.called < size:
            self._full_look_at = asked_at + min(self.interval_seconds, max(1.0, 20 * (time.monotonic() - asked_at)))
        self._answered_to = max(self._answered_to, elected.reached)
        if elected.called >= size:
            return self.at_once()
        return self.later() if everything else self.later(max(0.0, self._full_look_at - time.monotonic()))

    def resume(self) -> None:
        """Look at everything, because another process may have led."""
        self._full_look_at = 0.0

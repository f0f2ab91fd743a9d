"""Seats the heads of targets that enqueueing called for."""

from __future__ import annotations

from holdfast.maintenance.duty import Desk, Duty, Next, Urgency

__all__ = ["Seating"]


class Seating(Duty):
    """Elects who is next for a target."""

    name = "elect"
    urgency = Urgency.URGENT
    interval_seconds = 5.0
    limit_seconds = 5.0
    heeds = True

    async def work(self, desk: Desk) -> Next:
        """Answer some of the calls."""
        called = await desk.value("elect", self.batch.size)
        return self.at_once() if called >= self.batch.size else self.later()

"""Drops side rows without a fitting job, and seats heads where a line has none."""

from __future__ import annotations

from holdfast.maintenance.duty import Desk, Duty, Next, Urgency
from holdfast.telemetry.events import Mended

__all__ = ["Headless", "Strays"]


class Strays(Duty):
    """Leases, entries and heads that belong to no job that fits."""

    name = "strays"
    urgency = Urgency.BACKGROUND
    interval_seconds = 15.0
    limit_seconds = 5.0

    async def work(self, desk: Desk) -> Next:
        """Drop some of them."""
        dropped = await desk.value("drop_strays", self.batch.size)
        if dropped:
            self.bus.emit(Mended(what="strays", detail=f"{dropped} dropped"))
        return self.at_once() if dropped >= self.batch.size else self.later()


class Headless(Duty):
    """Targets with a line but no head."""

    name = "headless"
    urgency = Urgency.BACKGROUND
    interval_seconds = 15.0
    limit_seconds = 5.0

    async def work(self, desk: Desk) -> Next:
        """Seat some of them."""
        seated = await desk.value("headless_targets", self.batch.size)
        if seated:
            self.bus.emit(Mended(what="headless targets", detail=f"{seated} seated"))
        return self.at_once() if seated >= self.batch.size else self.later()

"""Forgets what nobody needs any more: silent workers, unused permits."""

from __future__ import annotations

from typing import ClassVar

from holdfast.maintenance.duty import Desk, Duty, Next, Urgency

__all__ = ["ForgetPermits", "ForgetWorkers"]


class ForgetWorkers(Duty):
    """Workers that have been silent for a day."""

    name = "forget workers"
    urgency = Urgency.BACKGROUND
    interval_seconds = 15.0
    limit_seconds = 5.0

    async def work(self, desk: Desk) -> Next:
        """Forget them."""
        await desk.value("forget_workers")
        return self.later()


class ForgetPermits(Duty):
    """Permits of keys that nobody has used for long."""

    name = "forget permits"
    urgency = Urgency.BACKGROUND
    interval_seconds = 15.0
    limit_seconds = 5.0
    most: ClassVar[int] = 1000

    async def work(self, desk: Desk) -> Next:
        """Forget some of them."""
        forgotten = await desk.value("forget_permits", self.batch.size)
        return self.at_once() if forgotten >= self.batch.size else self.later()

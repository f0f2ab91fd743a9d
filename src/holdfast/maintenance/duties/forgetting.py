"""Forgets what nobody needs any more: silent workers, unused permits."""

from __future__ import annotations

from holdfast.maintenance.duties.walks import Walk
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


class ForgetPermits(Walk):
    """Permits of keys that nobody has used for long."""

    name = "forget permits"
    statement = "forget_idle_permits"

"""Lets jobs that have waited for long go first."""

from __future__ import annotations

from holdfast.maintenance.duty import Desk, Duty, Next, Urgency

__all__ = ["Ageing"]


class Ageing(Duty):
    """Raises the rank of old jobs that others can pass."""

    name = "age"
    urgency = Urgency.ORDINARY
    interval_seconds = 10.0
    limit_seconds = 5.0

    async def work(self, desk: Desk) -> Next:
        """Age some of them."""
        aged = await desk.value("age", self.batch.size)
        return self.at_once() if aged >= self.batch.size else self.later()

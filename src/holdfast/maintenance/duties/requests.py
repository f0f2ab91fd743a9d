"""Executes what was asked for: cancel, pause, resume, delete, retry."""

from __future__ import annotations

from typing import ClassVar

from holdfast.maintenance.duty import Desk, Duty, Next, Urgency

__all__ = ["Requests"]


class Requests(Duty):
    """Moves jobs that wait; what runs was flagged when the request was recorded."""

    name = "requests"
    urgency = Urgency.URGENT
    interval_seconds = 2.0
    limit_seconds = 5.0
    #: Few at a time: their locks are held until the last of them is done.
    most: ClassVar[int] = 10
    heeds = True

    async def work(self, desk: Desk) -> Next:
        """Execute a few requests, oldest first."""
        done = await desk.value("execute_requests", self.batch.size)
        return self.at_once() if done >= self.batch.size else self.later()

"""Carries out requests: cancel, pause, resume, delete, retry."""

from __future__ import annotations

from typing import ClassVar

from holdfast.maintenance.duty import Duty, Next, Urgency
from holdfast.store.maintenance import MaintenanceStore

__all__ = ["Requests"]


class Requests(Duty):
    """Moves waiting jobs; running ones were flagged when the request was recorded."""

    name = "requests"
    urgency = Urgency.URGENT
    interval_seconds = 2.0
    limit_seconds = 5.0
    #: Few at a time: their locks are held until the last of them is done.
    most: ClassVar[int] = 10
    heeds = True

    async def work(self, store: MaintenanceStore) -> Next:
        """Execute a few requests, oldest first."""
        done = await store.execute_requests(self.batch.size)
        return self.at_once() if done >= self.batch.size else self.later()

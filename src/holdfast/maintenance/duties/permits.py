"""Brings back jobs that were parked because there was no permit, once there is one."""

from __future__ import annotations

import time
from typing import ClassVar

from holdfast.maintenance.duties.walks import rest
from holdfast.maintenance.duty import Duty, Next, Urgency
from holdfast.store.maintenance import MaintenanceStore

__all__ = ["Permits"]

#: How often to check for free permits while jobs wait for one.
_BUSY_SECONDS = 0.25


class Permits(Duty):
    """Admits parked jobs for which there is room; the walk over their gates goes on where the last call ended."""

    name = "admit"
    urgency = Urgency.URGENT
    interval_seconds = 5.0
    limit_seconds = 5.0
    most: ClassVar[int] = 200
    heeds = True

    _reached = ""

    async def work(self, store: MaintenanceStore) -> Next:
        """Look at some of the gates for which jobs are parked."""
        began = time.monotonic()
        admitted = await store.admit(self._reached, self.batch.size)
        origin, self._reached = self._reached, admitted.reached
        if self._reached:
            return self.after(rest(time.monotonic() - began, share=0.5, at_most=_BUSY_SECONDS))
        return self.later(_BUSY_SECONDS if admitted.looked or origin else None)

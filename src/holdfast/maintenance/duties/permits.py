"""Brings back jobs that were parked for want of a permit, once there is one."""

from __future__ import annotations

import time
from typing import ClassVar

from holdfast.maintenance.duties.walks import rest
from holdfast.maintenance.duty import Desk, Duty, Next, Urgency

__all__ = ["Permits"]

#: How often to look whether what waits for a permit has one, while something does.
_BUSY_SECONDS = 0.25


class Permits(Duty):
    """Admits what has room again; the walk over the gates goes on where the last call ended."""

    name = "admit"
    urgency = Urgency.URGENT
    interval_seconds = 5.0
    limit_seconds = 5.0
    most: ClassVar[int] = 200
    heeds = True

    _reached = ""

    async def work(self, desk: Desk) -> Next:
        """Look at some of the gates for which jobs are parked."""
        began = time.monotonic()
        row = await desk.row("admit", self._reached, self.batch.size)
        origin, self._reached = self._reached, row["reached"]
        if self._reached:
            return self.after(rest(time.monotonic() - began, share=0.5, at_most=_BUSY_SECONDS))
        return self.later(_BUSY_SECONDS if row["looked"] or origin else None)

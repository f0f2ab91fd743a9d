"""Brings back jobs that were parked for want of a permit, once there is one."""

from __future__ import annotations

from typing import ClassVar

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
        row = await desk.row("admit", self._reached, self.batch.size)
        began, self._reached = self._reached, row["reached"]
        if self._reached:
            return self.after(_BUSY_SECONDS)
        return self.later(_BUSY_SECONDS if row["looked"] or began else None)

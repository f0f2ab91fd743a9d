"""Walks over jobs and gives back what hand-written SQL or a bug took from them."""

from __future__ import annotations

from typing import ClassVar
from uuid import UUID

from holdfast.maintenance.duty import Desk, Duty, Next, Urgency
from holdfast.telemetry.events import Mended

__all__ = ["Reconciliation"]


class Reconciliation(Duty):
    """A walk by id, a bit at a time; small tables are walked once in a few seconds."""

    name = "reconcile"
    urgency = Urgency.BACKGROUND
    interval_seconds = 5.0
    limit_seconds = 5.0
    most: ClassVar[int] = 1000

    _walked_to: UUID | None = None

    async def work(self, desk: Desk) -> Next:
        """Look at the next jobs."""
        rows = await desk.rows("reconcile", self._walked_to, self.batch.size)
        for row in rows:
            if row["job_id"] is not None:
                self.bus.emit(Mended(what=row["repair"], job_id=row["job_id"]))
        self._walked_to = rows[-1]["last"] if rows else None
        return self.after(1.0) if self._walked_to is not None else self.later()

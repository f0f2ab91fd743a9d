"""Deletes ended jobs whose time is over."""

from __future__ import annotations

from uuid import UUID

from holdfast.maintenance.duty import Desk, Duty, Next, Urgency

__all__ = ["Retention"]


class Retention(Duty):
    """A walk by id, in small batches."""

    name = "retire"
    urgency = Urgency.BACKGROUND
    interval_seconds = 300.0
    limit_seconds = 5.0

    _retired_to: UUID | None = None

    async def work(self, desk: Desk) -> Next:
        """Delete some of them."""
        row = await desk.row("retire", self._retired_to, self.batch.size)
        self._retired_to = row["reached"] if row is not None else None
        return self.after(0.2) if self._retired_to is not None else self.later()

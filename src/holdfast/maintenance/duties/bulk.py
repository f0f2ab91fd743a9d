"""Works through bulk operations."""

from __future__ import annotations

import time
from typing import ClassVar

from holdfast.maintenance.duties.walks import rest
from holdfast.maintenance.duty import Duty, Next, Urgency
from holdfast.store.maintenance import MaintenanceStore

__all__ = ["BulkWork"]


class BulkWork(Duty):
    """A portion at a time, with short rests, so that workers are not held up. How far it came is in the database."""

    name = "bulk"
    urgency = Urgency.ORDINARY
    interval_seconds = 2.0
    #: Others wait for this and the rest after it. `turn_bulk` knows it: that is how long an unfinished portion took.
    limit_seconds = 3.0
    most: ClassVar[int] = 100
    heeds = True

    async def work(self, store: MaintenanceStore) -> Next:
        """Note some of the jobs of one bulk operation, or work on some."""
        began = time.monotonic()
        chosen = await store.turn_bulk()
        if chosen is not None:
            await store.advance_bulk(chosen, self.batch.size)
        elif not await store.forget_bulks(self.batch.size):
            return self.later()
        return self.after(rest(time.monotonic() - began, share=0.75))

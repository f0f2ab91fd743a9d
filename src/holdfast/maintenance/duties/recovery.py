"""Takes back lapsed leases, once the database has been in touch for long enough to judge who is gone."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import ClassVar

from holdfast.maintenance.duty import Desk, Duty, Next, Urgency
from holdfast.telemetry.events import Mended

__all__ = ["Recovery"]

_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


class Recovery(Duty):
    """The sweep."""

    name = "sweep"
    urgency = Urgency.URGENT
    #: Leases last for many seconds: how late one is found to have lapsed hardly matters.
    interval_seconds = 2.0
    limit_seconds = 5.0
    most: ClassVar[int] = 200

    async def work(self, desk: Desk) -> Next:
        """Sweep, right after an answer: it must not be the first thing that a database does which stood still."""
        await self.patience.fresh()
        asked_at, size = time.monotonic(), self.batch.size
        rows = await desk.rows("sweep", self.patience.seconds, size, _LONG_AGO)
        for row in rows:
            self.bus.emit(
                Mended(
                    what="lapsed lease",
                    job_id=row["job_id"],
                    detail=f"attempt {row['attempt']} of {row['worker']} → {row['state']}",
                )
            )
        if len(rows) >= size:
            return self.at_once()
        return self.later(min(10.0, max(self.interval_seconds, 20 * (time.monotonic() - asked_at))))

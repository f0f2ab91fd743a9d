"""Takes back lapsed leases, once the database has been in touch for long enough to judge who is gone."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any, ClassVar

from holdfast.errors import HoldfastError
from holdfast.maintenance.duty import Desk, Duty, Next, Urgency
from holdfast.store.rows import ending_of
from holdfast.telemetry.events import Mended, SweepPostponed

__all__ = ["Recovery"]

_TOO_LATE_SECONDS = 0.1


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
        size = self.batch.size
        watched = self.patience.watch.ripe(size)
        rows = await desk.rows(
            "recover",
            self.patience.clock,
            *self.patience.spared(),
            [job_id for job_id, _, _ in watched],
            [attempt for _, attempt, _ in watched],
            [expires_at for _, _, expires_at in watched],
            size,
        )
        if rows and rows[0]["state"] == "too-late":
            return self.later(_TOO_LATE_SECONDS)
        self.patience.watch.judged(watched)
        swept = [row for row in rows if row["state"] is not None]
        await self._tell(desk, swept)
        for row in rows:
            if row["state"] is None:
                self.patience.watch.spared(row["job_id"], row["attempt"], row["expires_at"], row["lease_seconds"])
        if (why := self.patience.said(len(rows) - len(swept))) is not None:
            self.bus.emit(SweepPostponed(leases=len(rows) - len(swept), why=why))
        return self.at_once() if len(swept) >= size else self.later()

    async def _tell(self, desk: Desk, swept: Sequence[Any]) -> None:
        """Every attempt has its line in the log; nobody else is left who could write it."""
        if not swept:
            return
        known: Sequence[Any] = ()
        with contextlib.suppress(HoldfastError):  # they are taken back, whether or not more can be said of them
            known = await desk.rows(
                "ended_attempts", [row["job_id"] for row in swept], [row["attempt"] for row in swept]
            )
        details = {row["job_id"]: row for row in known}
        for row in swept:
            if row["job_id"] in details:
                self.bus.emit(ending_of(details[row["job_id"]], row["state"]))
            else:
                self.bus.emit(
                    Mended(
                        what="lapsed lease",
                        job_id=row["job_id"],
                        detail=f"attempt {row['attempt']} of {row['worker']} → {row['state']}",
                    )
                )

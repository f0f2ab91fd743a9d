"""Takes back lapsed leases, once the database has been in touch for long enough to judge which workers are gone."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import ClassVar
from uuid import UUID

from holdfast.errors import HoldfastError
from holdfast.maintenance.duty import Duty, Next, Urgency
from holdfast.store.maintenance import MaintenanceStore
from holdfast.store.maintenance_answers import JudgedLease
from holdfast.telemetry.events import AttemptEnded, Mended, SweepPostponed

__all__ = ["Recovery"]

_TOO_LATE_SECONDS = 0.1


class Recovery(Duty):
    """The sweep."""

    name = "sweep"
    urgency = Urgency.URGENT
    #: Leases last for many seconds: it hardly matters how late a lapsed one is found.
    interval_seconds = 2.0
    limit_seconds = 5.0
    most: ClassVar[int] = 200

    async def work(self, store: MaintenanceStore) -> Next:
        """Sweep, right after an answer: it must not be the first statement of a database that stood still."""
        await self.patience.fresh()
        size = self.batch.size
        watched = self.patience.watch.ripe(size)
        judged = await store.recover(self.patience.clock, self.patience.spared(), watched, size)
        if judged is None:
            return self.later(_TOO_LATE_SECONDS)
        self.patience.watch.judged(watched)
        swept = [lease for lease in judged if lease.state is not None]
        await self._tell(store, swept)
        for lease in judged:
            if lease.state is None:
                self.patience.watch.spared(lease.job_id, lease.attempt, lease.expires_at, lease.lease_seconds)
        if (why := self.patience.said(len(judged) - len(swept))) is not None:
            self.bus.emit(SweepPostponed(leases=len(judged) - len(swept), why=why))
        return self.at_once() if len(swept) >= size else self.later()

    async def _tell(self, store: MaintenanceStore, swept: Sequence[JudgedLease]) -> None:
        """Emit the event of every attempt that was taken back: its worker cannot do so any more."""
        if not swept:
            return
        known: dict[UUID, AttemptEnded] = {}
        with contextlib.suppress(HoldfastError):  # they are taken back, whether or not the details can be read
            known = await store.endings(swept)
        for lease in swept:
            detail = f"attempt {lease.attempt} of {lease.worker} → {lease.state}"
            mended = Mended(what="lapsed lease", job_id=lease.job_id, detail=detail)
            self.bus.emit(known.get(lease.job_id, mended))

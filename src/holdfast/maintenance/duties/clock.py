"""Brings times nearer that lie too far ahead because the database's clock was set back.

It walks over leases, the permits of rates, and jobs that wait for their backoff: at once when the leader has noticed a
jump, and slowly all the time, for jumps that happened while there was no leader.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import ClassVar
from uuid import UUID

from holdfast.maintenance.duty import Duty, Next, Urgency
from holdfast.store.maintenance import MaintenanceStore
from holdfast.telemetry.events import Mended

__all__ = ["ClockWalk"]

_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST = UUID(int=0)
_STEADY_PAUSE_SECONDS = 2.0


class ClockWalk(Duty):
    """Ensures that nothing waits longer than its own length."""

    name = "clock"
    urgency = Urgency.BACKGROUND
    interval_seconds = 10.0
    limit_seconds = 5.0
    most: ClassVar[int] = 1000

    _stage = 0
    _lease: UUID | None = None
    _permit = ("rate", 0)
    _entry = (_LONG_AGO, _FIRST)
    _hasty = False

    async def work(self, store: MaintenanceStore) -> Next:
        """Look at one batch, or at several small ones."""
        stages: list[Callable[[MaintenanceStore], Awaitable[bool]]] = [self._leases, self._rates, self._backoff]
        while self._stage < len(stages):
            if await stages[self._stage](store):
                return self.at_once() if self._hasty else self.after(_STEADY_PAUSE_SECONDS)
            self._stage += 1
        self._stage, self._hasty = 0, False
        return self.later()

    def resume(self) -> None:
        """Walk over everything now, because the clock may have been set."""
        self._stage, self._lease, self._permit, self._entry = 0, None, ("rate", 0), (_LONG_AGO, _FIRST)
        self._hasty = True

    async def _leases(self, store: MaintenanceStore) -> bool:
        # After a jump all of them are watched: while a clock is set back again and again, no lease lapses.
        leases, self._lease = await store.clamp_leases(self._lease, self.batch.size, all_of_them=self._hasty)
        for lease in leases:
            self.patience.watch.clamped(lease)
        self._tell("leases", sum(lease.was != lease.expires_at for lease in leases))
        return self._lease is not None

    async def _rates(self, store: MaintenanceStore) -> bool:
        changed, reached = await store.clamp_rates(self._permit, self.batch.size)
        self._tell("permits of rates", changed)
        self._permit = reached or ("rate", 0)
        return reached is not None

    async def _backoff(self, store: MaintenanceStore) -> bool:
        changed, reached = await store.clamp_backoff(self._entry, self.batch.size)
        self._tell("waiting jobs", changed)
        self._entry = reached or (_LONG_AGO, _FIRST)
        return reached is not None

    def _tell(self, what: str, number: int) -> None:
        if number:
            self.bus.emit(Mended(what="times too far ahead", detail=f"{number} {what}: the clock was set back"))

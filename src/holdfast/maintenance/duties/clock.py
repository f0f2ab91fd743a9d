"""Brings nearer what lies too far ahead because the database's clock was set back.

A walk over leases, the permits of rates, and jobs that wait for their backoff: at once when the leader has noticed a
jump, and slowly all the time, for what happened while nobody led.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import ClassVar
from uuid import UUID

from holdfast.maintenance.duty import Desk, Duty, Next, Urgency
from holdfast.telemetry.events import Mended

__all__ = ["ClockWalk"]

_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST = UUID(int=0)
_STEADY_PAUSE_SECONDS = 2.0


class ClockWalk(Duty):
    """Nothing waits longer than its own length."""

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

    async def work(self, desk: Desk) -> Next:
        """Look at one batch, or at several small ones."""
        stages: list[Callable[[Desk], Awaitable[bool]]] = [self._leases, self._rates, self._backoff]
        while self._stage < len(stages):
            if await stages[self._stage](desk):
                return self.at_once() if self._hasty else self.after(_STEADY_PAUSE_SECONDS)
            self._stage += 1
        self._stage, self._hasty = 0, False
        return self.later()

    def resume(self) -> None:
        """The clock may have been set: walk over everything, now."""
        self._stage, self._lease, self._permit, self._entry = 0, None, ("rate", 0), (_LONG_AGO, _FIRST)
        self._hasty = True

    async def _leases(self, desk: Desk) -> bool:
        # After a jump all of them are watched: a clock that is set back again and again lets no lease lapse.
        *rows, place = await desk.rows("review_leases" if self._hasty else "clamp_leases", self._lease, self.batch.size)
        for row in rows:
            self.patience.watch.clamped(
                row["job_id"], row["attempt"], row["was"], row["expires_at"], row["lease_seconds"]
            )
        self._lease = place["reached"]
        self._tell("leases", sum(row["was"] != row["expires_at"] for row in rows))
        return self._lease is not None

    async def _rates(self, desk: Desk) -> bool:
        row = await desk.row("clamp_rates", *self._permit, self.batch.size)
        self._tell("permits of rates", row["changed"])
        more = row["reached_gate"] is not None
        self._permit = (row["reached_gate"], row["reached_slot"]) if more else ("rate", 0)
        return more

    async def _backoff(self, desk: Desk) -> bool:
        row = await desk.row("clamp_backoff", *self._entry, self.batch.size)
        self._tell("waiting jobs", row["changed"])
        more = row["reached_job"] is not None
        self._entry = (row["reached_run_at"], row["reached_job"]) if more else (_LONG_AGO, _FIRST)
        return more

    def _tell(self, what: str, number: int) -> None:
        if number:
            self.bus.emit(Mended(what="times too far ahead", detail=f"{number} {what}: the clock was set back"))

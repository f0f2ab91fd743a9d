"""The leader's duties, each a method that does a bounded bit of work and says when it wants to be called again."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

from holdfast.maintenance.touch import Touch
from holdfast.store.database import Database
from holdfast.telemetry.bus import Bus
from holdfast.telemetry.events import Mended

__all__ = ["Duties", "Duty"]

_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)
_BATCH = 500
#: How often to look for what a notification should have told. No duty is done while nothing listens.
_UNASKED_SECONDS = 5.0
#: The same where somebody sits and waits.
_REQUESTS_SECONDS = 2.0
#: Enqueueing tells of jobs that are due within this time, and is silent about later ones: they must be looked for.
_PROMOTE_SECONDS = 2.0
#: How often to look whether what waits for a permit has one, while something does.
_ADMIT_SECONDS = 0.25
#: Leases last for many seconds: how late one is found to have lapsed hardly matters.
_SWEEP_SECONDS = 2.0
#: Few at a time: their locks are held until the last of them is done.
_REQUESTS = 10


@dataclass(slots=True)
class Duty:
    """One duty and when it is next due, by the monotonic clock."""

    name: str
    work: Callable[[], Awaitable[float]]
    due: float = 0.0


class Duties:
    """Everything that maintenance does, while it leads."""

    def __init__(self, database: Database, bus: Bus, touch: Touch) -> None:
        self._database, self._bus = database, bus
        self._touch = touch
        self._promoted_to = _LONG_AGO
        self._full_promote_at = 0.0
        self._walked_to: UUID | None = None
        self._retired_to: UUID | None = None
        self._admitted_to = ""
        self.all = [
            Duty("requests", self._execute_requests),
            Duty("elect", self._elect),
            Duty("promote", self._promote),
            Duty("admit", self._admit),
            Duty("sweep", self._sweep),
            Duty("reconcile", self._reconcile),
            Duty("age", self._age),
            Duty("strays", self._drop_strays),
            Duty("retire", self._retire),
        ]

    def hurry(self) -> None:
        """Something was asked for: requests, elections, promotions and permits are due now."""
        for duty in self.all[:4]:
            duty.due = 0.0

    async def _execute_requests(self) -> float:
        done = await self._database.value("execute_requests", _REQUESTS)
        return 0.0 if done >= _REQUESTS else _REQUESTS_SECONDS

    async def _elect(self) -> float:
        called = await self._database.value("elect", _BATCH)
        return 0.0 if called >= _BATCH else _UNASKED_SECONDS

    async def _promote(self) -> float:
        """To the moment: the next call is when the next job is due, and two seconds at most from now.

        Entries before the last promoted one are looked at again now and then: a transaction may commit late.
        """
        asked_at = time.monotonic()
        everything = asked_at >= self._full_promote_at
        row = await self._database.row("promote", _BATCH, _LONG_AGO if everything else self._promoted_to)
        assert row is not None  # noqa: S101 - promote always answers one row
        if everything:
            self._full_promote_at = asked_at + max(1.0, 20 * (time.monotonic() - asked_at))
        self._promoted_to = max(self._promoted_to, row["reached"] or _LONG_AGO)
        if row["promoted"] >= _BATCH:
            return 0.0
        following = row["next_in_seconds"]
        return _PROMOTE_SECONDS if following is None else min(_PROMOTE_SECONDS, max(0.0, following))

    async def _admit(self) -> float:
        row = await self._database.row("admit", self._admitted_to)
        assert row is not None  # noqa: S101 - admit always answers one row
        asked_from, self._admitted_to = self._admitted_to, row["reached"]
        return _ADMIT_SECONDS if row["looked"] or asked_from else _UNASKED_SECONDS

    async def _sweep(self) -> float:
        # A sweep must not be what a database that stood still begins with.
        if not self._touch.fresh:
            await self._touch.felt(self._database.value("postmaster_start"))
        if not self._touch.good:
            return 0.5
        asked_at = time.monotonic()
        rows = await self._database.rows("sweep", self._touch.seconds, 200, _LONG_AGO)
        for row in rows:
            self._bus.emit(
                Mended(
                    what="lapsed lease",
                    job_id=row["job_id"],
                    detail=f"attempt {row['attempt']} of {row['worker']} → {row['state']}",
                )
            )
        return 0.0 if len(rows) >= 200 else min(10.0, max(_SWEEP_SECONDS, 20 * (time.monotonic() - asked_at)))

    async def _reconcile(self) -> float:
        """A walk over all jobs, a bit at a time; small tables are walked once in a few seconds."""
        rows = await self._database.rows("reconcile", self._walked_to, 1000)
        for row in rows:
            if row["job_id"] is not None:
                self._bus.emit(Mended(what=row["repair"], job_id=row["job_id"]))
        self._walked_to = rows[-1]["last"] if rows else None
        return 1.0 if rows else 5.0

    async def _age(self) -> float:
        aged = await self._database.value("age", _BATCH)
        return 0.0 if aged >= _BATCH else 10.0

    async def _drop_strays(self) -> float:
        dropped = await self._database.value("drop_strays")
        headless = await self._database.value("headless_targets")
        if dropped or headless:
            self._bus.emit(Mended(what="strays", detail=f"{dropped} dropped, {headless} targets seated"))
        await self._database.value("forget_workers")
        await self._database.value("forget_permits")
        return 0.0 if dropped >= _BATCH or headless >= _BATCH else 15.0

    async def _retire(self) -> float:
        row = await self._database.row("retire", self._retired_to, _BATCH)
        self._retired_to = row["reached"] if row is not None else None
        return 0.2 if self._retired_to is not None else 300.0

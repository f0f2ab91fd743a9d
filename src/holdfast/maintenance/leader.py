"""Leads maintenance, if no other process does: one row with holder, term and expiry on the database's clock.

A task that does nothing else renews the term, so that no duty can cost it. The renewals also show whether the database
answers (see `patience`). A candidate measures by its monotonic clock how long there was no renewal: so a term does not
last longer when the database's clock is set back.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import time

from holdfast.config import Config
from holdfast.errors import HoldfastError
from holdfast.lifecycle.service import Service
from holdfast.maintenance.crew import SLOTS, Crew
from holdfast.maintenance.duties import new_duties
from holdfast.maintenance.duty import Urgency
from holdfast.maintenance.patience import Answer, Patience
from holdfast.store.ear import Ear
from holdfast.store.maintenance import MaintenanceStore
from holdfast.store.maintenance_answers import Presidency
from holdfast.store.upkeep import UpkeepDatabase
from holdfast.telemetry.bus import Bus
from holdfast.telemetry.events import ClockJumped, LeaderChanged

__all__ = ["Maintenance"]

_NAME = "maintenance"
_TERM_SECONDS = 5.0
_RENEW_SECONDS = 2.0
#: A renewal that takes longer would be too late for its term.
_PROBE_SECONDS = 3.0
#: How long to wait before looking again for transactions that send no notification: at first, and at most.
_LINGER_SECONDS = (0.005, 0.1)


class Maintenance(Service):
    """Tries to lead; while it leads, its crew carries out the duties."""

    name = "maintenance"

    def __init__(self, config: Config, bus: Bus, *, listens: bool = True) -> None:
        """Create it. Without `listens`, another part of the process listens and calls `heard`."""
        super().__init__(bus)
        self._holder = secrets.token_hex(8)
        self._leading = False
        self._renew_at = 0.0
        #: Since when an answer is overdue.
        self._asking_since: float | None = None
        #: The number of the last renewal by any process, and since when this process has seen that number.
        self._renewals: int | None = None
        self._renewals_since = 0.0
        self._attention = asyncio.Event()
        self._patience = Patience(self._probe_soon)
        duties = new_duties(bus, self._patience)
        urgent = sum(duty.urgency is Urgency.URGENT for duty in duties)
        # A connection for each duty that may run at the same time, for renewals and for attention: nobody ever waits.
        self._database = UpkeepDatabase(config, size=urgent + SLOTS + 2)
        self._crew = Crew(duties, self._database, bus)
        self._ear = Ear(config, ("duty",), lambda _, payload: self.heard(payload)) if listens else None

    async def run(self) -> None:
        """Renew the term until `stop`, then let another process lead at once. If it was canceled, it can run again."""
        self._leading, self._renew_at = False, 0.0
        await self._database.open()
        self._crew.start()
        beside = [asyncio.create_task(self._attend(), name="maintenance attention")]
        if self._ear is not None:
            beside.append(asyncio.create_task(self._ear.run(), name="maintenance ear"))
        try:
            await super().run()
        finally:
            await self._crew.stop()
            if self._leading:
                with contextlib.suppress(HoldfastError, TimeoutError):
                    await self._store(1.0).resign(_NAME, self._holder)
            for task in beside:
                task.cancel()
            await asyncio.gather(*beside, return_exceptions=True)
            await self._database.close()

    async def round(self) -> float:
        """Renew the term if it is time, or if somebody asked for a probe of the database."""
        if time.monotonic() >= self._renew_at:
            due_at = self._renew_at or time.monotonic()
            asked_at = time.monotonic()
            if self._asking_since is None:
                self._asking_since = min(due_at, asked_at)
            try:
                presidency = await self._store(_PROBE_SECONDS).preside(
                    _NAME,
                    self._holder,
                    term_seconds=_TERM_SECONDS,
                    calm_seconds=self._patience.seconds,
                    report=self._report(),
                    renewals=self._renewals,
                    renewals_for_seconds=asked_at - self._renewals_since,
                )
            except (HoldfastError, MemoryError):
                self._lead(False)
                raise
            self._renew_at = asked_at + _RENEW_SECONDS
            self._answered(presidency, asked_at)
        return max(0.0, self._renew_at - time.monotonic())

    def heard(self, payload: str) -> None:
        """Handle a notification. An empty payload means that the leader resigned, or that notifications were missed."""
        if self._leading:
            self._attention.set()
        elif not payload:
            self._probe_soon()

    async def _attend(self) -> None:
        """After each notification, look until no transaction is left that may have sent none because of it.

        Whether there is such a transaction is asked before the look: one that ends in between is seen by the look.
        """
        while True:
            await self._attention.wait()
            self._attention.clear()
            pause = _LINGER_SECONDS[0]
            while self._leading:
                try:
                    silent = await self._store(_PROBE_SECONDS).unheard()
                except (HoldfastError, MemoryError):
                    silent = False
                self._crew.hurry()
                if not silent:
                    break
                await asyncio.sleep(pause)
                pause = min(_LINGER_SECONDS[1], 2 * pause)

    def _answered(self, presidency: Presidency, asked_at: float) -> None:
        answer = Answer(
            due_at=asked_at if self._asking_since is None else self._asking_since,
            asked_at=asked_at,
            answered_at=time.monotonic(),
            clock=presidency.clock,
            server_started=presidency.server_started,
        )
        self._asking_since = None
        if presidency.renewals != self._renewals:
            self._renewals, self._renewals_since = presidency.renewals, answer.answered_at
        found = self._patience.answered(answer)
        if found is not None and found.cause == "clock":
            self._bus.emit(ClockJumped(what=found.what))
            self._crew.start_over()
        self._lead(presidency.leads)
        if presidency.unheard:
            self._attention.set()

    def _store(self, seconds: float) -> MaintenanceStore:
        return MaintenanceStore(self._database.within(seconds))

    def _report(self) -> str:
        return json.dumps({**self._patience.report(), "sick": self._crew.sick})

    def _probe_soon(self) -> None:
        self._renew_at = 0.0
        self.wake()

    def _lead(self, leading: bool) -> None:
        if leading != self._leading:
            self._leading = leading
            self._bus.emit(LeaderChanged(holder=self._holder, leading=leading))
        self._crew.lead(leading)

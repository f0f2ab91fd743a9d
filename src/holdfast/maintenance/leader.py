"""Leads maintenance, if nobody else does: one row with holder, term and expiry on the database's clock.

The term is renewed by a task that does nothing else, so that no duty can cost it. Its renewals are also what tells
whether the database answers (see `patience`).
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time

from holdfast.config import Config
from holdfast.errors import DatabaseUnavailable, HoldfastError
from holdfast.lifecycle.service import Service
from holdfast.maintenance.crew import SLOTS, Crew
from holdfast.maintenance.duties import new_duties
from holdfast.maintenance.duty import Urgency
from holdfast.maintenance.ear import Ear
from holdfast.maintenance.patience import Patience
from holdfast.store.upkeep import UpkeepDatabase
from holdfast.telemetry.bus import Bus
from holdfast.telemetry.events import LeaderChanged

__all__ = ["Maintenance"]

_NAME = "maintenance"
_TERM_SECONDS = 5.0
_RENEW_SECONDS = 2.0
#: A renewal that takes longer would come too late for its term.
_PROBE_SECONDS = 3.0


class Maintenance(Service):
    """Tries to lead; while it leads, its crew does the duties."""

    name = "maintenance"

    def __init__(self, config: Config, bus: Bus, *, listens: bool = True) -> None:
        """Without `listens`, another part of the process does so, and calls `heard`."""
        super().__init__(bus)
        self._holder = secrets.token_hex(8)
        self._leading = False
        self._renew_at = 0.0
        self._patience = Patience(self._probe_soon)
        duties = new_duties(bus, self._patience)
        urgent = sum(duty.urgency is Urgency.URGENT for duty in duties)
        # One for each that may be under way at the same time, and one for renewals: nobody ever waits for another.
        self._database = UpkeepDatabase(config, size=urgent + SLOTS + 1)
        self._crew = Crew(duties, self._database, bus)
        self._ear = Ear(config, self.heard) if listens else None

    async def run(self) -> None:
        """Renew until `stop`, then let another lead at once."""
        await self._database.open()
        self._crew.start()
        ear = asyncio.create_task(self._ear.run(), name="maintenance ear") if self._ear is not None else None
        try:
            await super().run()
        finally:
            await self._crew.stop()
            if self._leading:
                with contextlib.suppress(HoldfastError, TimeoutError):
                    await self._database.within(2.0).value("resign", _NAME, self._holder)
            if ear is not None:
                ear.cancel()
                await asyncio.gather(ear, return_exceptions=True)
            await self._database.close()

    async def round(self) -> float:
        """Renew the term if it is time, or if somebody wants to know whether the database answers."""
        now = time.monotonic()
        if now >= self._renew_at:
            try:
                leading = bool(
                    await self._database.within(_PROBE_SECONDS).value("lead", _NAME, self._holder, _TERM_SECONDS)
                )
            except DatabaseUnavailable:
                self._lead(False)
                raise
            self._renew_at = now + _RENEW_SECONDS
            self._patience.answered()
            self._lead(leading)
        return max(0.0, self._renew_at - time.monotonic())

    def heard(self, payload: str) -> None:
        """Something is to be done; an empty payload says that the leader resigned, or that more may have been said."""
        if self._leading:
            self._crew.hurry()
        elif not payload:
            self._probe_soon()

    def _probe_soon(self) -> None:
        self._renew_at = 0.0
        self.wake()

    def _lead(self, leading: bool) -> None:
        if leading != self._leading:
            self._leading = leading
            self._bus.emit(LeaderChanged(holder=self._holder, leading=leading))
        self._crew.lead(leading)

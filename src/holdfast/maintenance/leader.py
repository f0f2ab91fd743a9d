"""Leads maintenance, if nobody else does: one row with holder, term and expiry on the database's clock."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import Callable

from holdfast.config import Config
from holdfast.errors import DatabaseUnavailable, HoldfastError
from holdfast.lifecycle.service import Service
from holdfast.maintenance.duties import Duties, Duty
from holdfast.maintenance.touch import Touch
from holdfast.store.database import Database
from holdfast.store.lifeline import Lifeline
from holdfast.telemetry.bus import Bus
from holdfast.telemetry.events import DutyFailed, LeaderChanged

__all__ = ["Maintenance"]

_NAME = "maintenance"
_TERM_SECONDS = 5.0
_RENEW_SECONDS = 2.0
_AFTER_FAILURE_SECONDS = 1.0


class Maintenance(Service):
    """Tries to lead; while it leads, does the duties as they fall due."""

    name = "maintenance"

    def __init__(
        self,
        config: Config,
        database: Database,
        bus: Bus,
        *,
        lent: Callable[[], Lifeline | None] | None = None,
    ) -> None:
        """With `lent`, another part of the process listens for us too, on its connection, and calls `heard`."""
        super().__init__(bus)
        self._config, self._database, self._lent = config, database, lent
        self._holder = secrets.token_hex(8)
        self._leading = False
        self._renew_at = 0.0
        self._touch = Touch()
        self._ear: Lifeline | None = None
        self._duties = Duties(database, bus, self._touch)

    async def round(self) -> float:
        """Renew the term if it is time, then do what is due."""
        try:
            return await self._lead()
        except DatabaseUnavailable:
            self._lose_touch()
            raise

    async def run(self) -> None:
        """Rounds until `stop`, then let another lead at once."""
        try:
            await super().run()
        finally:
            if self._leading:
                with contextlib.suppress(HoldfastError, TimeoutError):
                    async with asyncio.timeout(2):
                        await self._database.value("resign", _NAME, self._holder)
            if self._ear is not None and self._lent is None:
                await self._ear.close()

    def heard(self, payload: str) -> None:
        """Something is to be done; an empty payload says that the leader resigned."""
        if self._leading:
            self._duties.hurry()
            self.wake()
        elif not payload:
            self._renew_at = 0.0
            self.wake()

    async def _listens(self) -> bool:
        """Whether there is a connection that hears of what is to be done. A new one is a break in touch."""
        if self._lent is not None:
            ear = self._lent()
            if ear is not None and ear.closed:
                raise DatabaseUnavailable("the connection that listens is lost")
            if ear is not self._ear:
                self._touch.lost()
            self._ear = ear
            return ear is not None
        if self._ear is None or self._ear.closed:
            self._touch.lost()
            self._ear = await Lifeline.open(self._config)
            await self._ear.listen(("duty",), lambda _topic, payload: self.heard(payload))
        return True

    async def _lead(self) -> float:
        now = time.monotonic()
        if not await self._listens():
            return _AFTER_FAILURE_SECONDS
        if now >= self._renew_at:
            asked = self._database.value("lead", _NAME, self._holder, _TERM_SECONDS)
            leading = bool(await self._touch.felt(asked))
            self._renew_at = now + _RENEW_SECONDS
            if leading != self._leading:
                self._leading = leading
                self._bus.emit(LeaderChanged(holder=self._holder, leading=leading))
                self._duties.hurry()
        if not self._leading:
            return self._renew_at - time.monotonic()
        for duty in self._duties.all:
            if time.monotonic() >= duty.due and not self.stopping.is_set():
                await self._do(duty)
        upcoming = min(self._renew_at, *(duty.due for duty in self._duties.all))
        return max(0.0, upcoming - time.monotonic())

    async def _do(self, duty: Duty) -> None:
        """One duty; if it fails, it comes again later, and those after it have their turn."""
        duty.due = time.monotonic() + _AFTER_FAILURE_SECONDS
        try:
            duty.due = time.monotonic() + await self._touch.felt(duty.work())
        except DatabaseUnavailable:
            raise
        except HoldfastError as fault:
            self._bus.emit(DutyFailed(duty=duty.name, fault=str(fault)))

    def _lose_touch(self) -> None:
        """The time without database counts for no lease: patience starts anew."""
        self._touch.lost()
        self._renew_at = 0.0
        self._leading = False

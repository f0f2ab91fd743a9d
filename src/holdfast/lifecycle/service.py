"""A loop that looks again after a while or when it is woken, survives the database, and stops when told.

Subclasses say what one round does (`round`), and how long to wait after it. A round that cannot reach the
database, or that the database refuses, is repeated with growing, jittered pauses, for ever. So is one that finds no
memory: a handler may have it for the moment.
"""

from __future__ import annotations

import asyncio
import random
import time
from abc import ABC, abstractmethod

from holdfast.errors import DatabaseUnavailable, HoldfastError
from holdfast.telemetry.bus import Bus, Teller
from holdfast.telemetry.events import DatabaseBack, DatabaseLost

__all__ = ["NO_MEMORY", "Outage", "Service"]

#: Made ahead: where there is no memory, there may be none for an error.
NO_MEMORY = HoldfastError("this process has no memory left")

_FIRST_SECONDS, _LONGEST_SECONDS = 0.05, 1.0
#: How long the database must have answered for the next pause to be a short one again.
_LASTING_SECONDS = 2.0


class Outage:
    """Tells of the beginning and the end of a time without database, once each, and how long to pause.

    A connection that worked and was cut is replaced at once. Whatever fails again and again is tried with growing
    pauses, which begin anew only after a success that has lasted.
    """

    def __init__(self, part: str, bus: Teller) -> None:
        self._part, self._bus = part, bus
        self._since: float | None = None
        self._pause = _FIRST_SECONDS
        #: Since when the database has answered; None if it has not since the last failure.
        self._answering: float | None = None

    def lost(self, fault: Exception) -> float:
        """The database was out of reach; how long to wait before the next try."""
        now = time.monotonic()
        if self._since is None:
            self._since = now
            away = isinstance(fault, DatabaseUnavailable) and fault.away
            self._bus.emit(DatabaseLost(part=self._part, fault=str(fault), away=away))
        answering, self._answering = self._answering, None
        if answering is not None and now - answering >= _LASTING_SECONDS:
            self._pause = _FIRST_SECONDS
        if answering is not None and isinstance(fault, DatabaseUnavailable) and fault.reason == "cut":
            return 0.0
        pause, self._pause = self._pause, min(_LONGEST_SECONDS, self._pause * 2)
        return pause * random.uniform(0.5, 1.0)  # noqa: S311 - jitter is no secret

    def over(self) -> None:
        """The database did what it was asked."""
        if self._answering is None:
            self._answering = time.monotonic()
        if self._since is not None:
            self._bus.emit(DatabaseBack(part=self._part, seconds=time.monotonic() - self._since))
            self._since = None


class Service(ABC):
    """One background loop with an owner."""

    name = "service"

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._woken = asyncio.Event()
        self.stopping = asyncio.Event()

    @abstractmethod
    async def round(self) -> float:
        """Do what is to be done now; how many seconds to wait before the next round."""

    async def run(self) -> None:
        """Rounds until `stop`."""
        outage = Outage(self.name, self._bus)
        while not self.stopping.is_set():
            self._woken.clear()
            try:
                pause = await self.round()
                outage.over()
            except HoldfastError as fault:
                pause = outage.lost(fault)
            except MemoryError:
                pause = outage.lost(NO_MEMORY)
            if pause > 0 and not self.stopping.is_set():
                try:
                    async with asyncio.timeout(pause):
                        await self._woken.wait()
                except TimeoutError:
                    pass
                except MemoryError:
                    await asyncio.sleep(0)  # not even for a timer: let others run, and give some back

    @property
    def woken(self) -> bool:
        """Whether it is about to look."""
        return self._woken.is_set()

    def wake(self) -> None:
        """Look now."""
        self._woken.set()

    def stop(self) -> None:
        """End after the round that is under way."""
        self.stopping.set()
        self._woken.set()

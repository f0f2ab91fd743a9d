"""A background loop that runs a round after a pause or when it is woken, survives outages, and stops when told.

Subclasses define what one round does (`round`), and how long to wait after it. A round that cannot reach the database,
or that the database refuses, is repeated with growing, jittered pauses, for ever. So is one that runs out of memory: a
handler may use all of it for the moment.
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

#: Created in advance: without memory, an error could not be created either.
NO_MEMORY = HoldfastError("this process has no memory left")

_FIRST_SECONDS, _LONGEST_SECONDS = 0.05, 1.0
#: How long the database must have answered before the next pause is short again.
_LASTING_SECONDS = 2.0


class Outage:
    """Reports the beginning and the end of an outage, once each, and says how long to pause.

    A connection that worked and was cut is replaced at once. Repeated failures are followed by growing pauses, which
    become short again only after a lasting success.
    """

    def __init__(self, part: str, bus: Teller) -> None:
        self._part, self._bus = part, bus
        self._since: float | None = None
        self._pause = _FIRST_SECONDS
        #: Since when the database has answered; None if it has not since the last failure.
        self._answering: float | None = None

    def lost(self, fault: Exception) -> float:
        """Note that the database was out of reach. Returns how long to wait before the next try."""
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
        """Note that the database has answered."""
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
        """Do the work that is due. Returns how many seconds to wait before the next round."""

    async def run(self) -> None:
        """Do rounds until `stop`."""
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
                    await asyncio.sleep(0)  # no memory even for a timer: let others run, and free some

    @property
    def woken(self) -> bool:
        """Whether the next round begins without a pause."""
        return self._woken.is_set()

    def wake(self) -> None:
        """Begin the next round now."""
        self._woken.set()

    def stop(self) -> None:
        """End after the current round."""
        self.stopping.set()
        self._woken.set()

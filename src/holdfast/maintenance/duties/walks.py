"""Walks over whole tables in bounded steps, which take a share of the time and leave the rest to others."""

from __future__ import annotations

import time
from abc import abstractmethod
from typing import ClassVar

from holdfast.maintenance.duty import Duty, Next, Urgency
from holdfast.store.maintenance import MaintenanceStore
from holdfast.store.maintenance_answers import Walked
from holdfast.telemetry.events import Mended

__all__ = ["Walk", "rest"]


def rest(worked_seconds: float, *, share: float = 0.1, at_most: float = 0.1) -> float:
    """How long to pause after this much work, to use the given share of the time.

    If everything is slow, the pause is shorter, so that the walk still ends, but at least as long as the work.
    """
    return min(worked_seconds * (1 / share - 1), max(at_most, worked_seconds))


class Walk(Duty):
    """Mends or forgets rows on its way; the next call goes on where the last one ended."""

    urgency = Urgency.BACKGROUND
    interval_seconds = 15.0
    limit_seconds = 5.0
    most: ClassVar[int] = 1000
    #: The share of one connection's time that it takes, and the longest pause for it.
    share: ClassVar[float] = 0.1
    longest_rest_seconds: ClassVar[float] = 0.1
    #: The name of the mended rows in the event, None for no event.
    mends: ClassVar[str | None] = None

    _reached: list[str] | None = None

    @staticmethod
    @abstractmethod
    async def step(store: MaintenanceStore, after: list[str] | None, most: int, /) -> Walked:
        """The method of the store that makes a step."""

    async def work(self, store: MaintenanceStore) -> Next:
        """Make a step."""
        began = time.monotonic()
        mended, self._reached = await self.step(store, self._reached, self.batch.size)
        if mended and self.mends is not None:
            self.bus.emit(Mended(what=self.mends, detail=str(mended)))
        if self._reached is None:
            return self.later()
        return self.after(rest(time.monotonic() - began, share=self.share, at_most=self.longest_rest_seconds))

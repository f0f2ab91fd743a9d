"""Walks over whole tables, a bounded bit at a time, that take a share of the time and leave the rest to others."""

from __future__ import annotations

import time
from typing import ClassVar

from holdfast.maintenance.duty import Desk, Duty, Next, Urgency
from holdfast.telemetry.events import Mended

__all__ = ["Walk", "rest"]


def rest(worked_seconds: float, *, share: float = 0.1, at_most: float = 0.1) -> float:
    """How long to pause after so much work, to use this share of the time.

    Where all is slow the pause is shorter, so that the walk still ends, but as long as the work was.
    """
    return min(worked_seconds * (1 / share - 1), max(at_most, worked_seconds))


class Walk(Duty):
    """Mends or forgets what it finds on its way; the next call goes on where the last one ended."""

    urgency = Urgency.BACKGROUND
    interval_seconds = 15.0
    limit_seconds = 5.0
    most: ClassVar[int] = 1000
    #: The share of the time of one connection that it takes, and the longest pause for it.
    share: ClassVar[float] = 0.1
    longest_rest_seconds: ClassVar[float] = 0.1
    #: The statement that makes a step.
    statement: ClassVar[str]
    #: What is told of what was mended, if anything.
    mends: ClassVar[str | None] = None

    _reached: list[str] | None = None

    async def work(self, desk: Desk) -> Next:
        """Make a step."""
        began = time.monotonic()
        row = await desk.row(self.statement, self._reached, self.batch.size)
        self._reached = row["reached"]
        if row["mended"] and self.mends is not None:
            self.bus.emit(Mended(what=self.mends, detail=str(row["mended"])))
        if self._reached is None:
            return self.later()
        return self.after(rest(time.monotonic() - began, share=self.share, at_most=self.longest_rest_seconds))

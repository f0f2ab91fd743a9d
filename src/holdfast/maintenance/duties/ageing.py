"""Lets jobs that have waited for long go first."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from holdfast.maintenance.duties.walks import rest
from holdfast.maintenance.duty import Duty, Next, Urgency
from holdfast.store.maintenance import MaintenanceStore

__all__ = ["Ageing"]

#: How many lines are looked at for each job that may be aged at once.
_LINES_PER_JOB = 4
_BEGINNING = (0, 0)


class Ageing(Duty):
    """A walk over ready jobs that raises the rank of old jobs which others can pass.

    Whether others can pass depends on all lines together: what one walk learned counts in the next.
    """

    name = "age"
    urgency = Urgency.ORDINARY
    interval_seconds = 10.0
    limit_seconds = 5.0

    #: The stream and the rank that the walk has reached.
    _reached = _BEGINNING

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._last, self._seen = _Seen(), _Seen()

    async def work(self, store: MaintenanceStore) -> Next:
        """Age some of the jobs."""
        began, size = time.monotonic(), self.batch.size
        mixed = self._last.mixed or self._seen.mixed
        aged = await store.age(self._reached, lines=size * _LINES_PER_JOB, most=size, mixed=mixed)
        self._seen.add(aged.ranks)
        if aged.reached is not None:
            self._reached = aged.reached
            return self.after(rest(time.monotonic() - began, share=0.5))
        # A walk of several steps that met a second rank only on its way has left out the lines before it.
        again = self._seen.mixed and not mixed and self._reached != _BEGINNING
        self._reached = _BEGINNING
        self._last, self._seen = self._seen, _Seen()
        return self.at_once() if again else self.later()


@dataclass(slots=True)
class _Seen:
    """What a walk has learned so far."""

    ranks: tuple[int, int] | None = None

    def add(self, ranks: tuple[int, int] | None) -> None:
        if ranks is not None:
            low, high = self.ranks or ranks
            self.ranks = min(low, ranks[0]), max(high, ranks[1])

    @property
    def mixed(self) -> bool:
        return self.ranks is not None and self.ranks[0] < self.ranks[1]

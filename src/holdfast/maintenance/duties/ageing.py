"""Lets jobs that have waited for long go first."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from holdfast.maintenance.duties.walks import rest
from holdfast.maintenance.duty import Desk, Duty, Next, Urgency

__all__ = ["Ageing"]

#: Lines that are looked at for every job that may be aged at once.
_LINES_PER_JOB = 4


class Ageing(Duty):
    """A walk over what is ready that raises the rank of old jobs which others can pass.

    Whether they can shows in all of it together: what was learned by one walk counts in the next.
    """

    name = "age"
    urgency = Urgency.ORDINARY
    interval_seconds = 10.0
    limit_seconds = 5.0

    _stream = _rank = 0

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._last, self._seen = _Seen(), _Seen()

    async def work(self, desk: Desk) -> Next:
        """Age some of them."""
        began, size = time.monotonic(), self.batch.size
        mixed = self._last.mixed or self._seen.mixed
        row = await desk.row("age", self._stream, self._rank, size * _LINES_PER_JOB, size, mixed)
        self._seen.add(row)
        if row["reached_stream"] is not None:
            self._stream, self._rank = row["reached_stream"], row["reached_rank"]
            return self.after(rest(time.monotonic() - began, share=0.5))
        # A walk of several steps that met a second rank only on its way left out what stood before it.
        again = self._seen.mixed and not mixed and (self._stream, self._rank) != (0, 0)
        self._stream = self._rank = 0
        self._last, self._seen = self._seen, _Seen()
        return self.at_once() if again else self.later()


@dataclass(slots=True)
class _Seen:
    """What a walk has learned so far."""

    ranks: tuple[int, int] | None = None

    def add(self, row: Any) -> None:
        if row["lowest"] is not None:
            low, high = self.ranks or (row["lowest"], row["highest"])
            self.ranks = min(low, row["lowest"]), max(high, row["highest"])

    @property
    def mixed(self) -> bool:
        return self.ranks is not None and self.ranks[0] < self.ranks[1]

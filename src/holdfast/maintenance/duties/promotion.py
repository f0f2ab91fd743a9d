"""Makes eligible what is due, to the moment: the next call is when the next job is due."""

from __future__ import annotations

import time
from datetime import datetime

from holdfast.maintenance.crowd import Crowd
from holdfast.maintenance.duty import Desk, Duty, Next, Urgency

__all__ = ["Promotion"]

#: How long a full look may be put off: at least, and at most, whatever it costs.
_FULL_LOOK_SECONDS = (0.05, 1.0)


class Promotion(Duty):
    """Scheduled and retrying jobs become queued.

    Entries before the last promoted one are looked at again, a moment after each look that left them out: a transaction
    may commit late. How soon depends on what such a full look costs: a twentieth of the time, but within a second.

    While more is due than one call promotes, tenants take turns (see `Crowd`): the backlog of one does not delay the
    others.
    """

    name = "promote"
    urgency = Urgency.URGENT
    #: Enqueueing tells of jobs that are due within this time, and is silent about later ones: they must be looked for.
    interval_seconds = 2.0
    limit_seconds = 5.0
    heeds = True

    _promoted_to: datetime | None = None
    _full_look_at = 0.0
    _crowd: Crowd | None = None

    async def work(self, desk: Desk) -> Next:
        """Promote what is due."""
        asked_at, size = time.monotonic(), self.batch.size
        everything = asked_at >= self._full_look_at
        if self._crowd is not None and await self._crowd.serve(desk, size, oldest=everything):
            return self.at_once()
        row = await desk.row("promote", size, None if everything else self._promoted_to)
        if everything:
            least, most = _FULL_LOOK_SECONDS
            self._full_look_at = asked_at + min(most, max(least, 20 * (time.monotonic() - asked_at)))
        reached = row["reached"]
        if reached is not None and (self._promoted_to is None or reached > self._promoted_to):
            self._promoted_to = reached
        if row["promoted"] >= size:
            self._crowd = self._crowd or Crowd()
            return self.at_once()
        self._crowd = None
        following = row["next_in_seconds"]
        wait = self.interval_seconds if following is None else min(self.interval_seconds, following)
        if not everything:
            wait = min(wait, self._full_look_at - time.monotonic())
        return self.later(max(0.001, wait))

    def resume(self) -> None:
        """The clock may have been set back: what is due now may lie before what was promoted."""
        self._promoted_to, self._full_look_at, self._crowd = None, 0.0, None

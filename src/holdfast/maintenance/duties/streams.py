"""Forgets streams that have been idle, and brings back those in which something stands again."""

from __future__ import annotations

import time

from holdfast.maintenance.duties.walks import Walk
from holdfast.maintenance.duty import Desk, Next, Urgency

__all__ = ["ForgetStreams", "ServeStreams"]

#: Notifications come in crowds, hardly ever because of a stream. The least and the longest pause between two walks, and
#: how many times as long as a walk the pause after it is.
_LEAST_PAUSE, _LONGEST_PAUSE, _PAUSE_TIMES = 0.25, 60.0, 20


class ServeStreams(Walk):
    """What came back to a stream that was forgotten is offered to workers again.

    Most jobs that return bring their stream back themselves. Left for this duty are jobs that a client released, or
    recorded in a transaction that was open for very long, and entries that were written by hand.
    """

    name = "serve streams"
    statement = "serve_streams"
    urgency = Urgency.ORDINARY
    interval_seconds = 5.0
    heeds = True

    _next_at = float("-inf")

    async def work(self, desk: Desk) -> Next:
        """Look where something stands, but not for every notification."""
        began = time.monotonic()
        if self._reached is None and began < self._next_at:
            return self.later(self._next_at - began)
        following = await super().work(desk)
        ended = time.monotonic()
        self._next_at = ended + min(_LONGEST_PAUSE, max(_LEAST_PAUSE, _PAUSE_TIMES * (ended - began)))
        return following


class ForgetStreams(Walk):
    """Streams that have been idle for long are closed, and removed once nobody can use them any more."""

    name = "forget streams"
    statement = "forget_streams"
    interval_seconds = 30.0

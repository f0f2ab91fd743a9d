"""Forgets idle streams, and brings back those that have jobs again."""

from __future__ import annotations

import time

from holdfast.maintenance.duties.walks import Walk
from holdfast.maintenance.duty import Next, Urgency
from holdfast.store.maintenance import MaintenanceStore

__all__ = ["ForgetStreams", "ServeStreams"]

#: Notifications are frequent, and hardly ever caused by a stream. The shortest and the longest pause between two walks,
#: and how many times as long as the walk the pause after it is.
_LEAST_PAUSE, _LONGEST_PAUSE, _PAUSE_TIMES = 0.25, 60.0, 20


class ServeStreams(Walk):
    """Offers forgotten streams to workers again when jobs have returned to them.

    Most jobs that return bring their stream back themselves. This duty handles jobs that a client released, or recorded
    in a transaction that was open for very long, and entries that were written by hand.
    """

    name = "serve streams"
    step = staticmethod(MaintenanceStore.serve_streams)
    urgency = Urgency.ORDINARY
    interval_seconds = 5.0
    heeds = True

    _next_at = float("-inf")

    async def work(self, store: MaintenanceStore) -> Next:
        """Look for streams with jobs, but not for every notification."""
        began = time.monotonic()
        if self._reached is None and began < self._next_at:
            return self.later(self._next_at - began)
        following = await super().work(store)
        ended = time.monotonic()
        self._next_at = ended + min(_LONGEST_PAUSE, max(_LEAST_PAUSE, _PAUSE_TIMES * (ended - began)))
        return following


class ForgetStreams(Walk):
    """Closes streams that have been idle for long, and deletes them once nobody can use them any more."""

    name = "forget streams"
    step = staticmethod(MaintenanceStore.forget_streams)
    interval_seconds = 30.0

"""When a worker stops: the first request drains it, the second one hurries it; and how long it waits for handlers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from holdfast.worker.claimed import ClaimedAttempts
from holdfast.worker.settings import WorkerSettings
from holdfast.worker.slots import Slots

__all__ = ["CLEAN_UP_SECONDS", "Drain", "drain_pauses"]

#: How long interrupted handlers may take to clean up, and a stuck thread to return after its timeout.
CLEAN_UP_SECONDS = 10.0


def drain_pauses(policy: str, *, target: str | None, on_failure: str) -> bool:
    """Whether a drain pauses a job that it cuts short, for a person to resume; otherwise it hands the job back.

    A paused job blocks its target. So this is the default only for types whose failures also wait for a person: a
    deploy must not block customers unless somebody chose that.
    """
    return on_failure == "hold" if policy == "auto" or target is None else policy == "pause"


class Drain:
    """The end of a worker, from the first request to the moment when its handlers are given up."""

    def __init__(self, settings: WorkerSettings, slots: Slots, claimed: ClaimedAttempts) -> None:
        self._settings, self._slots, self._claimed = settings, slots, claimed
        self.begun, self.hurried = asyncio.Event(), asyncio.Event()
        self._an_end = asyncio.Event()
        self._asked = False
        self._over_at: float | None = None

    def ask(self) -> None:
        """Stop claiming and let running jobs finish; asked again, interrupt them now."""
        if self._asked:
            self.hurried.set()
        self._asked = True
        self.begun.set()

    def begin(self) -> tuple[float, float]:
        """Begin the drain now. Returns the length of the grace period, which is settled by that, and when it ends."""
        grace = self._settings.grace_seconds
        grace_end = time.monotonic() + grace
        self._over_at = grace_end + CLEAN_UP_SECONDS
        return grace, grace_end

    def over_at(self, told_to_stop: Callable[[], bool]) -> float | None:
        """When the drain must be over; None if there is none. A blocked event loop may not have heard of it yet."""
        if self._over_at is None and told_to_stop():
            self._over_at = time.monotonic() + self._settings.grace_seconds + CLEAN_UP_SECONDS
        return self._over_at

    def handler_ended(self) -> None:
        """Note that a handler has ended."""
        self._an_end.set()

    async def idle(self, until: float, *, or_hurry: bool) -> None:
        """Wait until only stuck handlers run, the time is over, or (with `or_hurry`) somebody is in a hurry."""
        while (left := until - time.monotonic()) > 0 and not (or_hurry and self.hurried.is_set()):
            if self._slots.used <= sum(h.stuck and not h.ended for h in self._claimed.all()):
                return
            self._an_end.clear()
            waits = [asyncio.create_task(self._an_end.wait())]
            if or_hurry:
                waits.append(asyncio.create_task(self.hurried.wait()))
            await asyncio.wait(waits, timeout=min(0.5, left), return_when=asyncio.FIRST_COMPLETED)
            for wait in waits:
                wait.cancel()

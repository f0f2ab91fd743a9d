"""When a worker is to stop: told once it drains, told again it hurries; and until when it waits for its handlers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from holdfast.worker.held import HeldAttempts
from holdfast.worker.slots import Slots

__all__ = ["CLEAN_UP_SECONDS", "Drain", "drain_pauses"]

#: How long interrupted handlers may take to clean up, and a stuck thread to return after its timeout.
CLEAN_UP_SECONDS = 10.0


def drain_pauses(policy: str, *, target: str | None, on_failure: str) -> bool:
    """Whether a drain pauses a job that it cuts short, for a person to resume; else it hands the job back.

    A paused job blocks its target, so that is for types whose failures are for a person, too: a deploy must not block
    customers unless somebody wants it.
    """
    return on_failure == "hold" if policy == "auto" or target is None else policy == "pause"


class Drain:
    """The end of a worker, from the first word of it to the moment when its handlers are given up."""

    def __init__(self, grace_seconds: float, slots: Slots, held: HeldAttempts) -> None:
        self.grace_seconds, self._slots, self._held = grace_seconds, slots, held
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

    def begin(self) -> float:
        """It begins now; when the grace ends."""
        grace_end = time.monotonic() + self.grace_seconds
        self._over_at = grace_end + CLEAN_UP_SECONDS
        return grace_end

    def over_at(self, told_to_stop: Callable[[], bool]) -> float | None:
        """When it must be over; None if there is none. Perhaps the event loop is blocked and has not heard of it."""
        if self._over_at is None and told_to_stop():
            self._over_at = time.monotonic() + self.grace_seconds + CLEAN_UP_SECONDS
        return self._over_at

    def handler_ended(self) -> None:
        """One less to wait for."""
        self._an_end.set()

    async def idle(self, until: float, *, or_hurry: bool) -> None:
        """Wait until no handler runs but stuck ones, the time is over, or somebody is in a hurry."""
        while (left := until - time.monotonic()) > 0 and not (or_hurry and self.hurried.is_set()):
            if self._slots.used <= sum(h.stuck and not h.ended for h in self._held.all()):
                return
            self._an_end.clear()
            waits = [asyncio.create_task(self._an_end.wait())]
            if or_hurry:
                waits.append(asyncio.create_task(self.hurried.wait()))
            await asyncio.wait(waits, timeout=min(0.5, left), return_when=asyncio.FIRST_COMPLETED)
            for wait in waits:
                wait.cancel()

"""Restores what a handler changed in state that it shares with the worker, and that the worker cannot work without."""

from __future__ import annotations

import asyncio
import sys
import time

from holdfast.lifecycle.limits import SoftLimits
from holdfast.worker.copies import Original

__all__ = ["Surroundings"]

#: To run an event loop of its own, a handler needs longer than this. Asking for the running loop is a system call, and
#: would cost too much for shorter handlers.
_OWN_LOOP_SECONDS = 0.00005
#: How often the system's limits are looked at. A look takes some microseconds, too much for every short handler.
_LIMITS_SECONDS = 0.005


class Surroundings:
    """The state of this process and of its event loop when this object is created."""

    def __init__(self, original: Original) -> None:
        self._loop = asyncio.get_running_loop()
        self._original = original
        self._limits, self._next_look = SoftLimits(), 0.0
        self._look_is_due = False
        self._recursion_limit, self._task_factory = sys.getrecursionlimit(), self._loop.get_task_factory()

    def mend(self) -> None:
        """Restore what can be restored; end this process if it is a copy that a handler has forked."""
        self._original.or_end()
        if sys.getrecursionlimit() < self._recursion_limit:
            sys.setrecursionlimit(self._recursion_limit)
        if self._loop.get_task_factory() is not self._task_factory:
            self._loop.set_task_factory(self._task_factory)
        if not self._look_is_due:
            if (now := time.monotonic()) > self._next_look:
                self._look(now)
            else:
                # This handler may be the last one for long.
                self._look_is_due = True
                self._loop.call_later(self._next_look - now, self._look_again)

    def _look(self, now: float) -> None:
        self._next_look = now + _LIMITS_SECONDS
        self._limits.restore()

    def _look_again(self) -> None:
        self._look_is_due = False
        self._look(time.monotonic())

    def mend_loop(self, seconds: float) -> None:
        """Restore the running loop, which a handler has to hide before it can call `asyncio.run`."""
        if seconds > _OWN_LOOP_SECONDS and asyncio._get_running_loop() is not self._loop:
            asyncio._set_running_loop(self._loop)

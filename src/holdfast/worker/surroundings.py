"""Restores what a handler changed in state that it shares with the worker, and that the worker cannot work without."""

from __future__ import annotations

import asyncio
import faulthandler
import sys
import time

from holdfast.lifecycle.left_timers import left_timers
from holdfast.lifecycle.limits import SoftLimits
from holdfast.lifecycle.stray_signals import mend_stray_signals
from holdfast.worker.copies import Original

__all__ = ["Surroundings"]

#: To run an event loop of its own, a handler needs longer than this. Asking for the running loop is a system call, and
#: would cost too much for shorter handlers.
_OWN_LOOP_SECONDS = 0.00005
#: How often the system's limits, timers and signals are looked at. A look takes some microseconds, too much for every
#: short handler.
_LOOK_SECONDS = 0.005


class Surroundings:
    """The state of this process and of its event loop when this object is created."""

    def __init__(self, original: Original) -> None:
        self._loop = asyncio.get_running_loop()
        self._original = original
        self._limits, self._next_look = SoftLimits(), 0.0
        self._look_is_due, self._next_idle_look = False, 0.0
        left_timers.worker_begins()
        self._recursion_limit, self._task_factory = sys.getrecursionlimit(), self._loop.get_task_factory()

    def begins(self, handler: object, job_type: str) -> None:
        """A handler, or middleware around one, is about to run in this process."""
        if left_timers.is_idle and (now := time.monotonic()) > self._next_idle_look:
            self._next_idle_look = now + _LOOK_SECONDS
            left_timers.look_while_idle()
        left_timers.begins(handler, job_type)

    def mend(self, handler: object) -> None:
        """Restore what can be restored; end this process if it is a copy that a handler has forked."""
        self._original.or_end()
        left_timers.ended(handler)
        faulthandler.cancel_dump_traceback_later()  # with `exit=True` it would end the worker
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
        self._next_look = now + _LOOK_SECONDS
        self._limits.restore()
        left_timers.look()
        mend_stray_signals()

    def _look_again(self) -> None:
        self._look_is_due = False
        self._look(time.monotonic())

    def end(self) -> None:
        """The worker ends: make up for a look that is due."""
        if self._look_is_due:
            self._look(time.monotonic())

    def mend_loop(self, seconds: float) -> None:
        """Restore the running loop, which a handler has to hide before it can call `asyncio.run`."""
        if seconds > _OWN_LOOP_SECONDS and asyncio._get_running_loop() is not self._loop:
            asyncio._set_running_loop(self._loop)

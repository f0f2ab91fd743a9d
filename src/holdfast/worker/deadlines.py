"""Handlers that run for too long are cancelled.

Most handlers end long before their time is over, and many without ever waiting for anything. So a deadline
becomes a timer of the event loop only once the loop has come round and the handler is still there.

Whatever ignores its cancellation, a handler or middleware around it, is called stuck some time after its deadline.
"""

from __future__ import annotations

import asyncio
import time

from holdfast.worker.held import Held

__all__ = ["Deadlines"]


class Deadlines:
    """The deadlines of the handlers of one event loop."""

    def __init__(self, stuck_after_seconds: float) -> None:
        self._stuck_after = stuck_after_seconds
        self._loop = asyncio.get_running_loop()
        self._new: list[Held] = []

    def watch(self, held: Held, seconds: float | None) -> None:
        """Cancel the handler's task in so many seconds, and mark it as late, unless it has ended."""
        if seconds is None:
            return
        if not self._new:
            self._loop.call_soon(self._arm)
        held.deadline = deadline = time.monotonic() + seconds
        held.stuck_at = deadline + self._stuck_after
        self._new.append(held)

    def forget(self, held: Held) -> None:
        """The handler has ended, or is timed where it runs."""
        held.deadline = held.stuck_at = None
        if held.timer is not None:
            held.timer.cancel()
            held.timer = None

    def _arm(self) -> None:
        new, self._new = self._new, []
        behind = self._loop.time() - time.monotonic()
        for held in new:
            if held.deadline is not None and held.timer is None:
                held.timer = self._loop.call_at(held.deadline + behind, self._over, held)

    @staticmethod
    def _over(held: Held) -> None:
        held.deadline = held.timer = None
        if held.task is not None:
            held.time_out()
            held.task.cancel()

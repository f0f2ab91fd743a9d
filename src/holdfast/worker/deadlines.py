"""Cancels handlers that run for too long.

Most handlers end long before their deadline, and many without ever waiting for anything. So a deadline becomes a timer
of the event loop only if the handler is still running at the loop's next iteration.

A handler or middleware that ignores its cancellation counts as stuck some time after its deadline.

A deadline moves by the time in which something else blocked the event loop: its handler could not use that time,
however little it needed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

from holdfast.definitions.job_type import JobType
from holdfast.worker.claimed import Claimed, ClaimedAttempts
from holdfast.worker.settings import WorkerSettings
from holdfast.worker.silence import PULSE_SECONDS, Silence

__all__ = ["Deadlines", "Timeouts", "time_over"]

#: Timers of event loops are early by a millisecond at times.
_EARLY_SECONDS = 0.005


class Timeouts:
    """How long handlers may run: what the type declares, else what the settings say for its lane.

    An attempt keeps the timeout that it began with.
    """

    def __init__(self, types: Mapping[str, JobType], settings: WorkerSettings, claimed: ClaimedAttempts) -> None:
        self._types, self._settings, self._claimed = types, settings, claimed

    def begin(self, claimed: Claimed) -> float:
        """The timeout of an attempt that begins now."""
        claimed.timeout_seconds = timeout = self._of_type(claimed.type)
        return timeout

    def of(self, claimed: Claimed) -> float:
        """The timeout of an attempt, which may not have begun yet."""
        return self._of_type(claimed.type) if claimed.timeout_seconds is None else claimed.timeout_seconds

    @property
    def longest(self) -> float:
        """The longest timeout that any attempt may have here."""
        begun = [h.timeout_seconds for h in self._claimed.all() if h.timeout_seconds is not None]
        return max([*begun, *map(self._of_type, self._types)], default=0.0)

    def _of_type(self, name: str) -> float:
        job_type = self._types[name]
        return job_type.timeout_seconds or self._settings.lane_timeout(job_type.lane)


class Deadlines:
    """The deadlines of the handlers of one event loop."""

    def __init__(self, stuck_after_seconds: float, silence: Silence | None = None) -> None:
        self._stuck_after = stuck_after_seconds
        self._loop = asyncio.get_running_loop()
        self._silence = silence or Silence()
        self._new: list[Claimed] = []
        #: Attempts that have a timer. While there are any, the pulse goes on.
        self._waiting: set[Claimed] = set()
        self._pulse: asyncio.TimerHandle | None = None

    def watch(self, claimed: Claimed, seconds: float | None) -> None:
        """Cancel the handler's task after `seconds` and mark it as late, unless it has ended."""
        if seconds is None:
            return
        claimed.watched_from = now = time.monotonic()
        if not self._new:
            self._loop.call_soon(self._arm)
            if self._pulse is None:
                self._silence.begin(now)
        claimed.deadline = deadline = now + seconds
        claimed.stuck_at = deadline + self._stuck_after
        self._new.append(claimed)

    def forget(self, claimed: Claimed) -> None:
        """Stop watching: the handler has ended, or is timed where it runs."""
        claimed.deadline = claimed.stuck_at = None
        if claimed.timer is not None:
            claimed.timer.cancel()
            claimed.timer = None
            self._waiting.discard(claimed)

    def _arm(self) -> None:
        new, self._new = self._new, []
        behind = self._loop.time() - time.monotonic()
        for claimed in new:
            if claimed.deadline is not None and claimed.timer is None:
                claimed.timer = self._loop.call_at(claimed.deadline + behind, self._over, claimed)
                self._waiting.add(claimed)
        if self._pulse is None:
            self._beat()
        else:
            self._give_back()

    def _beat(self) -> None:
        """Show that the loop responds, for as long as handlers wait in it."""
        self._give_back()
        if self._waiting:
            self._pulse = self._loop.call_later(PULSE_SECONDS, self._beat)
        else:
            self._pulse = None
            self._silence.rest()

    def _give_back(self) -> None:
        """Move the deadlines of handlers that waited while something else blocked the loop."""
        if (silent := self._silence.heard()) is None:
            return
        for claimed in self._waiting:
            if claimed.deadline is not None and (taken := silent.taken_from(claimed)):
                claimed.deadline += taken
                claimed.stuck_at = claimed.deadline + self._stuck_after
                if claimed.first_called is not None:
                    claimed.first_called += taken

    def _over(self, claimed: Claimed) -> None:
        self._give_back()
        if claimed.deadline is not None and (left := claimed.deadline - time.monotonic()) > _EARLY_SECONDS:
            claimed.timer = self._loop.call_later(left, self._over, claimed)
            return
        claimed.deadline = claimed.timer = None
        self._waiting.discard(claimed)
        if claimed.task is not None:
            claimed.time_out()
            claimed.task.cancel()


def time_over(timeouts: Timeouts, stuck_after_seconds: float, claimed: Claimed | None) -> float:
    """When an unfinished attempt counts as stuck; for None, how long after its start at most."""
    if claimed is None:
        return timeouts.longest + stuck_after_seconds
    stuck_at, started = claimed.stuck_at, claimed.started
    if stuck_at is not None:
        return stuck_at
    return (time.monotonic() if started is None else started) + timeouts.of(claimed) + stuck_after_seconds

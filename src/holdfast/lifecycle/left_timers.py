"""Interval timers that handlers in a worker's own process leave armed (`signal.alarm`, `signal.setitimer`).

Their signals reach the whole process. By default they end it, and all jobs in it; a signal handler that was left as
well meets whatever the main thread is doing. The system does not say who has armed a timer, so:

1. Kinds of timers that were armed when a worker began, or while no handler ran, belong to the app: a profiler, say.
   They are never disarmed.
2. Any handler that ran since the last look may have armed a timer. It is disarmed when all of them have ended. One that
   is armed anew counts as another timer, as far as that can be seen: repeating timers with equal intervals are alike.
3. A timer whose signal nobody handles can only do harm. It is disarmed as soon as one of them has ended.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable

from holdfast.lifecycle.dispositions import is_unhandled

__all__ = ["LeftTimers", "left_timers", "one_of"]

#: Each kind of timer: its name, its signal, and the clock that it counts by.
_KINDS: dict[int, tuple[str, int, Callable[[], float]]] = {
    getattr(signal, name): (name, getattr(signal, sends), clock)
    for name, sends, clock in (
        ("ITIMER_REAL", "SIGALRM", time.monotonic),
        ("ITIMER_VIRTUAL", "SIGVTALRM", lambda: os.times().user),
        ("ITIMER_PROF", "SIGPROF", time.process_time),
    )
    if hasattr(signal, sends)
}
#: Two looks at one timer differ by less than this: the system counts processor time in ticks.
_TOLERANCE_SECONDS = 0.05
#: How many job types a warning names, and how many warnings are remembered, so as not to repeat them.
_MOST_NAMES, _MOST_TOLD = 5, 1000

_log = logging.getLogger("holdfast")


class _Found:
    """A timer that is armed: when it is due and how it repeats, who may have armed it, and their job types."""

    __slots__ = ("due", "interval", "names", "owners")

    def __init__(self, due: float, interval: float, owners: set[object], names: Iterable[str]) -> None:
        self.due, self.interval, self.owners, self.names = due, interval, owners, tuple(dict.fromkeys(names))

    def is_like(self, due: float, interval: float) -> bool:
        return interval == self.interval and (interval > 0 or abs(due - self.due) < _TOLERANCE_SECONDS)


class LeftTimers:
    """The timers of a process. Its workers, perhaps in several threads, tell when handlers begin and end."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: Handlers that run in this process, with their types; and the types of those that ended since the last look.
        self._running: dict[object, str] = {}
        self._ended: dict[str, None] = {}
        self._of_the_app: set[int] = set()
        self._found: dict[int, _Found] = {}
        self._told: set[tuple[int, tuple[str, ...]]] = set()

    def worker_begins(self) -> None:
        """The app was imported, and its lifespan entered: timers that are armed belong to it."""
        with self._lock:
            if not self._running:
                self._ended.clear()
                self._found.clear()
                self._of_the_app = {kind for kind in _KINDS if _is_armed(kind)}

    @property
    def is_idle(self) -> bool:
        """Whether no handler runs, and all that ended were followed by a look."""
        return not self._running and not self._ended

    def look_while_idle(self) -> None:
        """Before a handler begins where none ran: whatever is armed was not armed by a handler."""
        with self._lock:
            self._of_the_app.update(kind for kind in _KINDS if kind not in self._found and _is_armed(kind))

    def begins(self, handler: object, job_type: str) -> None:
        """A handler begins in this process."""
        self._running[handler] = job_type

    def ended(self, handler: object) -> None:
        """It has ended."""
        with self._lock:
            if (job_type := self._running.pop(handler, None)) is not None:
                self._ended[job_type] = None

    def look(self) -> None:
        """Disarm what was left."""
        with self._lock:
            ended, self._ended = self._ended, {}
            for kind in _KINDS:
                if kind not in self._of_the_app:
                    self._look_at(kind, ended)

    def suspects(self, number: int) -> tuple[str, ...]:
        """The job types that may have armed the timer of this signal. May be called at any moment, without the lock."""
        seen = (found.names for kind, found in self._found.copy().items() if _KINDS[kind][1] == number)
        return next(seen, tuple(dict.fromkeys((*self._ended.copy(), *self._running.copy().values()))))

    def _look_at(self, kind: int, ended: Iterable[str]) -> None:
        left, interval = signal.getitimer(kind)
        if not left:
            self._found.pop(kind, None)
            return
        _, number, clock = _KINDS[kind]
        due, running = clock() + left, self._running.copy()
        found = self._found.get(kind)
        if found is None or not found.is_like(due, interval):
            names = [*ended, *running.values()] or (found.names if found is not None else ())
            found = self._found[kind] = _Found(due, interval, set(running), names)
        else:
            found.owners.intersection_update(running)
        if not found.owners or (ended and is_unhandled(number)):
            signal.setitimer(kind, 0)
            del self._found[kind]
            self._tell(kind, found.names)

    def _tell(self, kind: int, names: tuple[str, ...]) -> None:
        if (kind, names) in self._told:
            return
        if len(self._told) >= _MOST_TOLD:
            self._told.clear()
        self._told.add((kind, names))
        _log.warning(
            "a timer (%s) that a handler of %s had left armed was disarmed; this is logged once",
            _KINDS[kind][0],
            one_of(names),
        )


def one_of(names: tuple[str, ...]) -> str:
    """Some of these names, in words."""
    more = ("another type",) if len(names) > _MOST_NAMES else ()
    return " or ".join((*names[:_MOST_NAMES], *more)) or "an unknown type"


def _is_armed(kind: int) -> bool:
    return signal.getitimer(kind)[0] > 0


#: Those of this process: all workers in it share its timers.
left_timers = LeftTimers()

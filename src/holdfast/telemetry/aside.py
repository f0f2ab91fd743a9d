"""Publishes events and log lines without waiting: subscribers and log handlers may take any time.

What keeps a worker alive (the lease keeper's thread) calls no foreign code itself. Not even a log line: a handler of
`logging` may wait for a lock that a stuck job holds, for a full pipe, or for a server that does not answer.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable
from functools import partial

from holdfast.telemetry.bus import Bus
from holdfast.telemetry.events import Event

__all__ = ["Aside"]

#: How much may wait to be told; then the oldest is forgotten.
_MOST = 100


class Aside:
    """One after the other, in a thread that is there while there is something to tell."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._calls = deque[Callable[[], object]](maxlen=_MOST)
        self._lock = threading.Lock()
        self._busy = False
        self._done = threading.Event()

    def emit(self, event: Event) -> None:
        """Tell the bus of an event."""
        self.call(partial(self._bus.emit, event))

    def call(self, call: Callable[[], object]) -> None:
        """Anything else that may take for ever."""
        with self._lock:
            self._calls.append(call)
            if self._busy:
                return
            self._busy = True
            self._done.clear()
        try:
            threading.Thread(target=self._run, name="holdfast-aside", daemon=True).start()
        except RuntimeError:  # no more threads can be had: perhaps for the next one
            self._busy = False

    def wait(self, seconds: float) -> None:
        """Until all is told, but no longer than this."""
        if self._busy:
            self._done.wait(seconds)

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._calls:
                    self._busy = False
                    self._done.set()
                    return
                call = self._calls.popleft()
            with contextlib.suppress(Exception, SystemExit):
                call()

"""How much slower than a quiet machine this one is just now: what a test that judges durations multiplies its limit by.

A thread does a small fixed amount of computing several times a second and compares how long that took with the
processor time that it got. On a quiet machine the two are the same. Beside other work they are not, and everything that
the test measures is slower by about as much. A pause, a poll or a wait that is too long in the product stands out all
the same: it does not grow with the load.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["Slowness", "slowness"]

_BETWEEN_SECONDS = 0.1
_COMPUTING_SECONDS = 0.002


class Slowness:
    """What was measured so far."""

    def __init__(self) -> None:
        self._took = self._got = 0.0

    @property
    def factor(self) -> float:
        """Elapsed time over processor time, 1 at least."""
        return max(1.0, self._took / self._got) if self._got else 1.0

    def measure(self) -> None:
        """Compute for a moment."""
        began, before = time.monotonic(), time.thread_time()
        while (got := time.thread_time() - before) < _COMPUTING_SECONDS:
            pass
        self._took += time.monotonic() - began
        self._got += got


@contextmanager
def slowness() -> Iterator[Slowness]:
    """Measure beside a block."""
    found, over = Slowness(), threading.Event()

    def measure() -> None:
        while not over.wait(_BETWEEN_SECONDS):
            found.measure()

    found.measure()
    thread = threading.Thread(target=measure, name="slowness", daemon=True)
    thread.start()
    try:
        yield found
    finally:
        over.set()
        thread.join()
        found.measure()

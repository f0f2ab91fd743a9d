"""How much slower than a quiet machine this one is just now: what a test that judges durations multiplies its limit by.

A process of its own does a small fixed amount of computing several times a second and compares how long that took with
the processor time that it got. On a quiet machine the two are the same. Beside other work they are not, and everything
that the test measures is slower by about as much. What keeps the test's own process busy does not count, nor does a
pause, a poll or a wait that is too long in the product: those stand out.
"""

from __future__ import annotations

import time

from tests.harness.beside import Beside, answer

__all__ = ["Slowness"]

_EVERY_SECONDS = 0.1
_COMPUTING_SECONDS = 0.002


class Slowness(Beside):
    """Measures from its creation on."""

    def __init__(self) -> None:
        super().__init__(__name__)

    @property
    def factor(self) -> float:
        """Elapsed time over processor time so far, 1 at least."""
        return self.ask()


class _Measure:
    def __init__(self) -> None:
        self._took = self._got = 0.0

    def compute(self) -> None:
        began, before = time.monotonic(), time.thread_time()
        while (got := time.thread_time() - before) < _COMPUTING_SECONDS:
            pass
        self._took += time.monotonic() - began
        self._got += got

    def tell(self) -> float:
        return max(1.0, self._took / self._got)


if __name__ == "__main__":
    measure = _Measure()
    answer(_EVERY_SECONDS, measure.compute, measure.tell)

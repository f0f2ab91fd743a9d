"""What a handler leaves behind in its process that would meet the next one: timers, signal handlers, a mask.

A child in which something was left is not used again. Timers are stopped at once: they could end it before it answers.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Collection

__all__ = ["Leftovers"]

_TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)


class Leftovers:
    """Compares a child with what it was like before its first handler. `ours` are set anew for each of them."""

    def __init__(self, ours: Collection[int]) -> None:
        self._watched = sorted(set(signal.valid_signals()) - set(ours))
        self._handlers = self._current()
        self._mask = _mask()
        self._umask = _umask()

    def found(self) -> bool:
        """Whether the handler that has just ended left anything."""
        timers = [signal.setitimer(timer, 0) != (0.0, 0.0) for timer in _TIMERS]
        changed = self._current() != self._handlers or _mask() != self._mask or _umask() != self._umask
        return changed or any(timers)

    def _current(self) -> list[object]:
        return [signal.getsignal(number) for number in self._watched]


def _mask() -> set[int]:
    return set(signal.pthread_sigmask(signal.SIG_BLOCK, ()))


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask

"""For how long the machine let a process stand still that had next to nothing to do."""

from __future__ import annotations

import time

from tests.harness.beside import Beside, answer

__all__ = ["Stalls"]

_EVERY_SECONDS = 0.005


class Stalls(Beside):
    """A process that waits for a few milliseconds again and again, and notes how much later it wakes up."""

    def __init__(self) -> None:
        super().__init__(__name__)

    @property
    def longest(self) -> float:
        """The longest stall since this was asked last, in seconds."""
        return self.ask()


class _Watch:
    def __init__(self) -> None:
        self._since, self._longest = time.monotonic(), 0.0

    def look(self) -> None:
        now = time.monotonic()
        self._longest = max(self._longest, now - self._since - _EVERY_SECONDS)
        self._since = now

    def tell(self) -> float:
        longest, self._longest = self._longest, 0.0
        return longest


if __name__ == "__main__":
    watch = _Watch()
    answer(_EVERY_SECONDS, watch.look, watch.tell)

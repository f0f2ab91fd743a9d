"""Measures for how long something else kept the event loop from the handlers in it.

1. While handlers wait in the loop, a pulse goes through it. If the pulse comes too late, the loop was silent meanwhile.
2. A silent loop can note nothing, so the lease keeper's thread notes who blocks it, several times a second.
3. A handler has lost the time in which others blocked the loop: not what it blocked itself, which its samples tell.
4. Sometimes nobody knows who blocked the loop: a callback, code that held the interpreter lock, or a process that was
   stopped as a whole. It may have been the handler itself. Such time counts as lost only if it was long, and only a
   few times.
"""

from __future__ import annotations

import math
import time
from collections import deque
from typing import NamedTuple

from holdfast.worker.claimed import Claimed

__all__ = ["PULSE_SECONDS", "Blocker", "Silence", "Silent"]

#: How often the loop shows that it responds.
PULSE_SECONDS = 0.05
#: A loop that is silent for longer is blocked; and how long it must be for handlers if nobody knows by what.
_BLOCKED_SECONDS, _UNKNOWN_SECONDS = 0.1, 1.0
#: How often a handler may lose time although it is unknown who blocked the loop.
_MOST_UNKNOWN = 3
#: How many samples of one silence are kept: those of its last half an hour.
_MOST_SAMPLES = 20_000


class Blocker(NamedTuple):
    """Who blocks the loop: this attempt; or, if None and `known`, no claimed attempt; otherwise it is unknown."""

    attempt: Claimed | None
    known: bool


class Silent(NamedTuple):
    """A time from the last pulse on in which the event loop did not respond, and who was seen to block it, and when."""

    since: float
    until: float
    samples: list[tuple[float, Blocker]]

    def taken_from(self, claimed: Claimed) -> float:
        """How many seconds others have taken from a handler."""
        since = max(self.since, claimed.watched_from)
        # It was blocked at some time after the last pulse.
        seconds = self.until - since - PULSE_SECONDS
        if seconds < _BLOCKED_SECONDS:
            return 0.0
        seen = [blocker for at, blocker in self.samples if at >= since]
        if not seen or not all(blocker.known for blocker in seen):
            if seconds < _UNKNOWN_SECONDS or claimed.lost_to_unknown >= _MOST_UNKNOWN:
                return 0.0
            claimed.lost_to_unknown += 1
        others = sum(blocker.attempt is not claimed for blocker in seen)
        return seconds * others / len(seen) if seen else seconds


class Silence:
    """When the event loop responded last, and who was seen to block it since."""

    def __init__(self) -> None:
        self._answered = math.inf
        self._samples = deque[tuple[float, Blocker]](maxlen=_MOST_SAMPLES)

    @property
    def lasts(self) -> bool:
        """In another thread: whether handlers wait in the loop, and it does not respond."""
        return time.monotonic() - self._answered > PULSE_SECONDS + _BLOCKED_SECONDS

    def note(self, blocker: Blocker) -> None:
        """In another thread: note who blocks the loop at this moment."""
        self._samples.append((time.monotonic(), blocker))

    def begin(self, now: float) -> None:
        """Note that the loop responds, and that a handler may wait in it from now on."""
        self._answered = now

    def rest(self) -> None:
        """Note that no handler waits in the loop."""
        self._answered = math.inf

    def heard(self) -> Silent | None:
        """Note that the loop responds. Returns what was before, if it was blocked."""
        since, self._answered = self._answered, time.monotonic()
        if self._answered - since < PULSE_SECONDS + _BLOCKED_SECONDS:
            return None
        samples, self._samples = self._samples, deque(maxlen=_MOST_SAMPLES)
        return Silent(since, self._answered, list(samples))

"""What the worker tells a child's guard: no renewal sets a moment for a watch that has ended."""

from __future__ import annotations

import math
import os
import struct
import threading
from collections.abc import Callable

from holdfast.worker.processes.guard import Guard, OrderWatch


class Crowded:
    """A lock that somebody else takes each time that it becomes free."""

    def __init__(self, use: Callable[[], None]) -> None:
        self._lock, self._use = threading.Lock(), use
        self._used = False

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()
        if not self._used:
            self._used = True
            self._use()
            self._used = False


def test_a_renewal_while_a_watch_ends_does_not_set_a_moment_again() -> None:
    ours, theirs = os.pipe()
    guard = Guard(theirs, on_gone=lambda: None)
    watch: OrderWatch = guard.watch(1.0)
    guard._lock = Crowded(lambda: watch.move(2.0))  # type: ignore[assignment]
    watch.end()
    watch.move(3.0)
    guard.close()
    with os.fdopen(ours, "rb") as pipe:
        told = [moment for (moment,) in struct.iter_unpack("=d", pipe.read())]
    assert told == [1.0, math.inf]

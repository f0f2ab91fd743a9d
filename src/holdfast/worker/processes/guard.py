"""The worker's side of a child's guard: until when the child may run.

A frozen worker can neither renew a lease nor stop the handler whose lease is over. So each child has a guard, a tiny
process in its process group (see `entry`), which kills the group when a moment passes that nobody has moved. The
worker tells it that moment through a pipe: when an order for a job with a target is given, and with each renewal. The
child has no part in it: a handler that keeps the interpreter lock for minutes is guarded, and is left alone, like any
other.
"""

from __future__ import annotations

import contextlib
import math
import os
import struct
import threading
from collections.abc import Callable

from holdfast.lifecycle.elapsed import elapsed

__all__ = ["Guard", "Watch"]


class Guard:
    """Tells a child's guard how long the handler may run. Used by the event loop and by the keeper of leases."""

    def __init__(self, pipe: int, *, on_gone: Callable[[], None]) -> None:
        """`on_gone` is called where there is no guard any more."""
        os.set_blocking(pipe, False)
        self._pipe: int | None = pipe
        self._on_gone = on_gone
        self._watch: Watch | None = None
        self._lock = threading.Lock()

    def watch(self, until: float) -> Watch:
        """Have the child killed at this moment of the clock for leases, unless it is moved or the watch ends before."""
        watch = Watch(self)
        with self._lock:
            self._watch = watch
        self.move(watch, until)
        return watch

    def move(self, watch: Watch, until: float) -> None:
        """Another moment. Of no effect for a watch that has ended."""
        self._tell(watch, until, last=False)

    def end(self, watch: Watch) -> None:
        """This watch is over: the child has nothing to do, or the next order begins a watch of its own."""
        self._tell(watch, math.inf, last=True)

    def close(self) -> None:
        """The child is gone."""
        with self._lock:
            if self._pipe is not None:
                os.close(self._pipe)
                self._pipe = None

    def _tell(self, watch: Watch, until: float, *, last: bool) -> None:
        """Tell the guard a moment, `inf` for none; after the last one of a watch, no renewal can set another."""
        try:
            with self._lock:
                if self._watch is not watch or self._pipe is None:
                    return
                watch.until = until
                if last:
                    self._watch = None
                # One that does not read stands still, and so does its group.
                with contextlib.suppress(BlockingIOError):
                    os.write(self._pipe, struct.pack("=d", until))
        except BrokenPipeError:
            self._on_gone()


class Watch:
    """One order's time."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self.until = math.inf

    def move(self, until: float) -> None:
        """The lease was renewed."""
        self._guard.move(self, until)

    def end(self) -> None:
        """The handler has ended."""
        self._guard.end(self)

    @property
    def over(self) -> bool:
        """Whether the guard has, or should have, killed the child by now."""
        return elapsed() >= self.until

"""The worker's side of a child's guard: until when the child may run.

A frozen worker can neither renew a lease nor stop the handler whose lease is over. So each child has a guard, a tiny
process in its process group (see `entry`), which kills the group at a given moment unless the worker moves that moment.
The worker sends it through a pipe: when it gives an order for a job with a target, and with each renewal. The child is
not involved: a handler that keeps the interpreter lock for minutes is guarded like any other, and not disturbed.
"""

from __future__ import annotations

import contextlib
import math
import os
import struct
import threading
from collections.abc import Callable

from holdfast.lifecycle.elapsed import elapsed

__all__ = ["Guard", "OrderWatch"]


class Guard:
    """Tells a child's guard how long the handler may run. Used by the event loop and by the lease keeper."""

    def __init__(self, pipe: int, *, on_gone: Callable[[], None]) -> None:
        """Create it; `on_gone` is called if the guard does not exist any more."""
        os.set_blocking(pipe, False)
        self._pipe: int | None = pipe
        self._on_gone = on_gone
        self._watch: OrderWatch | None = None
        self._lock = threading.Lock()

    def watch(self, until: float) -> OrderWatch:
        """Have the child killed at this moment of the lease clock, unless it is moved or the watch ends before."""
        watch = OrderWatch(self)
        with self._lock:
            self._watch = watch
        self.move(watch, until)
        return watch

    def move(self, watch: OrderWatch, until: float) -> None:
        """Change the moment. This has no effect for a watch that has ended."""
        self._tell(watch, until, last=False)

    def end(self, watch: OrderWatch) -> None:
        """End this watch: the child has nothing to do, or the next order begins its own watch."""
        self._tell(watch, math.inf, last=True)

    def close(self) -> None:
        """Close the pipe: the child is gone."""
        with self._lock:
            if self._pipe is not None:
                os.close(self._pipe)
                self._pipe = None

    def _tell(self, watch: OrderWatch, until: float, *, last: bool) -> None:
        """Tell the guard a moment, `inf` for none. After the last one of a watch, no renewal can set another."""
        try:
            with self._lock:
                if self._watch is not watch or self._pipe is None:
                    return
                watch.until = until
                if last:
                    self._watch = None
                # A guard that does not read is frozen, and so is its group.
                with contextlib.suppress(BlockingIOError):
                    os.write(self._pipe, struct.pack("=d", until))
        except BrokenPipeError:
            self._on_gone()


class OrderWatch:
    """The time limit of one order."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self.until = math.inf

    def move(self, until: float) -> None:
        """Move the limit, because the lease was renewed."""
        self._guard.move(self, until)

    def end(self) -> None:
        """End the watch, because the handler has ended."""
        self._guard.end(self)

    @property
    def over(self) -> bool:
        """Whether the guard has killed, or should have killed, the child by now."""
        return elapsed() >= self.until

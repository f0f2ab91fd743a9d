"""How a handler in a child is interrupted: the worker writes to a pipe, and then sends SIGTERM.

The signal reaches C code that looks for signals, such as a regular expression, where no other thread of the
child could. The pipe tells the worker's signal from everybody else's: a service manager that is told to stop a
service signals all of its processes, while the worker wants to let its jobs finish; such a signal is ignored.
"""

from __future__ import annotations

import select
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from holdfast.errors import Interrupted

__all__ = ["Interruption"]


class Interruption:
    """Raises `Interrupted` in the main thread, at most once, while a handler runs there."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe
        self._armed = False
        self._shields = 0

    @property
    def told(self) -> bool:
        """Whether the worker wants the handler to stop."""
        poll = select.poll()
        poll.register(self._pipe, select.POLLIN)
        return bool(poll.poll(0))

    @contextmanager
    def armed(self) -> Iterator[None]:
        """For as long as a handler runs; it may have changed the signals' handlers, so they are set each time."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        self._armed = True
        try:
            self._raise_if_told()
            yield
        finally:
            self._armed = False

    @contextmanager
    def shielded(self) -> Iterator[None]:
        """Not within this block, where half of a frame may have been sent; after it."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        self._shields += 1
        try:
            yield
        finally:
            self._shields -= 1
        self._raise_if_told()

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self._raise_if_told()

    def _raise_if_told(self) -> None:
        if self._armed and not self._shields and self.told:
            # Once: what the handler does in its `finally` is not disturbed again.
            self._armed = False
            raise Interrupted("the handler was told to stop")

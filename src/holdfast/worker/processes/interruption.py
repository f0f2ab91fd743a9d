"""How a handler in a child is interrupted: the worker writes to a pipe, and then sends SIGTERM.

The signal also interrupts C code that checks for signals, such as a regular expression, which no other thread of the
child could do. The pipe distinguishes the worker's signal from all others: a service manager that stops a service
signals all of its processes, while the worker wants to let its jobs finish. Such a signal is ignored. In processes that
a handler forks, signals work as in any other program.
"""

from __future__ import annotations

import os
import select
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from holdfast.errors import Interrupted

__all__ = ["Interruption"]


class Interruption:
    """Raises `Interrupted` in the main thread, at most once, while a handler runs there."""

    SIGNALS = (signal.SIGTERM, signal.SIGINT)

    def __init__(self, pipe: int) -> None:
        self._pid = os.getpid()
        self._pipe: int | None = pipe
        self._armed = False
        self._shields = 0
        self._at_fork = threading.local()

    @property
    def told(self) -> bool:
        """Whether the worker wants the handler to stop."""
        if self._pipe is None:
            return False
        poll = select.poll()
        poll.register(self._pipe, select.POLLIN)
        return bool(poll.poll(0))

    def arm(self) -> None:
        """Begin a handler. Signal handlers are set each time, because the last handler may have changed them."""
        for number in self.SIGNALS:
            signal.signal(number, self._on_signal)
        self._armed = True
        self._raise_if_told()

    def disarm(self) -> None:
        """Note that the handler has ended."""
        self._armed = False

    @contextmanager
    def shielded(self) -> Iterator[None]:
        """Delay interruptions until after this block, in which half of a frame may have been sent."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        self._shields += 1
        try:
            yield
        finally:
            self._shields -= 1
        self._raise_if_told()

    def mind_forks(self) -> None:
        """From now on, restore the signals in every copy of this process."""
        os.register_at_fork(
            before=self._before_fork, after_in_parent=self._after_fork, after_in_child=self._after_fork_in_copy
        )

    def _before_fork(self) -> None:
        if threading.current_thread() is threading.main_thread():
            self._shields += 1
        # A signal that reaches a copy before its handlers are set would be lost there, so it has to wait.
        self._at_fork.mask = signal.pthread_sigmask(signal.SIG_BLOCK, self.SIGNALS)

    def _after_fork(self) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self._at_fork.mask)
        if threading.current_thread() is threading.main_thread():
            if self._armed and self.told:
                # An exception raised in here is lost, so the signal is sent again when this is over.
                threading.Timer(0.01, os.kill, (self._pid, signal.SIGTERM)).start()
            self._shields -= 1

    def _after_fork_in_copy(self) -> None:
        self._armed = False
        for number in self.SIGNALS:
            # Unless the handler uses this signal itself.
            if signal.getsignal(number) == self._on_signal:
                signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, self._at_fork.mask)
        if self._pipe is not None:
            with suppress(OSError):
                os.close(self._pipe)
            self._pipe = None  # a copy of the copy may have another file under that number

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if self._pid != os.getpid():
            # C code has forked, without running the hooks.
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        self._raise_if_told()

    def _raise_if_told(self) -> None:
        if self._armed and not self._shields and self.told:
            # Only once: code in the handler's `finally` is not interrupted again.
            self._armed = False
            raise Interrupted("the handler was told to stop")

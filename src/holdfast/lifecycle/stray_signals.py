"""Signals that nobody handles, and that something which a handler left behind may still send: they end nothing.

1. Timers send SIGALRM, SIGVTALRM and SIGPROF. Timers of `timer_create`, message queues and descriptors with `O_ASYNC`
   send SIGUSR1, SIGUSR2, SIGIO or a real-time signal, and so do programs that tell their parent something. The default
   action of each is to end the process, and all jobs in it. Here each gets a log line instead, once a minute.
2. A signal that has a handler, in Python or in C (`faulthandler.register`, profilers), or that is ignored, is left
   alone. Handlers that are set later replace ours. If somebody sets the default again, we set ours again.
3. SIGXCPU ends the process, unless a handler has lowered the limit of processor time: then that is raised again.
4. Other signals do what they do. Those that ask to stop are the worker's; SIGQUIT and SIGABRT ask for a core dump;
   faults of a program end it. Python ignores SIGPIPE and SIGXFSZ, the system SIGURG, SIGCHLD and SIGWINCH.
5. In forked copies, and in programs that are started, all have their default actions again.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import contextlib
import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from functools import partial
from types import TracebackType

from holdfast.lifecycle.dispositions import is_unhandled, stand_down, stand_in
from holdfast.lifecycle.left_timers import left_timers, one_of
from holdfast.lifecycle.limits import SoftLimits

__all__ = ["StraySignals", "mend_stray_signals"]

_NAMES = ("SIGALRM", "SIGVTALRM", "SIGPROF", "SIGUSR1", "SIGUSR2", "SIGIO", "SIGXCPU")
_REAL_TIME = range(getattr(signal, "SIGRTMIN", 0), getattr(signal, "SIGRTMAX", -1) + 1)
_NUMBERS = (*(int(getattr(signal, name)) for name in _NAMES if hasattr(signal, name)), *_REAL_TIME)
_TIMERS = {
    getattr(signal, sent): getattr(signal, kind)
    for sent, kind in (("SIGALRM", "ITIMER_REAL"), ("SIGVTALRM", "ITIMER_VIRTUAL"), ("SIGPROF", "ITIMER_PROF"))
    if hasattr(signal, sent)
}
_XCPU = getattr(signal, "SIGXCPU", None)
_TELL_SECONDS = 60.0

_log = logging.getLogger("holdfast")
#: Those in place, the last one innermost.
_in_place: list[StraySignals] = []


class StraySignals:
    """Keeps this process alive for the length of a block. To be entered and left in the main thread.

    `soon` has something called in an event loop: a signal may interrupt code that holds a lock of logging.
    """

    def __init__(self, soon: Callable[[Callable[[], None]], object]) -> None:
        self._soon = soon
        self._process = os.getpid()
        self._limits = SoftLimits()
        self._handler = self._came
        self._numbers: list[int] = []
        self._told: dict[int, float] = {}

    def __enter__(self) -> None:
        self.begin()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def begin(self) -> None:
        """Stand in for the default actions."""
        self._numbers = [number for number in _NUMBERS if is_unhandled(number)]
        for number in self._numbers:
            stand_in(number, self._handler)
        _in_place.append(self)

    def end(self) -> None:
        """Restore the default actions."""
        _in_place.remove(self)
        with contextlib.suppress(ValueError):  # not in the main thread
            for number in self._numbers:
                stand_down(number, self._handler)

    def ignore(self) -> None:
        """The process ends: Python would restore the default actions before its last steps."""
        for number in self._numbers:
            if is_unhandled(number):
                signal.signal(number, signal.SIG_IGN)

    def mend(self) -> None:
        """Stand in again where somebody has restored the default action. In the main thread only."""
        for number in self._numbers:
            found = _signal.getsignal(number)  # without the names, which take time
            if found is not self._handler and isinstance(found, int) and is_unhandled(number):
                stand_in(number, self._handler)

    def _came(self, number: int, _frame: object) -> None:
        if os.getpid() != self._process or (number == _XCPU and not self._limits.processor_time_is_lower):
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        if number == _XCPU:
            self._limits.restore()
        if number in _TIMERS:
            signal.setitimer(_TIMERS[number], 0)  # it may repeat, and nobody hears it
        now = time.monotonic()
        if now - self._told.get(number, -_TELL_SECONDS) >= _TELL_SECONDS:
            self._told[number] = now
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._soon(partial(_tell, number, left_timers.suspects(number)))


def mend_stray_signals() -> None:
    """Restore what somebody has undone. Does nothing where it was never set up, nor in other threads than the main."""
    if _in_place and threading.current_thread() is threading.main_thread():
        _in_place[-1].mend()


def _tell(number: int, suspects: tuple[str, ...]) -> None:
    who = f"handlers of {one_of(suspects)}" if suspects else "a handler that has ended"
    _log.warning("%s was received and ignored, because nothing handles it; perhaps %s caused it", _name(number), who)


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # most real-time signals have no names
        return f"signal {number}"


def _forked() -> None:
    for strays in _in_place.copy():
        strays.end()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)

"""Changes that a handler leaves behind in its process, and that would affect the next one.

1. Settings of the interpreter are restored: limits, hooks, the garbage collector, filters of warnings, the search path.
   Modules that a handler imports late change some of them, so a child is not given up for that.
2. Changes that cannot be reliably restored, or could expose another job's secret, cost the child, which is not used
   again: the environment, the locale, signal handlers, timers and masks, standard streams, audit hooks, builtins; and
   what the system knows about the process, such as limits, privileges and namespaces (see `kernel_state`).
3. Timers are stopped at once: they could end the child before it answers.
4. Threads and processes that outlive the handler can do anything at any later time: end the child, hold a lock, change
   the folder. They cost the child, too (see `company`).
5. Descriptors may be caches, and are left alone until there are too many.

Everything is compared with its state when the handler began: its module and the app's lifespan may change anything.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import asyncio
import builtins
import contextlib
import faulthandler
import gc
import locale
import logging
import os
import signal
import socket
import sys
import threading
import warnings
from collections.abc import Callable, Collection
from typing import Any

from holdfast.lifecycle.portal import portal_threads
from holdfast.worker.processes.company import Company
from holdfast.worker.processes.kernel_state import kernel_state

__all__ = ["Leftovers"]

_TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)
#: How many more descriptors than at its beginning a child may have.
_PILE = 100
_BUILTINS = tuple(frozenset(vars(builtins)) - {"_"})


def _set_filters(filters: list[Any]) -> None:
    warnings.filters[:] = filters  # type: ignore[index]
    warnings._filters_mutated()  # type: ignore[attr-defined]


#: The settings that are restored: how to read and how to set each.
_RESTORED: tuple[tuple[Callable[[], Any], Callable[[Any], object]], ...] = (
    (sys.getrecursionlimit, sys.setrecursionlimit),
    (sys.getswitchinterval, sys.setswitchinterval),
    (sys.get_int_max_str_digits, sys.set_int_max_str_digits),
    (gc.isenabled, lambda enabled: gc.enable() if enabled else gc.disable()),
    (gc.get_threshold, lambda threshold: gc.set_threshold(*threshold)),
    (gc.get_debug, gc.set_debug),
    (socket.getdefaulttimeout, socket.setdefaulttimeout),
    (sys.gettrace, sys.settrace),
    (sys.getprofile, sys.setprofile),
    (lambda: sys.excepthook, lambda hook: setattr(sys, "excepthook", hook)),
    (lambda: sys.unraisablehook, lambda hook: setattr(sys, "unraisablehook", hook)),
    (lambda: threading.excepthook, lambda hook: setattr(threading, "excepthook", hook)),
    (threading.gettrace, threading.settrace),
    (threading.getprofile, threading.setprofile),
    (lambda: list(gc.callbacks), lambda callbacks: gc.callbacks.__setitem__(slice(None), callbacks)),
    (lambda: list(sys.path), lambda path: sys.path.__setitem__(slice(None), path)),
    (lambda: list(sys.argv), lambda arguments: sys.argv.__setitem__(slice(None), arguments)),
    (lambda: list(warnings.filters), _set_filters),
    (lambda: logging.root.manager.disable, logging.disable),
    (asyncio.get_event_loop_policy, asyncio.set_event_loop_policy),
)


class Leftovers:
    """Compares a child with its state before the handler. The signals in `ours` are set again for each handler."""

    def __init__(self, ours: Collection[int]) -> None:
        self._signals = sorted(set(signal.valid_signals()) - set(ours))
        self._heap = self._piled()
        self._settings: list[Any] = []
        self._others: list[object] = []
        self._company = Company()
        self._hooks = _AuditHooks()

    def begin(self) -> None:
        """Save the state: a handler is about to begin."""
        self._settings = [read() for read, _ in _RESTORED]
        self._others = self._current()
        self._company.begin()

    def found(self) -> bool:
        """Restore what can be restored after a handler. Returns whether it left anything else."""
        faulthandler.cancel_dump_traceback_later()
        timers = [signal.setitimer(timer, 0) != (0.0, 0.0) for timer in _TIMERS]
        if not self._settings:
            return any(timers)  # none has begun
        for (read, write), before in zip(_RESTORED, self._settings, strict=True):
            if read() != before:
                write(before)
        return any(timers) or self._current() != self._others or self._piled() > self._heap + _PILE

    def accompanied(self) -> bool:
        """Whether threads or processes of the handler still run. Those of `hf.sync` and `ctx` are Holdfast's own."""
        return self._company.left(portal_threads)

    def _current(self) -> list[object]:
        return [
            [_signal.getsignal(number) for number in self._signals],  # without the names, which take time
            set(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
            _wake_up(),
            dict(getattr(os.environ, "_data", os.environ)),  # as bytes, which takes less time
            locale.setlocale(locale.LC_ALL),
            [sys.stdin, sys.stdout, sys.stderr],
            [stream is None or stream.closed for stream in (sys.stdin, sys.stdout, sys.stderr)],
            [_identity(number) for number in range(3)],
            list(map(vars(builtins).get, _BUILTINS)),
            self._hooks.count,
            kernel_state(),
        ]

    @staticmethod
    def _piled() -> int:
        with contextlib.suppress(OSError):
            return len(os.listdir("/dev/fd"))  # noqa: PTH208 - these are numbers
        return 0


class _AuditHooks:
    """Counts audit hooks: they cannot be listed or removed. A hook of our own would be called at every event."""

    def __init__(self) -> None:
        self.count = 0
        add = sys.addaudithook

        def addaudithook(hook: Callable[[str, tuple[Any, ...]], Any]) -> None:
            add(hook)
            self.count += 1

        sys.addaudithook = addaudithook


def _wake_up() -> int:
    descriptor = signal.set_wakeup_fd(-1)
    if descriptor != -1:
        with contextlib.suppress(ValueError, OSError):
            signal.set_wakeup_fd(descriptor)
    return descriptor


def _identity(descriptor: int) -> tuple[int, int] | None:
    try:
        status = os.fstat(descriptor)
    except OSError:
        return None
    return status.st_dev, status.st_ino

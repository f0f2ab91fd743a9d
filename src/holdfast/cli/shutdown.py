"""When a process has to stop: on a signal, or when the parent that holds its leash says so.

A process on its own drains at the first SIGTERM, SIGINT or SIGHUP, hurries at the second, and ends at once at the
third, even if its event loop is blocked. One on a leash obeys its parent: a Ctrl-C reaches every process of the
terminal and a service manager's SIGTERM every process of the unit, and neither must count twice or stop things out of
order. The leash is a pipe whose other end only the parent holds: when the parent dies, however it dies, the pipe ends
and the child drains.

Handlers of jobs may replace those of signals, by mistake or through a library. They are restored within a second or so.

A process that replaces itself (see `replacement`) blocks these signals while it has no handlers. What comes meanwhile,
or while the app is imported anew, counts as soon as there is something to stop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import select
import signal
import stat
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

from holdfast.errors import HoldfastError
from holdfast.lifecycle.loops import run
from holdfast.lifecycle.stray_signals import StraySignals
from holdfast.model.ctrl_c import never_raised
from holdfast.telemetry.narrator import flush_log

__all__ = [
    "ANSWERS",
    "DRAIN",
    "HURRY",
    "IMPORTED",
    "LEASH",
    "SIGNALS",
    "Shutdown",
    "asked_early",
    "in_time",
    "note_early",
    "run_until_told",
    "tell_imported",
]

#: The environment variable that tells a child the number of the pipe's descriptor.
LEASH = "HOLDFAST_LEASH"
#: That of the pipe in which a child tells its parent that it has imported the app, and how many seconds the drain that
#: begins may take.
ANSWERS = "HOLDFAST_ANSWERS"
IMPORTED = b"imported"
DRAIN, HURRY = b"d", b"h"
SIGNALS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGHUP") if hasattr(signal, name))
_LAST_LEVEL = 2
#: How often to look whether the handlers of signals are still ours.
_LOOK_SECONDS = 1.0
#: How long the rest may take at the end: threads, and tasks that ignore that they were canceled.
_EXIT_SECONDS = 10.0
#: How long to wait for log lines, and for calls that may never return, when a process ends at once.
_FLUSH_SECONDS = 1.0

_log = logging.getLogger("holdfast")
#: Signals that came before there was a `Shutdown`.
_early: list[int] = []


def note_early() -> None:
    """Note signals, also those that were blocked so far, until a `Shutdown` hears them; the third ends the process."""
    for number in SIGNALS:
        signal.signal(number, _came_early)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)


def _came_early(number: int, _frame: object) -> None:
    _early.append(number)
    if LEASH not in os.environ and len(_early) > _LAST_LEVEL:
        flush_log()
        os._exit(128 + number)


def asked_early() -> bool:
    """Whether this process was asked to stop since `note_early`."""
    if leash := os.environ.get(LEASH):
        return any(number != signal.SIGINT for number in _early) or bool(select.select([int(leash)], [], [], 0)[0])
    return bool(_early)


def tell_imported() -> None:
    """Tell the parent, if there is one, that this process has imported the app."""
    _answer(IMPORTED)


def _answer(word: bytes) -> None:
    if (answers := os.environ.get(ANSWERS)) is None:
        return
    with contextlib.suppress(OSError):  # a variable that was passed on without its pipe
        if stat.S_ISFIFO(os.fstat(int(answers)).st_mode):
            os.write(int(answers), word + b"\n")


class Shutdown:
    """Calls `stop` when this process is to drain, and again when it is to hurry.

    Until something is attached there is nothing to drain: the task that made this is canceled.
    """

    def __init__(self) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - made inside a coroutine
        self._stop: Callable[[], object] = task.cancel
        #: What is done before this process ends at once: kill its children.
        self.at_last: list[Callable[[], object]] = []
        #: 0 run, 1 drain, 2 hurry.
        self.level = 0
        self._loop = loop = asyncio.get_running_loop()
        self._leash = int(leash) if (leash := os.environ.get(LEASH)) else None
        self._signals, self._noted = 0, False
        self._handler = self._interrupted
        for number in SIGNALS:
            signal.signal(number, self._handler)
        self._told_replaced = False
        loop.call_later(_LOOK_SECONDS, self._look)
        never_raised()
        while _early:
            self._interrupted(_early.pop(0), None)
        if self._leash is not None:
            loop.add_reader(self._leash, self._heard, self._leash)

    def _look(self) -> None:
        """Restore what foreign code in this process has replaced: it would not hear that it is to stop."""
        replaced = [number for number in SIGNALS if signal.getsignal(number) != self._handler]
        for number in replaced:
            signal.signal(number, self._handler)
        if replaced and not self._told_replaced:
            self._told_replaced = True
            names = ", ".join(number.name for number in replaced)
            _log.warning("something replaced the handlers of %s; they are restored, as often as that happens", names)
        self._loop.call_later(_LOOK_SECONDS, self._look)

    @property
    def asked(self) -> bool:
        """Whether anybody asked this process to stop."""
        return self.level > 0

    @property
    def noticed(self) -> bool:
        """The same, from any thread, and even if the event loop is blocked and has not heard of it."""
        if self.asked or self._noted or self._leash is None:
            return self.asked or self._noted
        return bool(select.select([self._leash], [], [], 0)[0])

    def attach(self, stop: Callable[[], object]) -> None:
        """From now on, this is what is to be stopped."""
        self._stop = stop
        for _ in range(self.level):
            stop()

    @staticmethod
    def tell_grace(seconds: float) -> None:
        """Tell the parent, if there is one, how long the drain may take: only the worker knows the settings."""
        _answer(str(seconds).encode())

    def _interrupted(self, number: int, _frame: object) -> None:
        """Called between any two steps of the main thread, whether or not its event loop turns."""
        self._signals += 1
        self._noted = self._noted or self._leash is None or number != signal.SIGINT
        if self._leash is None and self._signals > _LAST_LEVEL:
            for kill in self.at_last:
                kill()
            flush_log()
            os._exit(128 + number)
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._signalled, number)

    def _signalled(self, number: int) -> None:
        if self._leash is None:
            self._raise_to(self.level + 1)
        elif number != signal.SIGINT:
            self._raise_to(1)

    def _heard(self, leash: int) -> None:
        words = os.read(leash, 64)
        if not words:
            asyncio.get_running_loop().remove_reader(leash)
        self._raise_to(2 if HURRY in words else 1)

    def _raise_to(self, level: int) -> None:
        while self.level < min(level, _LAST_LEVEL):
            self.level += 1
            self._stop()


def run_until_told(work: Callable[[Shutdown], Coroutine[Any, Any, int]], event_loop: str = "auto") -> int:
    """Run a long-running command. Being told to stop before it really began is not a failure."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows cannot tell a process to drain
        advice = "on this system you can enqueue and watch jobs"
        raise HoldfastError(f"workers and servers run on Linux and macOS only; {advice}")

    strays: list[StraySignals] = []

    async def main() -> int:
        shutdown = Shutdown()
        strays.append(StraySignals(asyncio.get_running_loop().call_soon_threadsafe))
        strays[0].begin()
        code = 1
        try:
            code = await work(shutdown)
        except asyncio.CancelledError:
            if not shutdown.asked:
                raise
            code = 0
        finally:
            threading.Thread(target=_exit_soon, args=(code,), name="holdfast-exit", daemon=True).start()
        return code

    try:
        return run(main(), event_loop)
    finally:
        for stray in strays:
            stray.ignore()


def in_time(*works: Callable[[], object]) -> None:
    """Call something that may never return, and wait only for a moment."""
    end = time.monotonic() + _FLUSH_SECONDS
    threads = [threading.Thread(target=work, daemon=True) for work in works]
    with contextlib.suppress(RuntimeError):  # no more threads can be had
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(0.0, end - time.monotonic()))


def _exit_soon(code: int) -> None:
    """End the process, even if something that it left behind keeps it from ending."""
    time.sleep(_EXIT_SECONDS)
    in_time(lambda: _log.warning("the process exits although something that it started is still running"))
    in_time(logging.shutdown)
    os._exit(code)

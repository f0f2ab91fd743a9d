"""Ends copies of a worker: code that forks may return in both processes, and only one of them is the worker.

The copy shares the worker's connections and knows the same attempts. If it went on as the worker, it would settle them,
drain, and end processes that belong to others. Whatever else the copy does is allowed. It is ended at the point where
it would continue as the worker:

1. in a handler thread, when its handler ends (`Original`);
2. in the event loop, when the code that forked returns control to the loop: when it waits, returns or raises. That code
   may be a handler, an observer, or a task or callback that was left behind (`alone_in_its_loop`).

A copy may use a profiler or a debugger of its own, which replaces ours. So a profile function and a trace function both
watch for that moment, the next new callback of the loop ends the copy in any case, and a copy never signals the
worker's children. Signals end a copy as they end other programs.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, NoReturn

__all__ = ["Original", "alone_in_its_loop"]

_forks = 0
#: The code with which asyncio's loop runs its callbacks, in new frames each time; uvloop has none.
_ASYNCIO = {asyncio.Handle._run.__code__, asyncio.BaseEventLoop._run_once.__code__}  # type: ignore[attr-defined]
#: The event loops of workers, by thread, with the frames that stand below everything that runs there.
_loops: dict[int, list[tuple[asyncio.AbstractEventLoop, set[FrameType]]]] = {}
#: The signals that a worker hears; and those that were blocked before a fork, by thread.
_SIGNALS = {getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGHUP") if hasattr(signal, name)}
_held = threading.local()


class Original:
    """The process in which a worker was created."""

    __slots__ = ("_forks",)

    def __init__(self) -> None:
        self._forks = _forks

    def __bool__(self) -> bool:
        return _forks == self._forks

    def or_end(self) -> None:
        """Go on, unless this is a copy."""
        if not self:
            _end()


@contextmanager
def alone_in_its_loop() -> Iterator[None]:
    """Mark the current task as a worker's: a copy of the process does not continue its event loop."""
    task = asyncio.current_task()
    step = None if task is None else getattr(task.get_coro(), "cr_frame", None)
    below = set(_frames(None if step is None else step.f_back))
    loops = _loops.setdefault(threading.get_ident(), [])
    here = asyncio.get_running_loop(), below
    loops.append(here)
    try:
        yield
    finally:
        loops.remove(here)


def _forked() -> None:
    global _forks  # noqa: PLW0603 - a fork concerns the whole process
    _forks += 1
    _hear_signals()
    loops = _loops.get(threading.get_ident())
    if not loops:
        return
    below = set[FrameType]().union(*(below for _, below in loops))
    base: FrameType | None = None
    for frame in _frames(sys._getframe().f_back):
        if frame in below or frame.f_code in _ASYNCIO:
            break
        base = frame
    if base is None:
        _end()  # the loop itself has forked: the copy has no code of its own to finish

    def watch(frame: FrameType, event: str, _argument: Any) -> None:
        if event == "return" and frame is base:
            _end()

    sys.setprofile(watch)
    base.f_trace, base.f_trace_lines = watch, False
    sys.settrace(lambda _frame, _event, _argument: None)  # none of the others is traced
    with suppress(RuntimeError):  # it is closed
        loops[-1][0].call_soon(_end)


def _hold_signals() -> None:
    """Before a fork: what comes for the copy waits until the copy can hear it."""
    if any(_loops.values()):
        _held.mask = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)


def _let_signals_in() -> None:
    if (mask := getattr(_held, "mask", None)) is not None:
        _held.mask = None
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _hear_signals() -> None:
    """Let signals end the copy: they would be for its event loop, which does not go on."""
    with suppress(ValueError):  # not in a thread that can set them
        if any(_loops.values()):
            signal.set_wakeup_fd(-1)
            for number in _SIGNALS:
                if signal.getsignal(number) is not signal.SIG_IGN:
                    signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    _let_signals_in()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_hold_signals, after_in_parent=_let_signals_in, after_in_child=_forked)


def _frames(frame: FrameType | None) -> Iterator[FrameType]:
    """This frame and all its callers."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def _end() -> NoReturn:
    with suppress(OSError):
        os.write(
            2, b"holdfast: a copy of the worker, made by a fork in foreign code, does not go on as one, and ends\n"
        )
    os._exit(1)

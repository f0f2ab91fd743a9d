"""Threads and processes that a handler has started and that still run when it has ended.

1. Every thread that Python has started or that executes Python code counts. Threads of native code alone (BLAS, OpenMP)
   have no Python state and do not count: libraries keep them for later calls.
2. Child processes count until they have ended. The two that `multiprocessing` keeps for its own use do not.
3. A timer that was just canceled, or a program that was just told to stop, needs a moment to end, so there is a short
   wait. It costs only handlers whose threads or processes still run.
"""

from __future__ import annotations

import _thread
import os
import sys
import threading
import time
from collections.abc import Callable, Collection
from pathlib import Path

__all__ = ["Company"]

#: How long threads and processes that are about to end are waited for, and how often they are looked for.
_MOMENT_SECONDS = 0.1
#: A new thread of `_thread` cannot be told from a native one before its first step.
_FIRST_STEP_SECONDS = 0.02
_LOOK_SECONDS = 0.001
#: A child process on a system that does not say which ones there are.
_SOME = frozenset({0})


class Company:
    """Compares the threads and processes of a child with those before the handler."""

    def __init__(self) -> None:
        self._threads: set[object] = set()
        self._count = self._tasks = 0
        self._begun = False
        self._processes: frozenset[int] = frozenset()

    def begin(self) -> None:
        """Note who is there: a handler is about to begin."""
        self._threads, self._count, self._processes = _threads(), _thread._count(), _processes()
        self._tasks, self._begun = _tasks(), True

    def left(self, ours: Callable[[], Collection[int]]) -> bool:
        """Whether somebody of the handler is still there after a moment; threads with these idents do not count.

        If no handler has begun since the last time, a module or the app's lifespan has started them.
        """
        if not self._begun:
            return False
        self._begun = False
        began = time.monotonic()
        while True:
            found = self._found(ours())
            patience = _MOMENT_SECONDS if found else _FIRST_STEP_SECONDS if _tasks() > self._tasks else 0.0
            if time.monotonic() - began >= patience:
                return found
            time.sleep(_LOOK_SECONDS)

    def _found(self, ours: Collection[int]) -> bool:
        new = _threads() - self._threads
        theirs = {thread for thread in new if getattr(thread, "ident", thread) not in ours}
        # A thread of `_thread` that waits in C has no frame, and is only counted.
        count = _thread._count() - sum(isinstance(thread, threading.Thread) for thread in new)
        return bool(theirs) or count > self._count or not _processes() <= self._processes


def _threads() -> set[object]:
    """All threads with Python code: their idents, and the objects of those that have one, as idents are used again."""
    known = (thread for thread in threading.enumerate() if not isinstance(thread, threading._DummyThread))
    return {*sys._current_frames(), *known}


def _tasks() -> int:
    """A number that grows with each thread of this process, native ones as well; 0 if the system does not say."""
    try:
        return os.stat("/proc/self/task").st_nlink  # noqa: PTH116 - for every job
    except OSError:
        return 0


def _processes() -> frozenset[int]:
    """The child processes that run. One system call if there are none."""
    if not hasattr(os, "waitid"):
        return frozenset()
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return frozenset()
    try:
        lists = [task.joinpath("children").read_text() for task in Path("/proc/self/task").iterdir()]
    except OSError:
        return _SOME
    return frozenset(pid for pids in lists for pid in map(int, pids.split()) if _runs(pid)) - _keepers()


def _runs(pid: int) -> bool:
    """Whether a process runs. One that has ended, and that nobody has waited for, harms nobody."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def _keepers() -> set[int | None]:
    """The processes that `multiprocessing` keeps for its own use."""
    tracker = sys.modules.get("multiprocessing.resource_tracker")
    server = sys.modules.get("multiprocessing.forkserver")
    return {
        getattr(getattr(tracker, "_resource_tracker", None), "_pid", None),
        getattr(getattr(server, "_forkserver", None), "_forkserver_pid", None),
    }

"""Starts children with the state that their worker had when it started.

Handlers in the worker's own process may change its search path, environment, folder, limits or signals. A child that
inherited such a change could import a file of somebody else in place of a standard module, and end before it has begun;
or all its jobs would fail at the limit of one that has long ended.

The app's modules may have taken variables out of the environment. A child is told about those, for its own import.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from holdfast.lifecycle.importing import variables_taken
from holdfast.lifecycle.limits import current_limits
from holdfast.worker.processes import entry
from holdfast.worker.processes.kernel_state import umask

__all__ = ["Launch"]


class Launch:
    """Starts children with the state of this process at the moment that this object is created."""

    def __init__(self) -> None:
        self._command = [sys.executable, *_flags(), "-P", str(Path(entry.__file__))]
        self._environment = dict(os.environ)
        self._inherited = json.dumps(_inherited())
        self._greeting = {
            "path": [p for p in sys.path if isinstance(p, str)],
            "argv": list(sys.argv),
            "taken": variables_taken(),
        }
        self._folder: str | None = None
        with suppress(OSError):  # it was removed
            self._folder, self._place = os.getcwd(), _place(".")  # noqa: PTH109 - as the system names it

    def start(self, given: Iterable[int]) -> subprocess.Popen[bytes]:
        """Start a child that inherits these descriptors, whose numbers are its first arguments."""
        given = tuple(given)
        return subprocess.Popen(
            [*self._command, *map(str, given), self._inherited],
            stdin=subprocess.DEVNULL,
            pass_fds=given,
            start_new_session=True,
            env=self._environment,
            cwd=self._another_folder(),
        )

    def greeting(self) -> dict[str, Any]:
        """What a child is told about this process."""
        return {"pid": os.getpid(), **self._greeting}

    def _another_folder(self) -> str | None:
        """The folder to start in, if this process has left it, and it still exists under its name."""
        if self._folder is not None:
            with suppress(OSError):
                if _place(self._folder) == self._place and _here() != self._place:
                    return self._folder
        return None


def _inherited() -> dict[str, Any]:
    """What children inherit from the thread that starts them, apart from what `Popen` is told (see `entry`)."""
    state: dict[str, Any] = {
        "limits": [(number, soft) for number, soft, _ in current_limits()],
        "mask": umask(),
        "blocked": [int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, ())],
        "ignored": [int(n) for n in signal.valid_signals() if signal.getsignal(n) == signal.SIG_IGN],
        "niceness": os.getpriority(os.PRIO_PROCESS, 0),
    }
    with suppress(AttributeError, OSError):  # not on every system
        state["turns"] = os.sched_getscheduler(0), os.sched_getparam(0).sched_priority
    with suppress(OSError):
        state["oom"] = Path("/proc/self/oom_score_adj").read_text()
    return state


def _here() -> tuple[int, int] | None:
    try:
        return _place(".")
    except OSError:
        return None


def _place(folder: str) -> tuple[int, int]:
    status = os.stat(folder)  # noqa: PTH116 - as above
    return status.st_dev, status.st_ino


def _flags() -> list[str]:
    """The interpreter's own options, such as -O, -X dev and -W error, so that handlers in a child have them too."""
    return list(subprocess._args_from_interpreter_flags())  # type: ignore[attr-defined]

"""Leaves various things behind in copies of this process, and prints which of them are found.

For each: whether it was found, and whether the hooks of the interpreter are as before.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import resource
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from holdfast.worker.processes.leftovers import Leftovers

_libc = ctypes.CDLL(None)
_NET, _UTS, _PID = 0x40000000, 0x04000000, 0x20000000


def _timer() -> None:
    _libc.timer_create(0, None, ctypes.byref(ctypes.c_void_p()))


def _limit() -> None:
    soft = resource.getrlimit(resource.RLIMIT_MSGQUEUE)[0]
    resource.setrlimit(resource.RLIMIT_MSGQUEUE, (soft - 1, soft - 1))


def _hooks() -> None:
    gc.callbacks.append(lambda *_: None)
    threading.settrace(lambda *_: None)
    threading.setprofile(lambda *_: None)
    threading.excepthook = lambda *_: None
    sys.unraisablehook = lambda *_: None


LEFT: dict[str, Callable[[], object]] = {
    "nothing": lambda: None,
    "hooks of the interpreter": _hooks,
    "timer": _timer,
    "limit": _limit,
    "no new privileges": lambda: _libc.prctl(38, 1, 0, 0, 0),
    "audit hook": lambda: sys.addaudithook(lambda *_: None),
    "out of memory first": lambda: Path("/proc/self/oom_score_adj").write_text("1000"),
    "signal at the end of the parent": lambda: _libc.prctl(1, 10, 0, 0, 0),
    "subreaper": lambda: _libc.prctl(36, 1, 0, 0, 0),
    "niceness": lambda: os.nice(1),
}
if os.geteuid() == 0:
    LEFT |= {
        "network": lambda: _libc.unshare(_NET),
        "host name": lambda: _libc.unshare(_UTS),
        "processes": lambda: _libc.unshare(_PID),
        "bounding set": lambda: _libc.prctl(24, 0, 0, 0, 0),
        "secure bits": lambda: _libc.prctl(28, 1, 0, 0, 0),
    }


def _of_the_interpreter() -> list[object]:
    hooks = threading.gettrace(), threading.getprofile(), threading.excepthook, sys.unraisablehook
    return [list(gc.callbacks), *hooks]


def _look(leave: Callable[[], object]) -> int:
    before = _of_the_interpreter()
    leftovers = Leftovers(())
    leftovers.begin()
    leave()
    found = leftovers.found()
    return int(found) + 2 * (_of_the_interpreter() == before)


def _in_a_copy(leave: Callable[[], object]) -> list[bool]:
    copy = os.fork()
    if copy == 0:
        code = 4
        try:
            code = _look(leave)
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(copy, 0)[1])
    return [bool(code & 1), bool(code & 2)]


if __name__ == "__main__":
    print(json.dumps({name: _in_a_copy(leave) for name, leave in LEFT.items()}))

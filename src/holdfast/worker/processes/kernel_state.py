"""What the system knows about this process, and what the next handler in it would meet.

Read for every job, so each look has to be cheap. Most of this exists on Linux only; elsewhere it counts as unchanged.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import sys

from holdfast.lifecycle.limits import current_limits

__all__ = ["kernel_state", "umask"]

#: Capabilities, filters of system calls, and who traces it.
_STATUS = re.compile(rb"^(?:Cap\w+|NoNewPrivs|Seccomp\w*|TracerPid):.*", re.MULTILINE)
_NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid_for_children", "time_for_children", "user", "uts")
#: Options of `prctl` that it returns (dumpable, keep capabilities, secure bits, timer slack, huge pages), and that it
#: writes into a variable (signal at the parent's end, subreaper).
_OPTIONS, _OPTIONS_INTO = (3, 7, 27, 30, 42), (2, 37)
_prctl = getattr(ctypes.CDLL(None), "prctl", None) if sys.platform == "linux" else None


def kernel_state() -> list[object]:
    """All of it, to be compared with what it was before."""
    return [
        current_limits(),
        umask(),
        os.getpriority(os.PRIO_PROCESS, 0),
        _privileges(),
        _STATUS.findall(_read("/proc/self/status")),
        [_namespace(name) for name in _NAMESPACES],
        _options(),
        _read("/proc/self/oom_score_adj"),
        _read("/proc/self/timers"),  # those of `timer_create`: they signal the process at any later time
    ]


def umask() -> int:
    """The mask for the modes of new files."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _privileges() -> list[object]:
    """Who it is, which files it sees, and on which processors it runs: what was given up cannot be taken back."""
    root = os.stat("/")  # noqa: PTH116 - for every job
    turns = (os.sched_getaffinity(0), os.sched_getscheduler(0)) if hasattr(os, "sched_getaffinity") else None
    ids = (os.getuid(), os.geteuid(), os.getgid(), os.getegid())
    saved = (os.getresuid(), os.getresgid()) if hasattr(os, "getresuid") else None
    return [ids, saved, os.getgroups(), (root.st_dev, root.st_ino), turns]


def _namespace(name: str) -> str | None:
    try:
        return os.readlink(f"/proc/self/ns/{name}")  # noqa: PTH115 - for every job
    except OSError:
        return None


def _options() -> list[int]:
    if _prctl is None:
        return []
    value, found = ctypes.c_int(), [_prctl(option, 0, 0, 0, 0) for option in _OPTIONS]
    for option in _OPTIONS_INTO:
        _prctl(option, ctypes.byref(value), 0, 0, 0)
        found.append(value.value)
    return found


def _read(path: str) -> bytes:
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.read(descriptor, 8192)
        finally:
            os.close(descriptor)
    return b""

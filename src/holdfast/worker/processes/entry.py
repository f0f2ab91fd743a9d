"""The first code of a child process, run as a script, before anything else can be imported.

1. The child dies with its worker. Linux ensures this, even while C code keeps the interpreter lock. On other systems,
   and in addition, a thread ends the process when the socket closes.
2. A guard, a process that shares nothing with the child but its process group, kills that group at the moment that the
   worker named last: when the lease of a job with a target is over, and the worker is frozen. It does the same when the
   worker or the child has ended, so that no process that a handler started outlives them.
3. Modules are looked for where the worker looks for them, and nowhere else.
4. A child inherits limits, signals, file mode mask and priority from the thread that starts it, and a handler may have
   changed them there. They are set as they were when the worker started, as far as the system allows that.

It imports only the standard library. The first line that the worker sends says where Holdfast is.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import select
import signal
import socket
import struct
import sys
import time
from typing import Any

__all__ = ["main"]

_PR_SET_PDEATHSIG = 1
#: The clock for leases (see holdfast.lifecycle.elapsed).
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
#: How often the guard checks for the child if the kernel does not report its end.
_LOOK_SECONDS = 1.0
#: The longest wait at a time: `poll` counts milliseconds in 32 bits.
_NAP_SECONDS = 86_400.0


def main() -> None:
    """Start the child.

    The arguments are the descriptors of the socket, of the stop pipe, and of the guard's pipe; and the worker's state
    when it started.
    """
    _start_like(json.loads(sys.argv[4]))
    _die_with_parent()
    own, pipe = (int(sys.argv[1]), int(sys.argv[2])), int(sys.argv[3])
    _start_guard(pipe, not_for_it=own)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _not_yet)
    sock, stop = socket.socket(fileno=own[0]), own[1]
    sock.setblocking(True)  # a `socket.setdefaulttimeout` of the worker's app has made it non-blocking
    sock.set_inheritable(False)
    os.set_inheritable(stop, False)
    # Unbuffered, so that no bytes after the line are lost.
    with sock.makefile("rb", buffering=0) as lines:
        worker = json.loads(lines.readline())
    if os.getppid() != worker["pid"]:
        os._exit(1)
    sys.path[:] = worker["path"]
    sys.argv[:] = worker["argv"]
    from holdfast.worker.processes.inside import serve

    serve(sock, stop, worker["taken"])


def _start_like(worker: dict[str, Any]) -> None:
    """Undo what handlers have changed in the worker's process since it started."""
    with contextlib.suppress(ImportError):
        import resource

        for number, soft in worker["limits"]:
            with contextlib.suppress(OSError, ValueError):  # not beyond the hard limit
                resource.setrlimit(number, (soft, resource.getrlimit(number)[1]))
    os.umask(worker["mask"])
    # Python itself ignores two of them.
    for number in signal.valid_signals() - {*worker["ignored"], signal.SIGPIPE, signal.SIGXFSZ}:
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, worker["blocked"])
    with contextlib.suppress(OSError, KeyError):
        policy, priority = worker["turns"]
        if os.sched_getscheduler(0) != policy:
            os.sched_setscheduler(0, policy, os.sched_param(priority))
    with contextlib.suppress(OSError):  # needs privileges
        os.setpriority(os.PRIO_PROCESS, 0, worker["niceness"])
    with contextlib.suppress(OSError, KeyError), open("/proc/self/oom_score_adj", "w") as file:  # noqa: PTH123 - imports less
        file.write(worker["oom"])


def _die_with_parent() -> None:
    """Ask the kernel to kill this process when the thread that started it ends. Otherwise the closed socket ends it."""
    if sys.platform == "linux":
        with contextlib.suppress(ImportError, OSError, AttributeError):
            import ctypes

            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


def _start_guard(pipe: int, *, not_for_it: tuple[int, int]) -> None:
    """Fork the guard, twice: a handler that waits for all of its child processes must not wait for this one.

    Forking is safe because nothing else runs in this process yet. If the guard fails, it leaves through `_exit`.
    """
    child = os.getpid()
    between = os.fork()
    if between == 0:
        try:
            if os.fork() == 0:
                for descriptor in not_for_it:
                    os.close(descriptor)
                _guard(pipe, child)
        finally:
            os._exit(0)
    with contextlib.suppress(ChildProcessError):  # if SIGCHLD is ignored, it is reaped at once
        os.waitpid(between, 0)
    os.close(pipe)


def _guard(pipe: int, child: int) -> None:
    """Kill the process group when its time is over, or when the child or the worker is gone.

    The group's id cannot be reused meanwhile, because the guard itself is a member of the group.
    """
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        with contextlib.suppress(OSError):
            signal.signal(number, signal.SIG_IGN)  # handlers may signal their process group
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nothing, stream)
    poll, end = select.poll(), None
    poll.register(pipe, select.POLLIN)
    if hasattr(os, "pidfd_open"):
        with contextlib.suppress(OSError):
            end = os.pidfd_open(child)
            poll.register(end, select.POLLIN)
    try:
        _wait_for_the_end(poll, pipe, child, end)
    finally:
        os.killpg(0, signal.SIGKILL)


def _wait_for_the_end(poll: select.poll, pipe: int, child: int, end: int | None) -> None:
    until = math.inf
    while True:
        left = until - time.clock_gettime(_CLOCK)
        left = min(left, _NAP_SECONDS if end is not None else _LOOK_SECONDS)
        # Read messages before checking the time: perhaps the whole machine was frozen.
        heard = dict(poll.poll(max(0, math.ceil(left * 1000))))
        if pipe in heard:
            told = os.read(pipe, 4096)
            if not told:
                return
            (until,) = struct.unpack("=d", told[-8:])
        elif end in heard or time.clock_gettime(_CLOCK) >= until or (end is None and not _lives(child)):
            return


def _lives(process: int) -> bool:
    with contextlib.suppress(PermissionError):
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return False
    return True


def _not_yet(_number: int, _frame: object) -> None:
    """Ignore the signal. Service managers signal all processes of a service; only the worker decides about this one."""


if __name__ == "__main__":
    main()

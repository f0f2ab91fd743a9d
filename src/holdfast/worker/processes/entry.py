"""The first code of a child process, run as a script, before anything else can be imported.

1. The child dies with its worker. Linux sees to it, even while C code keeps the interpreter lock; on other
   systems, and besides, a thread ends the process when the socket closes.
2. Modules are looked for where the worker looks for them, and nowhere else.

It knows the standard library alone: where Holdfast is, the worker tells in the first line that it sends.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys

__all__ = ["main"]

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Begin: the file descriptors of the socket and of the pipe that tells to stop are the arguments."""
    _die_with_parent()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _not_yet)
    sock = socket.socket(fileno=int(sys.argv[1]))
    stop = int(sys.argv[2])
    sock.set_inheritable(False)
    os.set_inheritable(stop, False)
    # Unbuffered, so that nothing of what comes after the line is swallowed.
    with sock.makefile("rb", buffering=0) as lines:
        worker = json.loads(lines.readline())
    if os.getppid() != worker["pid"]:
        os._exit(1)
    sys.path[:] = worker["path"]
    sys.argv[:] = worker["argv"]
    from holdfast.worker.processes.inside import serve

    serve(sock, stop)


def _die_with_parent() -> None:
    """Have the kernel kill this process when the thread that started it ends. Where it cannot, the socket tells."""
    if sys.platform == "linux":
        with contextlib.suppress(ImportError, OSError, AttributeError):
            import ctypes

            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


def _not_yet(_number: int, _frame: object) -> None:
    """Service managers signal all processes of a service; what becomes of this one is the worker's to say."""


if __name__ == "__main__":
    main()

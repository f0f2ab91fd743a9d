"""Handlers that end their own process, or take away what it needs."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
import socket
import stat
import sys
import threading
import time
from contextlib import suppress
from typing import Any

from tests.worker.ways.table import PROCESS, Table

__all__ = ["ENDING", "SIGNALS"]

ENDING = Table()
_dies = ENDING.way(*PROCESS, says="process")
#: Those that end a Python program. Others are ignored, or stop it; SIGTERM and SIGINT are the worker's.
SIGNALS = sorted(
    number
    for number in map(int, signal.valid_signals())
    if number
    not in (
        *(signal.SIGCHLD, signal.SIGCONT, signal.SIGURG, signal.SIGWINCH, signal.SIGPIPE, signal.SIGXFSZ),
        *(signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU, signal.SIGTERM, signal.SIGINT),
    )
)
#: Enough of them for every day: one of each kind.
_FEW = (signal.SIGHUP, signal.SIGKILL, signal.SIGSEGV, signal.SIGALRM, 34, 64)


def kill_oneself(number: int) -> None:
    """Send this process a signal that ends it, even if the parent of the tests ignores it (`nohup`)."""
    faulthandler.disable()
    if number != signal.SIGKILL:
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    time.sleep(10)


def _declare(number: int) -> None:
    ENDING.way(*PROCESS, says="was killed by", name=f"signal-{number}")(lambda ctx: kill_oneself(number))


for _number in _FEW:
    _declare(_number)


@ENDING.way(*PROCESS, outcome="success")
def signals_that_end_nothing(ctx: Any) -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD, signal.SIGCONT, signal.SIGURG, signal.SIGPIPE):
        os.kill(os.getpid(), number)
    os.killpg(0, signal.SIGTERM)


@_dies
def exit_at_once(ctx: Any) -> None:
    os._exit(0)


@_dies
def exit_with_a_code(ctx: Any) -> None:
    os._exit(300 & 0xFF)


@ENDING.way(*PROCESS, says="3")
def exit_as_usual(ctx: Any) -> None:
    sys.exit(3)


@_dies
def exit_of_a_thread(ctx: Any) -> None:
    threading.Thread(target=os._exit, args=(5,)).start()
    time.sleep(10)


@_dies
def abort(ctx: Any) -> None:
    faulthandler.disable()
    os.abort()


@_dies
def crash(ctx: Any) -> None:
    faulthandler.disable()
    ctypes.string_at(1)


@_dies
def another_program(ctx: Any) -> None:
    os.execv("/bin/sh", ["sh", "-c", "exit 3"])


@_dies
def a_long_program(ctx: Any) -> None:
    os.execv("/bin/sleep", ["sleep", "600"])


@_dies
def descriptors_closed(ctx: Any) -> None:
    os.closerange(3, 1000)
    time.sleep(10)


@_dies
def nonsense_to_the_worker(ctx: Any) -> None:
    for name in os.listdir("/dev/fd"):  # noqa: PTH208 - these are numbers
        with suppress(OSError):
            if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                os.write(int(name), b"\xff" * 64)
    time.sleep(10)


@_dies
def half_a_frame(ctx: Any) -> None:
    for name in os.listdir("/dev/fd"):  # noqa: PTH208 - these are numbers
        with suppress(OSError):
            if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                os.write(int(name), (2**40).to_bytes(8))
                socket.socket(fileno=int(name)).shutdown(socket.SHUT_RDWR)
    time.sleep(10)


@_dies
def stack_overflow(ctx: Any) -> None:
    faulthandler.disable()
    sys.setrecursionlimit(10**9)

    def deeper() -> Any:
        return list(map(lambda _: deeper(), [1]))  # noqa: C417 - through C, so that the real stack grows

    deeper()

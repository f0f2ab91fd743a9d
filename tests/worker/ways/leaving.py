"""Handlers that leave something behind in the interpreter or the process."""

from __future__ import annotations

import _imp
import asyncio
import builtins
import contextvars
import decimal
import gc
import locale
import logging
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any, NoReturn

from tests.worker.ways.table import IN_THE_WORKER, PROCESS, THREAD, Table

__all__ = ["LEAVING", "condition", "release", "undo"]

LEAVING = Table()
_everywhere = LEAVING.way(outcome="success")
_in_a_process = LEAVING.way(*PROCESS, outcome="success")
_in_the_worker = LEAVING.way(*IN_THE_WORKER, outcome="success")

_variable = contextvars.ContextVar("left", default="nothing")
#: What undoes what was left in a process that is not thrown away.
undo: list[Callable[[], object]] = []
_released = threading.Event()


def release() -> None:
    """Take away what handlers of this process have left."""
    _released.set()
    while undo:
        undo.pop()()
    _released.clear()


def condition() -> dict[str, Any]:
    """What the next handler finds."""
    return {
        "folder": os.getcwd(),  # noqa: PTH109 - as the handler left it
        "umask": _umask(),
        "locale": locale.setlocale(locale.LC_ALL),
        "environment": sorted(f"{k}={v}" for k, v in os.environ.items()),
        "recursion": sys.getrecursionlimit(),
        "switch": sys.getswitchinterval(),
        "digits": sys.get_int_max_str_digits(),
        "collector": [gc.isenabled(), gc.get_threshold(), gc.get_debug()],
        "socket timeout": socket.getdefaulttimeout(),
        "filters": len(warnings.filters),
        "variable": _variable.get(),
        "timers": [signal.getitimer(timer)[0] > 0 for timer in range(3)],
        "mask": sorted(map(int, signal.pthread_sigmask(signal.SIG_BLOCK, ()))),
        "signals": [str(signal.getsignal(number)) for number in (signal.SIGALRM, signal.SIGUSR1, signal.SIGCHLD)],
        "streams": [stream is None or stream.closed for stream in (sys.stdin, sys.stdout, sys.stderr)],
        "standard": [_opened(number) for number in range(3)],
        "print": builtins.print.__module__,
        "path": list(sys.path),
        "arguments": list(sys.argv),
        "hooks": [sys.excepthook is sys.__excepthook__, sys.gettrace() is None, sys.getprofile() is None],
        "silence": logging.root.manager.disable,
        "priority": os.getpriority(os.PRIO_PROCESS, 0),
        "files": resource.getrlimit(resource.RLIMIT_NOFILE),
        "context": decimal.getcontext().prec,
        "zone": time.tzname[0],
        "policy": type(asyncio.get_event_loop_policy()).__module__,
    }


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _opened(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


@_everywhere
def nothing(ctx: Any) -> None: ...


@_everywhere
def a_thread(ctx: Any) -> None:
    threading.Thread(target=_released.wait, daemon=True).start()


@_in_a_process
def a_thread_that_fails(ctx: Any) -> None:
    def fail() -> NoReturn:
        sys.exit("silently")

    threading.Thread(target=fail, daemon=True).start()


@_in_a_process
def a_thread_with_the_import_lock(ctx: Any) -> None:
    _hold(_imp.acquire_lock)


@_in_a_process
def a_thread_with_the_lock_of_logging(ctx: Any) -> None:
    _hold(logging._lock.acquire)  # type: ignore[attr-defined]


def _hold(acquire: Callable[[], object]) -> None:
    """Leave a thread that holds a lock."""
    held = threading.Event()

    def hold() -> None:
        acquire()
        held.set()
        time.sleep(600)

    threading.Thread(target=hold, daemon=True).start()
    held.wait()


@_everywhere
def a_program(ctx: Any) -> None:
    program = subprocess.Popen(["sleep", "600"])
    undo.extend([program.wait, program.kill])


@_in_a_process
def a_copy(ctx: Any) -> None:
    if os.fork() == 0:
        time.sleep(600)
        os._exit(0)


@_everywhere
def an_open_file(ctx: Any) -> None:
    number = os.open(os.devnull, os.O_RDONLY)
    undo.append(lambda: os.close(number))


@_everywhere
def a_listening_socket(ctx: Any) -> None:
    sock = socket.create_server(("127.0.0.1", 0))
    undo.append(sock.close)


@_in_a_process
def garbage(ctx: Any) -> None:
    class Cycle:
        def __del__(self) -> NoReturn:
            raise SystemExit("in a destructor")

    for _ in range(100):
        cycle = Cycle()
        cycle.itself = cycle  # type: ignore[attr-defined]


@_in_a_process
def another_folder(ctx: Any) -> None:
    folder = tempfile.mkdtemp()
    os.chdir(folder)
    os.rmdir(folder)  # noqa: PTH106 - the folder that it is in


@_in_a_process
def another_umask(ctx: Any) -> None:
    os.umask(0o077)


@_in_a_process
def another_locale(ctx: Any) -> None:
    locale.setlocale(locale.LC_ALL, "C.UTF-8" if "UTF-8" not in locale.setlocale(locale.LC_ALL) else "C")


@_in_a_process
def another_environment(ctx: Any) -> None:
    os.environ["AWS_SECRET_ACCESS_KEY"] = "of another tenant"
    os.environ.pop("PATH")


@_in_a_process
def another_zone(ctx: Any) -> None:
    os.environ["TZ"] = "Asia/Kathmandu"
    time.tzset()


@_in_a_process
def little_recursion(ctx: Any) -> None:
    sys.setrecursionlimit(60)


@_in_a_process
def much_recursion(ctx: Any) -> None:
    sys.setrecursionlimit(10**6)


@_in_a_process
def another_switch_interval(ctx: Any) -> None:
    sys.setswitchinterval(60)


@_in_a_process
def another_number_limit(ctx: Any) -> None:
    sys.set_int_max_str_digits(0)


@_in_a_process
def no_collector(ctx: Any) -> None:
    gc.disable()
    gc.set_threshold(1)


@_in_a_process
def a_socket_timeout(ctx: Any) -> None:
    socket.setdefaulttimeout(0.000001)


@_in_a_process
def a_warning_filter(ctx: Any) -> None:
    warnings.simplefilter("error")


@_everywhere
def a_context_variable(ctx: Any) -> None:
    _variable.set("of another job")


@_everywhere
def a_decimal_context(ctx: Any) -> None:
    decimal.getcontext().prec = 3


@_in_a_process
def a_timer(ctx: Any) -> None:
    signal.setitimer(signal.ITIMER_REAL, 0.05)


@_in_a_process
def an_alarm(ctx: Any) -> None:
    signal.alarm(1)


@_in_a_process
def a_profiling_timer(ctx: Any) -> None:
    signal.setitimer(signal.ITIMER_PROF, 0.05)


@_in_a_process
def a_signal_handler(ctx: Any) -> None:
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)


@_in_a_process
def children_ignored(ctx: Any) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)


@_in_a_process
def our_signals_ignored(ctx: Any) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@_in_a_process
def a_mask(ctx: Any) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())


@_in_a_process
def a_wake_up_descriptor(ctx: Any) -> None:
    _, write = os.pipe()
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write)


@_in_a_process
def streams_closed(ctx: Any) -> None:
    sys.stdout.close()
    sys.stderr.close()


@_in_a_process
def streams_taken_away(ctx: Any) -> None:
    sys.stdout = sys.stderr = None


@_in_a_process
def standard_descriptors_closed(ctx: Any) -> None:
    os.closerange(0, 3)


@_in_a_process
def another_print(ctx: Any) -> None:
    def nowhere(*_: Any, **__: Any) -> NoReturn:
        raise RuntimeError("nothing is printed")

    builtins.print = nowhere


@_in_a_process
def another_path(ctx: Any) -> None:
    sys.path[:] = []
    sys.argv[:] = ["another"]


@_in_a_process
def hooks(ctx: Any) -> None:
    sys.excepthook = lambda *_: None
    sys.settrace(lambda *_: None)
    sys.setprofile(lambda *_: None)


@_in_a_process
def no_log(ctx: Any) -> None:
    logging.disable(logging.CRITICAL)


@_in_a_process
def low_priority(ctx: Any) -> None:
    os.nice(5)


@_in_a_process
def few_files(ctx: Any) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (32, 32))


@_in_a_process
def another_loop_policy(ctx: Any) -> None:
    class Policy(asyncio.DefaultEventLoopPolicy):
        pass

    asyncio.set_event_loop_policy(Policy())


@LEAVING.way(*THREAD, outcome="success")
def a_trace_function(ctx: Any) -> None:
    def stop(*_: Any) -> NoReturn:
        raise TimeoutError("the deadline of another job")

    sys.settrace(stop)


@LEAVING.way(*THREAD, outcome="success")
def a_profile_function(ctx: Any) -> None:
    sys.setprofile(lambda *_: None)


@_in_the_worker
def little_recursion_for_all(ctx: Any) -> None:
    sys.setrecursionlimit(200)

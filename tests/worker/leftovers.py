"""Handlers in processes of their own that leave something behind: copies, threads, transactions, another folder."""

from __future__ import annotations

import _thread
import ctypes
import faulthandler
import itertools
import json
import multiprocessing
import os
import resource
import signal
import stat
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from holdfast import Context, Holdfast, RetryPolicy, SyncContext
from holdfast.worker.processes.company import Company
from holdfast.worker.processes.frames import Frame, packed

ONCE = RetryPolicy(max_attempts=1)
INSERT = "insert into public.effects (job_id) values ($1)"

hf = Holdfast()
#: A thread of the module, as libraries have them.
threading.Thread(target=threading.Event().wait, daemon=True).start()


@hf.job("pid", executor="process", retry=ONCE)
def pid(ctx: Context) -> int:
    return os.getpid()


@hf.job("fork", executor="process", retry=ONCE, timeout=10)
def fork(ctx: SyncContext, how: str, log: str) -> list[Any]:
    """The copy comes back from the handler first; its parent tells how it ended."""
    copy = os.fork()
    if copy == 0:
        with Path(log).open("w") as file:
            os.dup2(file.fileno(), 2)
        if how == "exit":
            sys.exit(3)
        if how == "message":
            sys.exit("enough")
        if how == "raise":
            raise ValueError("in the copy")
        if how == "speak":
            ctx.logger.warning("a line of the copy")
            for call in (lambda: ctx.enqueue("child"), lambda: ctx.transaction().__enter__()):
                if "only the process itself can reach the worker" not in str(_fault(call)):
                    os._exit(99)
            os._exit(int(ctx.canceled))
        if how == "again":
            files = [Path(log).open() for _ in range(5)]  # noqa: SIM115 - left to the end
            if (copy := os.fork()) == 0:
                os._exit(sum(os.read(file.fileno(), 1) != b"" for file in files))
            os._exit(os.waitstatus_to_exitcode(os.waitpid(copy, 0)[1]))
        return ["copy"]
    return ["original", os.waitstatus_to_exitcode(os.waitpid(copy, 0)[1])]


@hf.job("fork busily", executor="process", retry=ONCE)
def fork_busily(ctx: Context, mark: str) -> None:
    """Forks all the time, so that it is most probably interrupted in the middle of that."""
    try:
        while True:
            if (copy := os.fork()) == 0:
                os._exit(0)
            os.waitpid(copy, 0)
            Path(mark).touch()
    finally:
        Path(f"{mark}.cleaned").touch()


@hf.job("terminate", executor="process", retry=ONCE, timeout=10)
def terminate(ctx: Context, how: str) -> int | None:
    """Ends processes of its own that are busy in C, as the standard library does."""
    forking = multiprocessing.get_context("fork")
    if how == "pool":
        with forking.Pool(2) as pool:
            for _ in range(2):
                pool.apply_async(_spin)
            _wait(lambda: all(_busy(child.pid) for child in multiprocessing.active_children()))
        return 0
    # Many, because the signal may come at any moment of their start; the last one is well into its loop.
    processes = [forking.Process(target=_spin) for _ in range(20)]
    for process in processes:
        process.start()
        if process is processes[-1]:
            _wait(lambda: _busy(processes[-1].pid))
        process.terminate()
        process.join()
    (code,) = {process.exitcode for process in processes}
    return code


def _busy(pid: int | None) -> bool:
    """Whether it has computed for a while."""
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[11]) >= 5


def _spin() -> None:
    sum(itertools.repeat(0))


@hf.job("twice", executor="process", retry=ONCE)
def twice(ctx: Any) -> str:
    """Answers once more than it should."""
    _utter({"kind": "returned", "order": ctx._claimed.order, "value": '"said twice"', "reusable": True})
    return "returned"


@hf.job("foretell", executor="process", retry=ONCE)
def foretell(ctx: Any, mark: str) -> int:
    """Answers for the next order, before that has come."""
    line = ctx._claimed.line

    def utter() -> None:
        _wait(lambda: line.current is None)
        with line._sending:
            _utter({"kind": "returned", "order": ctx._claimed.order + 1, "value": "0", "reusable": True})
        Path(mark).touch()

    _start_unseen(utter)
    return os.getpid()


@hf.job("thread", executor="process", retry=ONCE)
def thread(ctx: Any, mark: str) -> int:
    """Leaves a thread, which goes on when somebody writes the file `.go`, and tells what became of it in `.told`."""

    def go_on() -> None:
        _wait(Path(f"{mark}.go").exists)
        told = {"log": _fault(lambda: ctx.logger.warning("of an earlier job"))}
        told["enqueue"] = _fault(lambda: ctx.enqueue("child"))
        told["transaction"] = _fault(lambda: ctx.transaction().__enter__())
        ctx._claimed.ending = True
        ctx._claimed.completed = True
        Path(f"{mark}.new").write_text(json.dumps(told))
        Path(f"{mark}.new").rename(f"{mark}.told")

    _start_unseen(go_on)
    return os.getpid()


@hf.job("stumble", executor="process", retry=ONCE)
def stumble(ctx: Context, mark: str) -> None:
    """Lets that thread go on, and fails."""
    Path(f"{mark}.go").touch()
    _wait(Path(f"{mark}.told").exists)
    raise ValueError(f"in process {os.getpid()}")


@hf.job("open transaction", executor="process", retry=ONCE)
def open_transaction(ctx: SyncContext) -> int:
    """Leaves a thread in the middle of its transaction."""
    inside = threading.Event()

    def write() -> None:
        with ctx.transaction() as conn:
            conn.execute(INSERT, ctx.job_id)
            inside.set()
            time.sleep(60)

    threading.Thread(target=write, daemon=True).start()
    inside.wait()
    return os.getpid()


@hf.job("slow post", executor="process", lease=1)
def slow_post(ctx: SyncContext, mark: str) -> None:
    """Waits in the middle of the transaction that ends its job, in its first attempt."""
    try:
        with ctx.transaction() as conn:
            conn.execute(INSERT, ctx.job_id)
            if ctx.attempt == 1:
                Path(mark).touch()
                _wait(Path(f"{mark}.go").exists)
    except BaseException as error:
        Path(f"{mark}.raised").write_text(type(error).__name__)
        raise


@hf.job("end and fail", executor="process", retry=ONCE)
def end_and_fail(ctx: SyncContext) -> None:
    """Fails after its own transaction has ended its job."""
    ctx.logger.info("begun")
    with ctx.transaction():
        pass
    raise ValueError("after the end")


@hf.job("inherit", executor="process", retry=ONCE)
def inherit(ctx: SyncContext) -> list[Any]:
    """What this process has inherited."""
    return inherited()


def inherited() -> list[Any]:
    """What a process inherits from the thread that starts it."""
    mask = os.umask(0o77)
    os.umask(mask)
    limits = [resource.getrlimit(number)[0] for number in (resource.RLIMIT_FSIZE, resource.RLIMIT_MSGQUEUE)]
    blocked = sorted(map(int, signal.pthread_sigmask(signal.SIG_BLOCK, ())))
    ignored = signal.getsignal(signal.SIGUSR2) == signal.SIG_IGN
    return [limits, mask, blocked, ignored, os.sched_getscheduler(0)]


@hf.job("wander", executor="process", retry=ONCE)
def wander(ctx: Context, to: str) -> list[Any]:
    """Goes to another folder, and takes that away; says where it began."""
    began = str(Path.cwd())
    Path(to).mkdir(exist_ok=True)
    os.chdir(to)
    Path(to).rmdir()
    return [os.getpid(), began]


def _start_unseen(function: Callable[[], None]) -> None:
    """Leave a thread that the child does not find."""
    Company.left = lambda *_: False  # type: ignore[method-assign]
    threading.Thread(target=function, daemon=True).start()


def _utter(frame: Frame) -> None:
    """Say something to the worker, past everything that watches over it."""
    for name in os.listdir("/dev/fd"):  # noqa: PTH208 - these are numbers
        with suppress(OSError):
            # The connection is the only socket that the worker hears; the others belong to event loops.
            if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                os.write(int(name), packed(frame))


def _fault(call: Callable[[], object]) -> str | None:
    try:
        call()
    except Exception as error:  # noqa: BLE001 - it is told
        return f"{type(error).__name__}: {error}"
    return None


def _wait(condition: Callable[[], bool]) -> None:
    while not condition():
        time.sleep(0.01)


@hf.job("leave", executor="process", retry=ONCE)
def leave(ctx: SyncContext, what: str) -> int:
    """Leave something behind that would meet the next handler of this process, or put it away."""
    LEFT[what](ctx)
    return os.getpid()


def _a_filter(ctx: SyncContext) -> None:
    warnings.simplefilter("error")


def _an_environment(ctx: SyncContext) -> None:
    os.environ["LEFT"] = "behind"


def _a_timer(ctx: SyncContext) -> None:
    threading.Timer(600, os._exit, (1,)).start()


def _a_daemon(ctx: SyncContext) -> None:
    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()


def _a_raw_thread(ctx: SyncContext) -> None:
    _thread.start_new_thread(time.sleep, (600,))


_pools: list[ThreadPoolExecutor] = []


def _a_pool(ctx: SyncContext) -> None:
    pool = ThreadPoolExecutor(1)
    pool.submit(int)
    _pools.append(pool)


def _a_program(ctx: SyncContext) -> None:
    subprocess.Popen(["sleep", "600"])


def _a_copy(ctx: SyncContext) -> None:
    if os.fork() == 0:
        time.sleep(600)
        os._exit(0)


def _a_canceled_timer(ctx: SyncContext) -> None:
    timer = threading.Timer(600, os._exit, (1,))
    timer.start()
    timer.cancel()


def _a_closed_pool(ctx: SyncContext) -> None:
    with ThreadPoolExecutor(2) as threads:
        threads.submit(int)
    with multiprocessing.get_context("spawn").Pool(1) as processes:  # starts a process that keeps track of semaphores
        processes.apply(int)
        processes.close()
        processes.join()


def _an_ended_program(ctx: SyncContext) -> None:
    """Nobody waits for it, but it has ended."""
    left = subprocess.Popen(["true"], stdout=subprocess.PIPE)
    assert left.stdout is not None
    left.stdout.read()


def _a_job_and_a_transaction(ctx: SyncContext) -> None:
    """Their calls run in a thread of the child's own."""
    hf.sync.find()
    ctx.enqueue("pid")
    ctx.result = os.getpid()
    with ctx.transaction() as conn:
        conn.execute("select 1")


def _a_watchdog(ctx: SyncContext) -> None:
    faulthandler.dump_traceback_later(0.3, exit=True)


def _a_timer_of_the_system(ctx: SyncContext) -> None:
    """Its signal would end the child in the middle of a later job."""
    libc, timer = ctypes.CDLL(None), ctypes.c_void_p()
    libc.timer_create(0, None, ctypes.byref(timer))
    libc.timer_settime(timer, 0, (ctypes.c_long * 4)(0, 0, 600, 0), None)


def _other_privileges(ctx: SyncContext) -> None:
    if os.geteuid() == 0:
        os.setegid(65534)
    else:
        os.umask(0o77)  # nobody else may give up privileges


#: What can be left behind, and whether the child is used again.
LEFT: dict[str, Callable[[SyncContext], None]] = {
    "nothing": lambda ctx: None,
    "filter": _a_filter,
    "environment": _an_environment,
    "timer": _a_timer,
    "daemon": _a_daemon,
    "raw thread": _a_raw_thread,
    "pool": _a_pool,
    "program": _a_program,
    "copy": _a_copy,
    "canceled timer": _a_canceled_timer,
    "closed pool": _a_closed_pool,
    "ended program": _an_ended_program,
    "job and transaction": _a_job_and_a_transaction,
    "watchdog": _a_watchdog,
    "timer of the system": _a_timer_of_the_system,
    "privileges": _other_privileges,
    "limit": lambda ctx: resource.setrlimit(resource.RLIMIT_CPU, (1000, resource.getrlimit(resource.RLIMIT_CPU)[1])),
    "scheduler": lambda ctx: os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0)),
}
KEPT = (
    *("nothing", "filter", "canceled timer", "closed pool", "ended program"),
    *("job and transaction", "watchdog"),
)


@hf.job("rest", executor="process", retry=ONCE)
def rest(ctx: Context) -> int:
    """Runs for longer than a watchdog of an earlier job waits."""
    time.sleep(0.6)
    return os.getpid()

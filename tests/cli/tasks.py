"""The app of these tests."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import sys
import threading
import time

from holdfast import Context, Fatal, Holdfast, RetryPolicy, SyncContext

hf = Holdfast()
not_an_app = 42


@hf.job("add")
async def add(ctx: Context, a: int, b: int) -> int:
    return a + b


@hf.job("hopeless")
async def hopeless(ctx: Context) -> None:
    raise Fatal("it cannot be done")


@hf.job("nap")
async def nap(ctx: Context, seconds: float) -> str:
    ctx.logger.info("begins to nap")
    await asyncio.sleep(seconds)
    return "rested"


@hf.job("process")
async def process(ctx: Context) -> int:
    return os.getpid()


@hf.job("stubborn", timeout=0.2, retry=RetryPolicy(max_attempts=1))
def stubborn(ctx: Context) -> None:
    threading.Event().wait(120)


@hf.job("slow", timeout=0.2)
def slow(ctx: Context) -> str:
    time.sleep(1)
    return "done in the end"


@hf.job("deaf")
def deaf(ctx: Context) -> None:
    ctx.logger.info("hears nothing")
    threading.Event().wait(120)


@hf.job("block", timeout=0.2, retry=RetryPolicy(base=3600))
async def block(ctx: Context) -> None:
    ctx.logger.info("blocks the loop")
    os.chdir("/")  # whoever goes on does so where, and as, the worker was started
    os.environ.clear()
    for _ in range(50):
        os.set_inheritable(os.open(os.devnull, os.O_RDONLY), True)
    resource.setrlimit(resource.RLIMIT_NOFILE, (4, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, 0.5, 0.01)
    while True:
        time.sleep(120)


def _leave(timer: int, seconds: float) -> None:
    """What ends a process by default: a timer, and signals that other leftovers send."""
    signal.setitimer(timer, seconds)
    for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGIO, *range(signal.SIGRTMIN, signal.SIGRTMAX + 1)):
        os.kill(os.getpid(), number)


@hf.job("leave async", retry=RetryPolicy(max_attempts=1))
async def leave_async(ctx: Context, timer: int, seconds: float) -> None:
    signal.signal(signal.SIGVTALRM, signal.SIG_DFL)
    _leave(timer, seconds)


@hf.job("leave thread", retry=RetryPolicy(max_attempts=1))
def leave_thread(ctx: SyncContext, timer: int, seconds: float) -> None:
    _leave(timer, seconds)


@hf.job("block without python", timeout=0.2, retry=RetryPolicy(base=3600))
async def block_without_python(ctx: Context) -> None:
    sys.executable = "/removed/by/a/deployment"
    ctx.logger.info("blocks the loop")
    time.sleep(120)


@hf.job("talkative", timeout=5)
async def talkative(ctx: Context) -> None:
    for _ in range(200):
        ctx.logger.info("y" * 1000)


@hf.job("absorbed")
async def absorbed(ctx: Context) -> None:
    ctx.logger.info("lets nobody else run")
    time.sleep(120)


@hf.job("fork")
async def fork(ctx: Context) -> int:
    return os.fork()


@hf.job("fork in a thread")
def fork_in_a_thread(ctx: SyncContext, raises: bool) -> int:
    pid = os.fork()
    if raises and pid == 0:
        raise RuntimeError("the copy fails")
    return pid

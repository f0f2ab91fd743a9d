"""Handlers that tests run in processes of their own."""

from __future__ import annotations

import asyncio
import ctypes
import itertools
import os
import re
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NoReturn
from uuid import UUID

from pydantic import BaseModel

from holdfast import (
    Context,
    Fatal,
    Hold,
    Holdfast,
    JobRef,
    Middleware,
    NewJob,
    Retry,
    RetryPolicy,
    Snooze,
    SyncContext,
)
from holdfast.client.new_job import Record
from holdfast.errors import Interrupted
from tests.harness.stuck import wait_in_c

SOON = RetryPolicy(base=0.01, factor=1.0, max_attempts=2)
ONCE = RetryPolicy(max_attempts=1)


@asynccontextmanager
async def lifespan(app: Holdfast) -> AsyncIterator[dict[str, Any]]:
    yield {
        "pid": os.getpid(),
        "thread": threading.current_thread().name,
        "database": app.config.database_url,
    }
    await asyncio.sleep(float(os.environ.get("FAREWELL_SECONDS", "0")))
    if "FAREWELL" in os.environ:
        Path(os.environ["FAREWELL"]).write_text("left")


class Waiting(Middleware):
    """Waits, before and after, where the job's type asks for it."""

    async def enqueue(self, jobs: list[NewJob], call_next: Record) -> list[JobRef]:
        (job,) = jobs
        if job.type == "endless":
            Path(job.payload["mark"]).touch()
            await asyncio.Event().wait()
        if job.type != "waited for":
            return await call_next(jobs)
        await asyncio.sleep(0.01)
        job.payload = {"waited": True}
        answers = await call_next(jobs)
        await asyncio.sleep(0.01)
        return answers


hf = Holdfast(lifespan=lifespan, middleware=[Waiting()])


class Order(BaseModel):
    number: int
    lines: list[str] = []


@dataclass
class Total:
    amount: int
    at: datetime


@hf.job("tell", executor="process")
def tell(ctx: Context) -> dict[str, Any]:
    return {
        "context": [ctx.job_id, ctx.type, ctx.attempt, ctx.tenant, ctx.correlation_id, ctx.canceled],
        "history": [ctx.failures, ctx.max_attempts, ctx.traceparent],
        "pid": os.getpid(),
        "parent": os.getppid(),
        "main thread": threading.current_thread() is threading.main_thread(),
        "resources": ctx.resources,
        "arguments": sys.orig_argv,
    }


@hf.job("ship", executor="process")
def ship(ctx: Context, order: Order) -> Order:
    return Order(number=order.number + 1, lines=[*order.lines, type(order).__name__])


@hf.job("total", executor="process")
def total(ctx: Context, total: Total, times: int = 1) -> Total:
    return Total(total.amount * times, total.at + timedelta(days=1))


@hf.job("echo", executor="process")
def echo(ctx: Context, value: Any) -> Any:
    return value


@hf.job("unstorable", executor="process", retry=SOON)
def unstorable(ctx: Context) -> Any:
    return object()


class MyFatal(Fatal):
    pass


@hf.job("raise", executor="process", retry=SOON)
def raising(ctx: Context, what: str) -> str:
    match what:
        case "error":
            raise ValueError(f"attempt {ctx.attempt}")
        case "fatal":
            raise MyFatal("no such customer")
        case "hold":
            raise Hold("the token limit is reached")
        case "retry":
            raise Retry("not yet", delay=timedelta(hours=2))
        case "snooze" if ctx.attempt == 1:
            raise Snooze(0.01, "a little")
        case "exit":
            sys.exit("enough")
    return "done"


@hf.job("family", executor="process")
def family(ctx: SyncContext, child: str = "child") -> list[UUID]:
    first = ctx.enqueue(child, {"n": 1}, priority=7)
    again = ctx.enqueue(child, {"n": 1}, idempotency_key="once")
    return [first.id, again.id]


@hf.job("ask", executor="process", retry=SOON)
def ask(ctx: SyncContext, child: str, mark: str | None = None) -> UUID:
    """Enqueues what middleware waits for."""
    return ctx.enqueue(child, {"mark": mark}).id


@hf.job("in sync", executor="process", retry=ONCE)
def in_sync(ctx: Context) -> str | None:
    """Uses the app itself."""
    hf.sync.enqueue("child", {"n": 3})
    return hf.config.database_url


@hf.job("lent", executor="process", retry=ONCE)
def lent(ctx: SyncContext, url: str) -> None:
    """Enqueues on a connection of its own, once in a transaction that is rolled back."""
    import psycopg  # here, because most children of the tests do not need it

    with psycopg.connect(url) as conn:
        ctx.enqueue("child", {"n": 1}, conn=conn)
        conn.rollback()
        ctx.enqueue("child", {"n": 2}, conn=conn)
    ctx.result = "lent"


@hf.job("chatty", executor="process", retry=ONCE)
def chatty(ctx: Context, mark: str) -> str:
    """Says much, so that it is most probably interrupted in the middle of a line."""
    try:
        Path(mark).touch()
        while True:
            ctx.logger.warning("x" * 1_000_000)
    except Interrupted:
        ctx.logger.warning("and out")
    return "all understood"


@hf.job("log", executor="process")
def log(ctx: Context, die: bool = False) -> None:
    ctx.logger.debug("too quiet to be heard")
    ctx.logger.warning("half %s: 100%%", "done")
    try:
        raise KeyError("lost")
    except KeyError:
        ctx.logger.exception("went on")
    if die:
        os._exit(0)


@hf.job("regex", executor="process", retry=ONCE)
def regex(ctx: Context, mark: str) -> None:
    """Catastrophic backtracking, in C, which keeps the interpreter lock but looks for signals."""
    Path(mark).touch()
    try:
        re.match(r"(a+)+$", "a" * 60 + "b")
    finally:
        Path(f"{mark}.cleaned").touch()


@hf.job("c loop", executor="process", retry=ONCE)
def c_loop(ctx: Context, mark: str) -> None:
    """An endless loop in C, which keeps the interpreter lock and looks for nothing."""
    Path(mark).write_text(str(os.getpid()))
    sum(itertools.repeat(0))


@hf.job("c call", executor="process", retry=ONCE)
def c_call(ctx: Context, mark: str) -> None:
    """The same for tests in which nothing depends on a busy processor."""
    Path(mark).write_text(str(os.getpid()))
    wait_in_c()


@hf.job("sleep", executor="process", retry=ONCE)
def sleep(ctx: Context, seconds: float, mark: str | None = None) -> str:
    if mark is not None:
        Path(mark).write_text(str(os.getpid()))
    time.sleep(seconds)
    return "slept"


@hf.job("despite", executor="process", retry=ONCE)
def despite(ctx: Context, mark: str, how: str) -> str:
    """Does not let itself be stopped."""
    try:
        Path(mark).touch()
        time.sleep(60)
    except Interrupted:
        if how == "hold":
            raise Hold("the token limit is reached") from None
        if how == "fail":
            raise ValueError("confused") from None
    return f"done all the same, {ctx.canceled}"


@hf.job("crash", executor="process", retry=ONCE)
def crash(ctx: Context, how: str) -> None:
    if how == "exit":
        os._exit(7)
    elif how == "segmentation fault":
        ctypes.string_at(0)
    elif how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    elif how == "nonsense":
        for name in os.listdir("/dev/fd"):  # noqa: PTH208 - these are numbers
            with suppress(OSError):
                if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                    os.write(int(name), b"\0\0\0\0\0\0\0\2[]")
        time.sleep(60)


@hf.job("offspring", executor="process", retry=ONCE)
def offspring(ctx: Context, mark: str) -> NoReturn:
    """Starts a process of its own, and never looks up."""
    started = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])
    Path(mark).write_text(str(started.pid))
    sum(itertools.repeat(0))
    raise AssertionError


def _plain(ctx: Context) -> str:
    return "another name"


other_name = hf.job("other name", executor="process")(_plain)
SINCE = datetime(2030, 1, 1, tzinfo=UTC)


@hf.job("post", executor="process", retry=SOON)
def post(ctx: SyncContext, own: str | None = None, fail: bool = False) -> None:
    """Writes in the transaction that ends its job, on a connection of ours or of its own."""
    if own is None:
        with ctx.transaction() as conn:
            conn.execute("insert into public.effects (job_id) values ($1)", ctx.job_id)
            ctx.logger.warning("written")
            ctx.result = os.getpid()
            if fail and ctx.attempt == 1:
                raise RuntimeError("no")
        time.sleep(0.5)
        return
    import psycopg

    with psycopg.connect(own) as mine, ctx.transaction(mine):
        mine.execute("insert into public.effects (job_id) values (%s)", [ctx.job_id])
        ctx.enqueue("next", conn=mine)


@hf.job("folder", executor="process", retry=ONCE)
def folder(ctx: Context) -> str:
    """Says where it began."""
    return str(Path.cwd())

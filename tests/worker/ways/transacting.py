"""Handlers that misuse the transaction that ends their job."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NoReturn

from tests.worker.ways.raising import ERRORS
from tests.worker.ways.table import ASYNC, PROCESS, THREAD, Table

__all__ = ["TRANSACTING"]

TRANSACTING = Table()
_BLOCKING = (*THREAD, *PROCESS)
_INSERT = "insert into public.effects (job_id) values ($1)"


def _raised_within(name: str, make: Callable[[], BaseException]) -> None:
    @TRANSACTING.way(*ASYNC, name=f"async-raises-{name}")
    async def in_the_loop(ctx: Any) -> None:
        async with ctx.transaction() as conn:
            await conn.execute(_INSERT, ctx.job_id)
            raise make()

    @TRANSACTING.way(*_BLOCKING, name=f"raises-{name}")
    def blocking(ctx: Any) -> None:
        with ctx.transaction() as conn:
            conn.execute(_INSERT, ctx.job_id)
            raise make()


for _name in ("plain", "own", "exit", "generator-exit", "canceled", "stop", "interrupt", "says-exit", "base-group"):
    _raised_within(_name, ERRORS[_name])

_STATEMENTS = {
    "bad-sql": "select nonsense from nowhere",
    "constraint": "insert into public.effects (job_id) values (null)",
    "division": "select 1/0",
    "serialization": "do $$ begin raise exception 'try again' using errcode = '40001'; end $$",
    "deadlock": "do $$ begin raise exception 'try again' using errcode = '40P01'; end $$",
    "cut": "select pg_terminate_backend(pg_backend_pid())",
    "timeout": "set local statement_timeout = 10; select pg_sleep(5)",
    "read-only": "set transaction read only",
}


def _stated(name: str, statement: str) -> None:
    @TRANSACTING.way(*ASYNC, name=f"async-{name}")
    async def in_the_loop(ctx: Any) -> None:
        async with ctx.transaction() as conn:
            await conn.execute(statement)

    @TRANSACTING.way(*_BLOCKING, name=name)
    def blocking(ctx: Any) -> None:
        with ctx.transaction() as conn:
            conn.execute(statement)


for _name, _statement in _STATEMENTS.items():
    _stated(_name, _statement)


@TRANSACTING.way(*ASYNC)
async def async_swallows_a_fault(ctx: Any) -> None:
    async with ctx.transaction() as conn:
        with suppress(Exception):  # the transaction is aborted all the same
            await conn.execute("select 1/0")


@TRANSACTING.way(*_BLOCKING)
def swallows_a_fault(ctx: Any) -> None:
    with ctx.transaction() as conn:
        with suppress(Exception):  # the transaction is aborted all the same
            conn.execute("select 1/0")


@TRANSACTING.way(*ASYNC, says="open")
async def async_left_open(ctx: Any) -> None:
    block = ctx.transaction()
    conn = await block.__aenter__()
    await conn.execute(_INSERT, ctx.job_id)


@TRANSACTING.way(*_BLOCKING, says="open")
def left_open(ctx: Any) -> None:
    block = ctx.transaction()
    block.__enter__().execute(_INSERT, ctx.job_id)


@TRANSACTING.way(*ASYNC, says="open")
async def async_left_open_and_collected(ctx: Any) -> None:
    await async_left_open(ctx)
    await asyncio.sleep(0.2)


@TRANSACTING.way(*_BLOCKING, says="open")
def left_open_and_collected(ctx: Any) -> None:
    left_open(ctx)
    time.sleep(0.2)


@TRANSACTING.way(*ASYNC, says="already open")
async def async_nested(ctx: Any) -> None:
    async with ctx.transaction(), ctx.transaction():
        pass


@TRANSACTING.way(*_BLOCKING, says="already open")
def nested(ctx: Any) -> None:
    with ctx.transaction(), ctx.transaction():
        pass


@TRANSACTING.way(*ASYNC, outcome="success")
async def async_fails_after_its_commit(ctx: Any) -> NoReturn:
    async with ctx.transaction() as conn:
        await conn.execute(_INSERT, ctx.job_id)
    raise SystemExit("too late")


@TRANSACTING.way(*_BLOCKING, outcome="success")
def fails_after_its_commit(ctx: Any) -> NoReturn:
    with ctx.transaction() as conn:
        conn.execute(_INSERT, ctx.job_id)
    raise SystemExit("too late")


@TRANSACTING.way(*ASYNC, outcome="success")
async def async_used_after_its_end(ctx: Any) -> None:
    async with ctx.transaction() as conn:
        await conn.execute(_INSERT, ctx.job_id)
    await conn.execute(_INSERT, ctx.job_id)


@TRANSACTING.way(*ASYNC, says="open")
async def async_in_a_task(ctx: Any) -> None:
    inside = asyncio.Event()

    async def write() -> None:
        async with ctx.transaction() as conn:
            await conn.execute(_INSERT, ctx.job_id)
            inside.set()
            await asyncio.sleep(0.2)

    task = asyncio.create_task(write())
    task.add_done_callback(lambda task: task.cancelled() or task.exception())
    await inside.wait()


@TRANSACTING.way(*_BLOCKING, says="open")
def in_a_thread(ctx: Any) -> None:
    inside = threading.Event()

    def write() -> None:
        try:
            with ctx.transaction() as conn:
                conn.execute(_INSERT, ctx.job_id)
                inside.set()
                threading.Event().wait(0.2)
        except Exception:  # noqa: BLE001 - as it should be
            pass

    threading.Thread(target=write, daemon=True).start()
    inside.wait()


@TRANSACTING.way(*ASYNC)
async def async_commits_itself(ctx: Any) -> None:
    async with ctx.transaction() as conn:
        await conn.execute("rollback")


@TRANSACTING.way(*ASYNC)
async def async_closes_the_connection(ctx: Any) -> None:
    async with ctx.transaction() as conn:
        await conn.close()


@TRANSACTING.way(*ASYNC, says="the result")
async def async_result_that_cannot_be_stored(ctx: Any) -> None:
    async with ctx.transaction():
        ctx.result = object()


@TRANSACTING.way(*_BLOCKING, says="the result")
def result_that_cannot_be_stored(ctx: Any) -> None:
    with ctx.transaction():
        ctx.result = object()

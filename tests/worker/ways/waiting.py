"""Handlers that go on, or hang in odd places, after their time is over."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from contextlib import suppress
from typing import Any, NoReturn

from holdfast import Fatal, Hold, Retry, Snooze
from holdfast.errors import HandlerSignal
from tests.worker.ways.table import ASYNC, PROCESS, THREAD, Table

__all__ = ["WAITING"]

WAITING = Table()
_async = WAITING.way(*ASYNC, outcome="timeout", says="longer than", brief=True)
_thread = WAITING.way(*THREAD, outcome="timeout", says="longer than", brief=True)
_process = WAITING.way(*PROCESS, outcome="timeout", says="longer than", brief=True)
_not_in_the_loop = WAITING.way(*THREAD, *PROCESS, outcome="timeout", says="longer than", brief=True)


class _Slow(Exception):
    """Takes longer to say what it is than its handler has."""

    def __str__(self) -> str:
        time.sleep(1)
        return "at last"


@_async
async def for_ever(ctx: Any) -> None:
    await asyncio.Event().wait()


@_async
async def swallows_once(ctx: Any) -> None:
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        await asyncio.sleep(0.1)
        raise


@_async
async def raises_another(ctx: Any) -> NoReturn:
    try:
        await asyncio.Event().wait()
    finally:
        raise asyncio.CancelledError("of its own")


@_async
async def behind_a_shield(ctx: Any) -> None:
    await asyncio.shield(asyncio.sleep(1))


@_async
async def in_a_group(ctx: Any) -> None:
    async with asyncio.TaskGroup() as group:
        for _ in range(10):
            group.create_task(asyncio.sleep(600))


@_async
async def in_its_own_timeout(ctx: Any) -> None:
    async with asyncio.timeout(600):
        await asyncio.sleep(600)


@_async
async def uncancels(ctx: Any) -> None:
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        asyncio.current_task().uncancel()  # type: ignore[union-attr]
        raise


@WAITING.way(*ASYNC, outcome="success", brief=True)
async def finishes_all_the_same(ctx: Any) -> str:
    with suppress(asyncio.CancelledError):
        await asyncio.Event().wait()
    return "done"


@WAITING.way(*ASYNC, outcome="success", brief=True)
async def blocks_the_loop(ctx: Any) -> None:
    time.sleep(0.5)


@_async
async def fails_after_its_time(ctx: Any) -> None:
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        raise ValueError("in the end") from None


def _declare(kind: type[HandlerSignal]) -> None:
    """Handlers that raise a signal once their time is over."""
    signal = kind("later") if kind in (Fatal, Hold) else kind(delay=0.01)  # type: ignore[call-arg]

    async def in_the_loop(ctx: Any) -> NoReturn:
        try:
            await asyncio.Event().wait()
        finally:
            raise signal

    def in_a_thread(ctx: Any) -> NoReturn:
        while not ctx.canceled:
            time.sleep(0.01)
        raise signal

    def in_a_process(ctx: Any) -> NoReturn:
        try:
            time.sleep(600)
        finally:
            raise signal

    for executor, act in ((ASYNC, in_the_loop), (THREAD, in_a_thread), (PROCESS, in_a_process)):
        name = f"{kind.__name__.lower()}-{executor[0]}-after-its-time"
        WAITING.way(*executor, outcome="timeout", says="longer than", brief=True, name=name)(act)


for _kind in (Snooze, Retry, Fatal, Hold):
    _declare(_kind)


@_thread
def until_told(ctx: Any) -> None:
    while not ctx.canceled:
        time.sleep(0.01)


@_thread
def fails_when_told(ctx: Any) -> None:
    while not ctx.canceled:
        time.sleep(0.01)
    raise ValueError("stopped")


@_thread
def exits_when_told(ctx: Any) -> None:
    while not ctx.canceled:
        time.sleep(0.01)
    raise SystemExit("stopped")


@_not_in_the_loop
def slow_to_say(ctx: Any) -> None:
    raise _Slow


@WAITING.way(*THREAD, outcome="success", brief=True)
def never_looks(ctx: Any) -> str:
    time.sleep(0.5)
    return "done"


@_process
def computes(ctx: Any) -> None:
    while True:
        pass


@_process
def sleeps(ctx: Any) -> None:
    time.sleep(600)


@_process
def waits_for_a_lock(ctx: Any) -> None:
    threading.Event().wait()


@_process
def ignores_the_signal(ctx: Any) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(600)


@_process
def blocks_the_signal(ctx: Any) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    time.sleep(600)


@_process
def swallows_everything(ctx: Any) -> None:
    while True:
        with suppress(BaseException):
            time.sleep(600)


@_process
def stops_itself(ctx: Any) -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


@_process
def hides_in_a_finally(ctx: Any) -> None:
    try:
        time.sleep(600)
    finally:
        time.sleep(600)

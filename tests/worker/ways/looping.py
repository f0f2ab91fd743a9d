"""Handlers that leave something behind in the event loop, or do something to it."""

from __future__ import annotations

import asyncio
import sys
from typing import Any, NoReturn

from tests.worker.ways.leaving import undo
from tests.worker.ways.table import ASYNC, Table

__all__ = ["LOOPING"]

LOOPING = Table()
_in_the_loop = LOOPING.way(*ASYNC, outcome="success")


@_in_the_loop
async def a_task(ctx: Any) -> None:
    _keep(asyncio.create_task(asyncio.sleep(600)))


@_in_the_loop
async def a_task_that_fails(ctx: Any) -> None:
    async def fail() -> NoReturn:
        raise ValueError("later")

    task = asyncio.create_task(fail())
    undo.append(task.exception)


@_in_the_loop
async def a_task_that_ignores_being_canceled(ctx: Any) -> None:
    async def stay() -> None:
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            await asyncio.sleep(0.05)

    _keep(asyncio.create_task(stay()))


@_in_the_loop
async def a_loop_of_its_own(ctx: Any) -> None:
    asyncio._set_running_loop(None)
    asyncio.run(asyncio.sleep(0))


@_in_the_loop
async def a_cancellation_soon(ctx: Any) -> None:
    asyncio.get_running_loop().call_soon(asyncio.current_task().cancel)  # type: ignore[union-attr]


@_in_the_loop
async def a_cancellation_later(ctx: Any) -> None:
    asyncio.get_running_loop().call_later(0.001, asyncio.current_task().cancel)  # type: ignore[union-attr]


@_in_the_loop
async def a_cancellation_at_once(ctx: Any) -> None:
    asyncio.current_task().cancel()  # type: ignore[union-attr]


@_in_the_loop
async def a_timeout(ctx: Any) -> None:
    manager = asyncio.timeout(0.001)
    await manager.__aenter__()
    undo.append(lambda: manager)


@_in_the_loop
async def a_callback_that_fails(ctx: Any) -> None:
    def fail() -> NoReturn:
        raise ValueError("in a callback")

    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda *_: None)
    undo.append(lambda: loop.set_exception_handler(None))
    loop.call_soon(fail)


@_in_the_loop
async def a_task_that_exits(ctx: Any) -> None:
    async def leave() -> NoReturn:
        sys.exit(3)

    task = asyncio.create_task(leave())
    undo.append(task.exception)


@_in_the_loop
async def a_task_that_interrupts(ctx: Any) -> None:
    async def interrupt() -> NoReturn:
        raise KeyboardInterrupt

    task = asyncio.create_task(interrupt())
    undo.append(task.exception)


@LOOPING.way(*ASYNC, says="3")
async def a_group_that_exits(ctx: Any) -> None:
    async def leave() -> NoReturn:
        sys.exit(3)

    async with asyncio.TaskGroup() as group:
        group.create_task(leave())


@_in_the_loop
async def an_exit_soon(ctx: Any) -> None:
    asyncio.get_running_loop().call_soon(sys.exit, 4)


@_in_the_loop
async def an_exit_later(ctx: Any) -> None:
    asyncio.get_running_loop().call_later(0.001, sys.exit, 4)


@_in_the_loop
async def a_stopped_loop(ctx: Any) -> None:
    asyncio.get_running_loop().stop()


@LOOPING.way(*ASYNC, says="running")
async def a_closed_loop(ctx: Any) -> None:
    asyncio.get_running_loop().close()


@_in_the_loop
async def an_exception_handler(ctx: Any) -> None:
    def leave(*_: Any) -> NoReturn:
        raise SystemExit(5)

    loop = asyncio.get_running_loop()
    loop.set_exception_handler(leave)
    undo.append(lambda: loop.set_exception_handler(None))
    loop.call_soon(int, "not a number")


@_in_the_loop
async def a_task_factory(ctx: Any) -> None:
    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise RuntimeError("no tasks")

    asyncio.get_running_loop().set_task_factory(refuse)


@_in_the_loop
async def an_open_generator(ctx: Any) -> None:
    async def numbers() -> Any:
        try:
            yield 1
        finally:
            await asyncio.sleep(0)

    generator = numbers()
    await anext(generator)


@_in_the_loop
async def a_task_name(ctx: Any) -> None:
    asyncio.current_task().set_name("x" * 10_000)  # type: ignore[union-attr]


def _keep(task: asyncio.Task[Any]) -> None:
    undo.append(task.cancel)

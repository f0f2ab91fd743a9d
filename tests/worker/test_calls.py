"""Middleware calls the handler once at a time, in the worker's event loop, and never beyond the attempt's end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from holdfast import Context, Holdfast, HoldfastError, Middleware, RetryPolicy, SyncContext
from tests.harness.inprocess import reached, working

Next = Callable[[], Awaitable[Any]]
ONCE = RetryPolicy(max_attempts=1)


class Doing(Middleware):
    """Calls the handler by way of a function."""

    def __init__(self, call: Callable[[Next], Awaitable[Any]]) -> None:
        self._call = call

    async def run(self, ctx: Context, call_next: Next) -> Any:
        return await self._call(call_next)


@pytest.fixture
async def hf(database_url: str) -> AsyncIterator[Holdfast]:
    async with Holdfast(database_url) as app:
        yield app


class Consumer:
    """A task of the app that calls handlers, one after the other, as long as the app runs."""

    def __init__(self) -> None:
        self._calls: asyncio.Queue[tuple[Next, asyncio.Future[Any]]] = asyncio.Queue()
        self.task = asyncio.create_task(self._run())
        self.errors: list[BaseException] = []

    async def call(self, call_next: Next) -> Any:
        answer = asyncio.get_running_loop().create_future()
        await self._calls.put((call_next, answer))
        return await answer

    async def _run(self) -> None:
        while True:
            call, answer = await self._calls.get()
            try:
                answer.set_result(await call())
            except Exception as error:  # noqa: BLE001 - as such tasks do
                self.errors.append(error)


@pytest.mark.parametrize("executor", ["async", "thread"])
async def test_a_task_of_the_app_outlives_the_handler_that_times_out_in_it(hf: Holdfast, executor: str) -> None:
    consumer = Consumer()
    hf.middleware += [Doing(consumer.call), Doing(lambda call_next: call_next())]

    async def coroutine(ctx: Context, long: bool) -> None:
        await asyncio.sleep(60 if long else 0)

    def function(ctx: SyncContext, long: bool) -> None:
        while long and not ctx.canceled:
            threading.Event().wait(0.01)

    hf.job("work", timeout=0.2, retry=ONCE)(coroutine if executor == "async" else function)
    async with working(hf, stuck_after_seconds=2) as worker:
        job = await reached(hf, await hf.enqueue("work", {"long": True}), "dead", seconds=10)
        assert job.last_error == "the handler ran longer than 0.2 s"
        await reached(hf, await hf.enqueue("work", {"long": False}), "success", seconds=10)
        assert not worker.to_be_replaced
    assert [isinstance(error, HoldfastError) for error in consumer.errors] == [True]
    assert consumer.task.cancelling() == 0
    consumer.task.cancel()


@pytest.mark.parametrize("executor", ["async", "thread"])
async def test_a_call_beside_another_is_refused(hf: Holdfast, executor: str) -> None:
    begun, most, now = [0], [0], [0]

    async def both(call_next: Next) -> Any:
        return await asyncio.gather(call_next(), call_next(), return_exceptions=True)

    hf.middleware.append(Doing(lambda call_next: _texts(both(call_next))))

    async def coroutine(ctx: Context) -> str:
        begun[0] += 1
        now[0] += 1
        most[0] = max(most[0], now[0])
        await asyncio.sleep(0.05)
        now[0] -= 1
        return "done"

    def function(ctx: SyncContext) -> str:
        begun[0] += 1
        return "done"

    hf.job("work", retry=ONCE)(coroutine if executor == "async" else function)
    async with working(hf):
        job = await hf.wait(await hf.enqueue("work"), timeout=10)
    assert (begun, most[0] <= 1) == ([1], True)
    assert job.result == ["done", "`call_next()` was called while an earlier call was running; await that one first"]


async def _texts(values: Awaitable[list[Any]]) -> list[str]:
    return [str(value) for value in await values]


@pytest.mark.parametrize("max_attempts", [1, 2])
async def test_a_call_in_another_event_loop_is_refused(hf: Holdfast, max_attempts: int) -> None:
    """At its last chance, too, where its beginning has to be recorded first; and it harms no other job."""

    async def elsewhere(call_next: Next) -> Any:
        return await asyncio.to_thread(lambda: asyncio.run(call_next()))  # type: ignore[arg-type]

    hf.middleware.append(Doing(elsewhere))

    @hf.job("work", retry=RetryPolicy(max_attempts=max_attempts, base=0))
    async def work(ctx: Context) -> None: ...

    async with working(hf):
        job = await reached(hf, await work.enqueue(), "dead", seconds=10)
        assert (job.failures, job.attempt) == (max_attempts, max_attempts)
        assert "in the worker's own event loop" in (job.last_error or "")


async def test_a_handler_that_middleware_began_by_hand_ends_with_the_attempt(hf: Holdfast) -> None:
    ended, kept = asyncio.Event(), list[Any]()

    async def begin(call_next: Next) -> str:
        kept.append(call_next())
        kept[-1].send(None)
        return "accepted"

    hf.middleware.append(Doing(begin))

    @hf.job("work", retry=RetryPolicy(max_attempts=2, base=0))
    async def work(ctx: Context) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    async with working(hf):
        job = await reached(hf, await work.enqueue(), "dead", "success", seconds=10)
    assert ended.is_set()
    assert "while the handler was running" in (job.last_error or "")

"""Middleware calls the handler once at a time, in the worker's event loop, and never beyond the attempt's end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio
import pytest

from holdfast import Context, Holdfast, HoldfastError, Middleware, RetryPolicy, SyncContext
from holdfast.store.transactions import Transactions
from holdfast.worker.processes import pool
from tests.harness.inprocess import reached, working
from tests.worker import leftovers

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


async def _again_and_again(call_next: Next) -> Any:
    """Retry in place, as middleware does."""
    for _ in range(2):
        try:
            return await call_next()
        except Exception:  # noqa: BLE001 - as such middleware does
            continue
    return await call_next()


@pytest.mark.usefixtures("warm_children")
@pytest.mark.parametrize("executor", ["async", "thread", "process"])
async def test_no_call_begins_after_the_job_was_completed_by_its_transaction(
    hf: Holdfast, executor: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The next job of its target may run by then."""
    hf.middleware.append(Doing(_again_and_again))

    @hf.job("async")
    async def coroutine(ctx: Context) -> None:
        ctx.logger.info("begun")
        async with ctx.transaction():
            pass
        raise ValueError("after the end")

    @hf.job("thread")
    def function(ctx: SyncContext) -> None:
        ctx.logger.info("begun")
        with ctx.transaction():
            pass
        raise ValueError("after the end")

    caplog.set_level("INFO", logger="holdfast")
    if executor == "process":
        job_type = leftovers.hf.registry.get("end and fail")
        assert job_type is not None
        hf.registry.add(job_type)
    async with working(hf):
        name = "end and fail" if executor == "process" else executor
        await reached(hf, await hf.enqueue(name), "success", seconds=30)
    assert [record.message for record in caplog.records if record.name == "holdfast.job"] == ["begun"]
    assert "completed by its own transaction; its handler cannot be called any more" in caplog.text


async def test_no_call_begins_after_a_commit_whose_answer_was_lost(
    hf: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job may have ended."""
    begin, begun = Transactions.begin, list[int]()

    @asynccontextmanager
    async def losing(self: Transactions, conn: Any) -> AsyncIterator[Any]:
        async with begin(self, conn) as lent:
            yield lent
        raise ValueError("the answer is lost")

    monkeypatch.setattr(Transactions, "begin", losing)
    hf.middleware.append(Doing(_again_and_again))

    @hf.job("work", retry=RetryPolicy(max_attempts=2, base=0))
    async def work(ctx: Context) -> None:
        begun.append(ctx.attempt)
        async with ctx.transaction():
            pass

    async with working(hf):
        await reached(hf, await work.enqueue(), "success", seconds=10)
    assert begun == [1]


@pytest.mark.parametrize("how", ["close", "throw"])
async def test_a_thread_whose_call_was_given_up_by_hand_still_counts(hf: Holdfast, how: str) -> None:
    """The handler is not called beside it, and the attempt does not end before it."""
    begun, ended, refused, go_on = list[int](), list[bool](), list[str](), threading.Event()

    async def give_up(call_next: Next) -> str:
        call: Any = call_next()
        call.send(None)
        with suppress(ValueError):
            call.close() if how == "close" else call.throw(ValueError("enough"))
        try:
            await call_next()
        except HoldfastError as error:
            refused.append(str(error))
        asyncio.get_running_loop().call_later(0.05, go_on.set)
        return "done"

    hf.middleware.append(Doing(give_up))

    @hf.job("work", retry=RetryPolicy(max_attempts=2, base=600))
    def work(ctx: SyncContext) -> None:
        begun.append(ctx.attempt)
        go_on.wait(10)
        ended.append(ctx.canceled)

    async with working(hf):
        job = await reached(hf, await work.enqueue(), "retry", "success", seconds=10)
        assert (begun, ended) == ([1], [True]), "it has ended before the attempt did, and was told to"
    assert refused == ["`call_next()` was called while an earlier call was running; await that one first"]
    assert "while the handler was running" in (job.last_error or "")


@pytest.mark.parametrize("kind", ["asyncio", "anyio"])
async def test_a_timeout_of_middleware_around_a_thread_is_its_own(hf: Holdfast, kind: str) -> None:
    """It arrives there as such; and only the call that it ended was told to stop."""
    told, expire, loop = list[bool](), list[Callable[[], None]](), asyncio.get_running_loop()

    async def twice(call_next: Next) -> Any:
        try:
            if kind == "anyio":
                with anyio.fail_after(60) as scope:
                    expire.append(lambda: setattr(scope, "deadline", anyio.current_time()))
                    return await call_next()
            async with asyncio.timeout(60) as limit:
                expire.append(lambda: limit.reschedule(loop.time()))
                return await call_next()
        except TimeoutError:
            return await call_next()

    hf.middleware.append(Doing(twice))

    @hf.job("work", retry=ONCE, timeout=20)
    def work(ctx: SyncContext) -> str:
        told.append(ctx.canceled)
        if len(told) == 1:
            loop.call_soon_threadsafe(expire[0])
            while not ctx.canceled:
                threading.Event().wait(0.005)
            return "partial"
        return "complete"

    async with working(hf):
        job = await reached(hf, await work.enqueue(), "dead", "success", seconds=10)
    assert (job.result, told) == ("complete", [False, False]), job.last_error


async def test_a_process_passes_on_the_cancellation_itself() -> None:
    """Cancel scopes of anyio know their own by its message."""
    waiting = asyncio.create_task(pool._first({asyncio.get_running_loop().create_future()}, None))
    await asyncio.sleep(0)
    waiting.cancel("by this scope")
    wait = await waiting
    done = asyncio.create_task(asyncio.sleep(60))
    done.cancel()
    await asyncio.wait({done})
    with pytest.raises(asyncio.CancelledError) as caught:
        pool._despite(wait, done)
    assert caught.value is wait
    assert caught.value.args == ("by this scope",)


@pytest.mark.parametrize("by", ["timeout", "cancel", "task of the app"])
async def test_a_handler_does_not_begin_after_its_attempt_was_told_to_stop(hf: Holdfast, by: str) -> None:
    waits, begun, errors = asyncio.Event(), list[int](), list[BaseException]()

    async def late(call_next: Next) -> Any:
        with suppress(asyncio.CancelledError):
            waits.set()
            await asyncio.sleep(60)

        async def call() -> Any:
            await asyncio.sleep(0)
            try:
                return await call_next()
            except BaseException as error:
                errors.append(error)
                raise

        return await (asyncio.create_task(call()) if by == "task of the app" else call())

    hf.middleware.append(Doing(late))

    @hf.job("work", retry=ONCE, timeout=60 if by == "cancel" else 0.1)
    async def work(ctx: Context) -> None:
        begun.append(ctx.attempt)

    async with working(hf):
        job = await work.enqueue()
        await waits.wait()
        if by == "cancel":
            await hf.cancel(job)
        await reached(hf, job, "canceled" if by == "cancel" else "dead", seconds=10)
    assert begun == []
    assert [isinstance(error, HoldfastError) for error in errors] == [by == "task of the app"]

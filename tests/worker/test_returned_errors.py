"""Middleware that returns the handler's exception, or raises one that the handler returned: each is what it is."""

from __future__ import annotations

import asyncio
import faulthandler
from collections.abc import AsyncIterator, Awaitable, Callable
from decimal import Decimal, getcontext
from typing import Any

import pytest

from holdfast import Context, Holdfast, Middleware, RetryPolicy, SyncContext
from holdfast.model.outcome import Outcome
from holdfast.worker.execution import Execution
from tests.harness.inprocess import reached, working

TWICE = RetryPolicy(max_attempts=2, base=0.01)


class Returning(Middleware):
    """Turns an exception into a value, and a value that is an exception into one."""

    async def run(self, ctx: Context, call_next: Callable[[], Awaitable[Any]]) -> Any:
        try:
            value = await call_next()
        except Exception as error:  # noqa: BLE001 - any
            return error
        if isinstance(value, Exception):
            raise value
        return value


@pytest.fixture
async def returning(database_url: str) -> AsyncIterator[Holdfast]:
    async with Holdfast(database_url, middleware=[Returning()]) as app:
        yield app


@pytest.mark.parametrize("executor", ["async", "thread"])
async def test_an_exception_that_middleware_returns_is_no_result(returning: Holdfast, executor: str) -> None:
    hf = returning
    if executor == "async":

        @hf.job("fail", retry=TWICE)
        async def fail(ctx: Context) -> None:
            raise ValueError("no")
    else:

        @hf.job("fail", retry=TWICE)
        def fail_in_thread(ctx: SyncContext) -> None:
            raise ValueError("no")

    job = await hf.enqueue("fail")
    async with working(hf):
        done = await reached(hf, job, "dead")
    assert done.attempt == 1
    assert "JSON" in str(done.last_error)


async def test_an_exception_that_a_thread_returned_is_described_when_middleware_raises_it(
    returning: Holdfast,
) -> None:
    hf = returning

    @hf.job("hand over", retry=TWICE)
    def hand_over(ctx: SyncContext) -> Any:
        return ValueError("handed over")

    job = await hand_over.enqueue()
    async with working(hf):
        done = await reached(hf, job, "dead")
    assert (done.attempt, done.failures, done.last_error) == (2, 2, "handed over")


async def test_an_outcome_that_cannot_be_settled_is_a_failure(hf: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    """Handed back at no cost, the job would run for ever."""

    @hf.job("odd", retry=TWICE)
    async def odd(ctx: Context) -> None:
        pass

    async def run(*_: Any) -> Outcome:
        return Outcome.success(7)  # type: ignore[arg-type]

    monkeypatch.setattr(Execution, "run", run)
    job = await odd.enqueue()
    async with working(hf):
        done = await reached(hf, job, "dead")
    assert (done.attempt, done.failures) == (2, 2)


@pytest.mark.parametrize("executor", ["async", "thread"])
async def test_a_timer_of_faulthandler_that_a_handler_left_ends_with_it(hf: Holdfast, executor: str) -> None:
    if executor == "async":

        @hf.job("arm")
        async def arm(ctx: Context) -> None:
            faulthandler.dump_traceback_later(0.3, exit=True)
    else:

        @hf.job("arm")
        def arm_in_thread(ctx: SyncContext) -> None:
            faulthandler.dump_traceback_later(0.3, exit=True)

    async with working(hf):
        await reached(hf, await hf.enqueue("arm"), "success")
        await asyncio.sleep(0.6)  # as long as it would have taken: it ends the process


async def test_a_thread_keeps_its_rounding_to_itself(hf: Holdfast) -> None:
    getcontext()

    @hf.job("round")
    def roughly(ctx: SyncContext, digits: int) -> str:
        before = str(1 * Decimal("1234567.90"))
        getcontext().prec = digits
        return before

    async with working(hf, lanes={"general": 1}):
        for _ in range(2):
            done = await hf.wait(await roughly.enqueue(digits=6), timeout=30)
            assert done.result == "1234567.90"

"""Handlers get back the time in which something else blocked their event loop; one that blocks it itself gets none."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast import Context, Holdfast, Middleware, RetryPolicy
from holdfast.worker.silence import PULSE_SECONDS, Blocker, Silent
from tests.harness.inprocess import working

TIMEOUT = 0.6
ONCE = RetryPolicy(max_attempts=1)


async def _outcomes(hf: Holdfast, *jobs: Any) -> list[str | None]:
    for job in jobs:
        await hf.wait(job.id, timeout=30)
    return [attempt.outcome for job in jobs for attempt in await hf.attempts(job)]


async def test_a_handler_beside_one_that_blocks_the_loop_past_its_timeout_is_not_charged(hf: Holdfast) -> None:
    @hf.job("beside", timeout=TIMEOUT)
    async def beside(ctx: Context) -> None:
        await asyncio.sleep(0.1)
        await asyncio.sleep(0.1)

    @hf.job("block")
    async def block(ctx: Context) -> None:
        time.sleep(1.0)

    # In one claim, so that they begin in the same iteration of the loop: the blocking ones after the first.
    jobs = await hf.enqueue_many([("beside", {}), ("block", {}), ("beside", {}), ("block", {})])
    async with working(hf):
        assert await _outcomes(hf, *jobs) == ["success"] * 4


async def test_each_lost_second_is_given_back_once(hf: Holdfast) -> None:
    begins = asyncio.Event()

    @hf.job("beside", timeout=TIMEOUT, retry=ONCE)
    async def beside(ctx: Context) -> None:
        begins.set()
        await asyncio.sleep(60)

    @hf.job("block")
    async def block(ctx: Context) -> None:
        await begins.wait()
        for _ in range(2):  # the second time after the timeout that it began with
            await asyncio.sleep(0.2)
            time.sleep(1.0)

    async with working(hf):
        _, late = await hf.enqueue_many([("block", {}), ("beside", {})])
        assert await _outcomes(hf, late) == ["timeout"]
        (attempt,) = await hf.attempts(late)
    assert TIMEOUT + 1.8 <= (attempt.duration_ms or 0) / 1000 < TIMEOUT + 3.5


async def _blocks() -> None:
    await asyncio.sleep(0.01)
    time.sleep(1.0)


WAYS: dict[str, Callable[[], Awaitable[Any]]] = {
    "itself": _blocks,
    "in a task": lambda: asyncio.create_task(_blocks()),
    "in a group": lambda: asyncio.gather(_blocks(), asyncio.sleep(0.01)),
}


@pytest.mark.parametrize("way", WAYS)
async def test_a_handler_that_blocks_the_loop_itself_gets_no_time_back(hf: Holdfast, way: str) -> None:
    @hf.job("block", timeout=TIMEOUT, retry=ONCE)
    async def block(ctx: Context) -> None:
        await WAYS[way]()
        await asyncio.sleep(0.2)

    @hf.job("beside", timeout=TIMEOUT)
    async def beside(ctx: Context) -> None:
        await asyncio.sleep(0.2)

    jobs = await hf.enqueue_many([("block", {}), ("beside", {})])
    async with working(hf):
        assert await _outcomes(hf, *jobs) == ["timeout", "success"]


async def test_middleware_that_calls_again_gets_the_lost_time_back(hf: Holdfast) -> None:
    calls: list[str] = []

    class Twice(Middleware):
        async def run(self, ctx: Context, call_next: Callable[[], Awaitable[Any]]) -> Any:
            if ctx.type == "block":
                return await call_next()
            with contextlib.suppress(ValueError):
                await call_next()
            return await call_next()

    hf.middleware.append(Twice())

    @hf.job("beside", timeout=TIMEOUT)
    async def beside(ctx: Context) -> None:
        calls.append("beside")
        await asyncio.sleep(0.1)
        if len(calls) == 1:
            raise ValueError

    @hf.job("block")
    async def block(ctx: Context) -> None:
        time.sleep(1.0)

    jobs = await hf.enqueue_many([("beside", {}), ("block", {})])
    async with working(hf):
        assert await _outcomes(hf, *jobs) == ["success"] * 2
    assert calls == ["beside"] * 2


def test_several_that_block_in_turn_each_lose_the_time_of_the_others() -> None:
    one, other, beside = (_handler() for _ in range(3))
    samples = [(float(at), Blocker(who, known=True)) for at, who in ((1, one), (2, one), (3, one), (4, other))]
    silent = Silent(0.0, 4 + PULSE_SECONDS, samples)
    assert [silent.taken_from(who) for who in (one, other, beside)] == pytest.approx([1, 3, 4])
    late = _handler(2.0 + PULSE_SECONDS)
    assert silent.taken_from(late) == pytest.approx(2.0 - PULSE_SECONDS)


def test_time_that_nobody_knows_who_took_is_given_back_three_times_if_it_was_long() -> None:
    handler = _handler()
    unknown = [(0.5, Blocker(None, known=False))]
    assert Silent(0.0, 0.9, unknown).taken_from(handler) == 0
    silences = [Silent(0.0, 2 + PULSE_SECONDS, samples) for samples in ([], unknown, [], unknown, [])]
    taken = [silent.taken_from(handler) for silent in silences]
    assert taken == pytest.approx([2, 2, 2, 0, 0])


def _handler(watched_from: float = 0.0) -> Any:
    return SimpleNamespace(watched_from=watched_from, lost_to_unknown=0)

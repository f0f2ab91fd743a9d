"""What a handler had in its variables is gone with its attempt: nothing waits for the collector of cycles."""

from __future__ import annotations

import asyncio
import gc
import time
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from holdfast import Context, Fatal, Holdfast, InvalidInput, RetryPolicy, SyncContext
from tests.harness.inprocess import reached, working
from tests.harness.waiting import until

ONCE = RetryPolicy(max_attempts=1)


class Large:
    """Something in a handler's variables."""


class Kept:
    """Knows which objects are still in memory."""

    def __init__(self) -> None:
        self._all: list[weakref.ref[Large]] = []

    def one(self) -> Large:
        """Another one, to be kept in a variable."""
        large = Large()
        self._all.append(weakref.ref(large))
        return large

    async def nothing(self) -> bool | None:
        """Whether all are gone."""
        return (self._all != [] and all(ref() is None for ref in self._all)) or None


@pytest.fixture
def kept() -> Iterator[Kept]:
    """With the collector off."""
    gc.disable()
    yield Kept()
    gc.enable()


def _raise(large: Large) -> None:
    raise Fatal("no")


def _raise_kept(large: Large, *, chained: bool) -> None:
    """The error's traceback refers to this frame, and this frame to the error."""
    try:
        _raise(large)
    except Fatal as error:
        kept = error
    if chained:
        raise Fatal("no") from kept
    raise kept


def _give_up(ctx: SyncContext, large: Large) -> None:
    ctx.progress(-1)


async def _ends(hf: Holdfast, kept: Kept, state: str) -> None:
    """A worker runs three jobs; while it still runs, nothing of them is left."""
    jobs = [await hf.enqueue("hold") for _ in range(3)]
    async with working(hf):
        for job in jobs:
            await reached(hf, job.id, state)
        await until(kept.nothing, seconds=5, what="nothing of the handlers is left in memory")


@pytest.mark.parametrize("way", ["raise", "refused", "unstorable", "return", "timeout", "group", "kept", "chain"])
async def test_nothing_is_left_of_a_handler_in_the_loop(hf: Holdfast, kept: Kept, way: str) -> None:
    @hf.job("hold", timeout=0.3, retry=ONCE)
    async def hold(ctx: Context) -> Any:
        large = kept.one()
        if way == "raise":
            _raise(large)
        elif way == "refused":
            await ctx.progress(-1)
        elif way == "timeout":
            await asyncio.sleep(60)
        elif way == "group":
            async with asyncio.TaskGroup() as group:
                group.create_task(asyncio.to_thread(_raise, large))
        elif way in ("kept", "chain"):
            _raise_kept(large, chained=way == "chain")
        return [large] if way == "unstorable" else 1

    await _ends(hf, kept, "success" if way == "return" else "dead")


@pytest.mark.parametrize("way", ["raise", "refused", "unstorable", "return", "timeout", "raise late", "kept", "chain"])
async def test_nothing_is_left_of_a_handler_in_a_thread(hf: Holdfast, kept: Kept, way: str) -> None:
    @hf.job("hold", timeout=0.3, retry=ONCE)
    def hold(ctx: SyncContext) -> Any:
        large = kept.one()
        while way in ("timeout", "raise late") and not ctx.canceled:
            time.sleep(0.01)
        if way.startswith("raise"):
            _raise(large)
        elif way == "refused":
            _give_up(ctx, large)
        elif way in ("kept", "chain"):
            _raise_kept(large, chained=way == "chain")
        return [large] if way == "unstorable" else 1

    await _ends(hf, kept, "success" if way == "return" else "dead")


async def test_nothing_is_left_of_a_caller_of_the_blocking_client(hf: Holdfast, kept: Kept) -> None:
    with Holdfast(hf.config.database_url).sync as blocking:

        def ask() -> None:
            large = kept.one()
            with pytest.raises(InvalidInput):
                blocking.enqueue("x", {"never": large})

        await asyncio.to_thread(ask)
        await until(kept.nothing, seconds=5, what="nothing of the caller is left in memory")

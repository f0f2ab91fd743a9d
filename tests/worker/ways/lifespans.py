"""Lifespans that misbehave, as the environment says: in the worker, and in a child."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from holdfast import Context, Holdfast, RetryPolicy, SyncContext
from tests.worker.ways.raising import ERRORS

__all__ = ["ENTERING", "LEAVING", "hf", "lifespan"]

#: What raises when it is entered, and when it is left.
ENTERING = ("plain", "exit", "interrupt", "canceled", "generator-exit", "stop", "own", "says-exit", "no-yield")
LEAVING = ("plain", "exit", "interrupt", "own", "twice")


@asynccontextmanager
async def lifespan(app: Holdfast) -> AsyncIterator[str]:
    """As `LIFESPAN` says: `enter NAME` or `leave NAME`, in this process; `child NAME` only in a child."""
    when, _, name = os.environ.get("LIFESPAN", "").partition(" ")
    entering = when == "enter" or (when == "child" and os.environ["LIFESPAN_OF"] != str(os.getpid()))
    if entering and name != "no-yield":
        await asyncio.sleep(0)
        raise ERRORS[name]()
    if not entering:
        yield "resources"
    if when == "leave":
        if name == "twice":
            yield "once more"
        await asyncio.sleep(0)
        raise ERRORS[name]()


hf = Holdfast(lifespan=lifespan)
_ONCE = RetryPolicy(max_attempts=1)


@hf.job("quick", retry=_ONCE)
async def quick(ctx: Context) -> str:
    return str(ctx.resources)


@hf.job("child", executor="process", retry=_ONCE)
def in_a_process(ctx: SyncContext) -> str:
    return str(ctx.resources)

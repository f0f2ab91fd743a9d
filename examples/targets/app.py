"""The jobs: runs against the APIs of customers. `holdfast worker --app examples.targets.app:hf` runs them.

A run makes a number of calls and pays for each with tokens of its target. Whatever goes wrong with one is for a person
to look at (`on_failure="hold"`): it keeps its place, and the later runs of its target wait until it is resumed, which
runs it again from the beginning, or canceled.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from examples.targets.targets import Targets, opened
from holdfast import Context, Hold, Holdfast

__all__ = ["hf", "run"]

TOKENS_PER_CALL = 10


@asynccontextmanager
async def resources(app: Holdfast) -> AsyncIterator[Targets]:
    """What handlers find in `ctx.resources`."""
    async with opened(app.config.database_url) as targets:
        yield targets


hf = Holdfast(lifespan=resources)


@hf.job("api.run", on_failure="hold")
async def run(ctx: Context[Targets], target: str, calls: int) -> int:
    """Call the target's API so many times; answers the tokens that were paid."""
    for number in range(1, calls + 1):
        await _call(ctx, target)
        ctx.logger.info("call %d of %d to %s", number, calls, target)
    return calls * TOKENS_PER_CALL


async def _call(ctx: Context[Targets], target: str) -> None:
    """One call, here only a time to wait. An API bills what it was asked for, also if we are interrupted meanwhile.

    That is why `Hold` may be raised while the run is being paused: it wins, and the run is held in error.
    """
    targets = ctx.resources
    known = await targets.get(ctx.tenant, target)
    if known is None:
        raise Hold(f"there is no target {target}")
    try:
        await asyncio.sleep(known.seconds_per_call)
    finally:
        if await targets.pay(ctx.tenant, target, TOKENS_PER_CALL) < 0:
            raise Hold(f"the token limit of {target} is exceeded")

"""The app of workers of two releases on one database: `python -m tests.faults.rolling`.

Only what both releases have is used here.
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from pathlib import Path

import holdfast
from holdfast import Context, Holdfast, Limit, Rate, RetryPolicy, Snooze
from holdfast.telemetry.narrator import set_up_logging
from tests.harness.history import History

AT_ONCE, PER_CUSTOMER, PER_SECOND = 3, 2, 8
STEPS = 4
SOON = RetryPolicy(base=0.05, factor=1.0, max=0.2, max_attempts=50)

hf = Holdfast()
history = History(Path(os.environ.get("HISTORY_FOLDER", "/tmp/holdfast-history")))


@hf.job("work", retry=SOON)
async def work(ctx: Context, seconds: float = 0.0, failing: int = 0) -> dict[str, int]:
    """Takes its time; fails in its first attempts."""
    with history.run(ctx) as run:
        await asyncio.sleep(seconds)
        if ctx.attempt <= failing:
            raise RuntimeError("as asked")
        return run.returns({"attempt": ctx.attempt})


@hf.job("threaded", retry=SOON)
def threaded(ctx: Context, seconds: float = 0.0) -> dict[str, int]:
    """The same in a thread, which notices that it is to stop."""
    with history.run(ctx) as run:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if ctx.cancelled:
                raise RuntimeError("told to stop")
            threading.Event().wait(0.02)
        return run.returns({"attempt": ctx.attempt})


@hf.job("quick", lane="fast", retry=SOON)
async def quick(ctx: Context) -> dict[str, int]:
    """Nothing but its trace."""
    with history.run(ctx) as run:
        return run.returns({"attempt": ctx.attempt})


@hf.job("ground", retry=SOON, executor="process")
def ground(ctx: Context, seconds: float = 0.0) -> int:
    """In a process of its own."""
    time.sleep(seconds)
    return 7


@hf.job("doomed", retry=RetryPolicy(base=0.05, factor=1.0, max=0.2, max_attempts=2))
async def doomed(ctx: Context) -> None:
    """Fails until it is dead."""
    with history.run(ctx):
        raise RuntimeError("as always")


@hf.job("stubborn", retry=SOON, on_failure="hold")
async def stubborn(ctx: Context) -> dict[str, int]:
    """Fails at first, and is held for somebody to resume it."""
    with history.run(ctx) as run:
        if ctx.attempt == 1:
            raise RuntimeError("somebody has to look")
        return run.returns({"attempt": ctx.attempt})


@hf.job("sleepy", retry=SOON)
async def sleepy(ctx: Context) -> dict[str, int]:
    """Comes back later."""
    with history.run(ctx) as run:
        if ctx.attempt < 3:
            raise Snooze(0.1)
        return run.returns({"attempt": ctx.attempt})


@hf.job("family", retry=SOON)
async def family(ctx: Context) -> dict[str, int]:
    """Has a child."""
    with history.run(ctx) as run:
        child = await ctx.enqueue("quick", {}, idempotency_key=f"child-of-{ctx.job_id}")
        history.enqueued(child.id, key=f"child-of-{ctx.job_id}")
        return run.returns({"attempt": ctx.attempt})


@hf.job("steps", retry=SOON)
async def steps(ctx: Context, seconds: float = 0.0) -> dict[str, int]:
    """Stores an item for each step, and goes on where the attempt before had come to."""
    with history.run(ctx) as run:
        for step in range((ctx.cursor or {"next": 0})["next"], STEPS):
            await asyncio.sleep(seconds)
            await ctx.items([{"key": str(step), "data": {"step": step}}], cursor={"next": step + 1})
        return run.returns({"attempt": ctx.attempt})


@hf.job("ledger", retry=SOON)
async def ledger(ctx: Context, before: float = 0.0, inside: float = 0.0) -> None:
    """Writes one line, in the transaction that ends the job."""
    await asyncio.sleep(before)
    async with ctx.transaction() as conn:
        await conn.execute("insert into public.ledger (job_id, attempt) values ($1, $2)", ctx.job_id, ctx.attempt)
        await asyncio.sleep(inside)


@hf.job("few", retry=SOON, limit=AT_ONCE)
async def few(ctx: Context, seconds: float) -> None:
    """So many at once, on all workers."""
    with history.run(ctx):
        await asyncio.sleep(seconds)


@hf.job("keyed", retry=SOON, limit=Limit(PER_CUSTOMER, key="customer"))
async def keyed(ctx: Context, customer: str, seconds: float) -> None:
    """So many of each customer."""
    with history.run(ctx):
        await asyncio.sleep(seconds)


@hf.job("rated", retry=SOON, rate=Rate(PER_SECOND, per=1.0))
async def rated(ctx: Context) -> None:
    """So many per second."""
    with history.run(ctx):
        pass


@hf.job("wait", retry=SOON)
async def wait(ctx: Context) -> None:
    """Waits until it is canceled."""
    with history.run(ctx):
        await asyncio.Event().wait()


async def _main() -> None:
    set_up_logging("json", "INFO")
    print(json.dumps({"event": "release", "sources": holdfast.__file__}), flush=True)
    await hf.run_worker(signals=True)


if __name__ == "__main__":
    asyncio.run(_main())

"""The app whose workers the fault tests kill, freeze and drain: `python -m tests.faults.app`."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from pathlib import Path

from holdfast import Context, Holdfast, RetryPolicy
from holdfast.telemetry.narrator import set_up_logging
from tests.harness.history import History

SOON = RetryPolicy(base=0.05, factor=1.0, max=0.2, max_attempts=8)

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
            if ctx.canceled:
                raise RuntimeError("told to stop")
            threading.Event().wait(0.02)
        return run.returns({"attempt": ctx.attempt})


@hf.job("steps", retry=SOON)
async def steps(ctx: Context, seconds: float = 0.0) -> dict[str, int]:
    """Many short steps, each written down."""
    with history.run(ctx) as run, (history.folder / f"steps {ctx.job_id} {ctx.attempt}").open("a", buffering=1) as file:
        try:
            for step in range(int(seconds * 100)):
                await asyncio.sleep(0.01)
                file.write(f"{step}\n")
        except asyncio.CancelledError:
            file.write("canceled\n")
            raise
        return run.returns({"attempt": ctx.attempt})


@hf.job("quick", lane="fast", retry=SOON)
async def quick(ctx: Context) -> dict[str, int]:
    """Nothing but its trace."""
    with history.run(ctx) as run:
        return run.returns({"attempt": ctx.attempt})


@hf.job("suicide", retry=RetryPolicy(max_attempts=2))
async def suicide(ctx: Context) -> None:
    """Takes its process along."""
    with history.run(ctx):
        os.kill(os.getpid(), signal.SIGKILL)


@hf.job("block", retry=SOON)
async def block(ctx: Context, seconds: float, busy: bool = False) -> dict[str, int]:
    """Does not let the event loop go on, asleep or computing."""
    with history.run(ctx) as run:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if not busy:
                time.sleep(seconds)
        return run.returns({"attempt": ctx.attempt})


@hf.job("ledger", retry=RetryPolicy(base=0.05, factor=1.0, max=0.2, max_attempts=50))
async def ledger(ctx: Context, before: float = 0.0, inside: float = 0.0, after: float = 0.0) -> None:
    """Writes one line, in the transaction that ends the job."""
    await asyncio.sleep(before)
    async with ctx.transaction() as conn:
        await conn.execute("insert into public.ledger (job_id, attempt) values ($1, $2)", ctx.job_id, ctx.attempt)
        await asyncio.sleep(inside)
    await asyncio.sleep(after)


async def _main() -> None:
    set_up_logging("json", "INFO")
    await hf.run_worker(signals=True)


if __name__ == "__main__":
    asyncio.run(_main())

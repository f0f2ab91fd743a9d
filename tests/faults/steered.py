"""The app whose jobs are canceled from elsewhere, share lanes, and flood each other.

`python -m tests.faults.steered`
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from pathlib import Path

from holdfast import Context, Holdfast, RetryPolicy
from holdfast.telemetry.narrator import set_up_logging
from holdfast.worker.leases import LeaseKeeper
from tests.harness.history import History

SOON = RetryPolicy(base=0.05, factor=1.0, max=0.2, max_attempts=50)

hf = Holdfast()
history = History(Path(os.environ.get("HISTORY_FOLDER", "/tmp/holdfast-history")))


@hf.job("async", retry=SOON)
async def wait(ctx: Context) -> None:
    """Waits until it is canceled."""
    with history.run(ctx):
        await asyncio.Event().wait()


@hf.job("thread", retry=SOON)
def watch(ctx: Context) -> None:
    """Looks whether it is to stop."""
    with history.run(ctx):
        while not ctx.canceled:
            threading.Event().wait(0.005)
        raise InterruptedError


@hf.job("process", retry=SOON, executor="process")
def grind(ctx: Context) -> None:
    """Does not look, and is signalled."""
    with history.run(ctx):
        time.sleep(600)


@hf.job("slow", retry=SOON)
async def slow(ctx: Context, seconds: float) -> None:
    """Takes a slot of the general lane."""
    with history.run(ctx):
        await asyncio.sleep(seconds)


@hf.job("fast", lane="fast", retry=SOON)
async def fast(ctx: Context) -> None:
    """Nothing but its trace."""
    with history.run(ctx):
        pass


def _deafen() -> None:
    """Hear of no interruption, as behind a pooler without a direct URL."""
    heard = LeaseKeeper._heard

    def hear(self: LeaseKeeper, topic: str, payload: str) -> None:
        if topic != "interrupt":
            heard(self, topic, payload)

    LeaseKeeper._heard = hear  # type: ignore[method-assign]


async def _main() -> None:
    set_up_logging("json", "INFO")
    if os.environ.get("DEAF"):
        _deafen()
    await hf.run_worker(signals=True)


if __name__ == "__main__":
    asyncio.run(_main())

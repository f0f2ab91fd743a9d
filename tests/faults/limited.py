"""The app whose job types have limits: `python -m tests.faults.limited`."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from holdfast import Context, Holdfast, Limit, Rate, RetryPolicy
from holdfast.telemetry.narrator import set_up_logging
from tests.harness.history import History

AT_ONCE, PER_CUSTOMER, PER_SECOND = 6, 2, 8
SOON = RetryPolicy(base=0.05, factor=1.0, max=0.2, max_attempts=50)

hf = Holdfast()
history = History(Path(os.environ.get("HISTORY_FOLDER", "/tmp/holdfast-history")))


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


async def _main() -> None:
    set_up_logging("json", "INFO")
    await hf.run_worker(signals=True)


if __name__ == "__main__":
    asyncio.run(_main())

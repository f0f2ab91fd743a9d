"""A worker over HTTP that the fault tests kill, freeze and drain: `python -m tests.faults.far`."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from holdfast import Context
from holdfast.remote import RemoteWorker
from holdfast.telemetry.narrator import set_up_logging

folder = Path(os.environ["FAR_FOLDER"])
#: With one slot it has no pull waiting while a job runs: a frozen worker would get the next job as well.
worker = RemoteWorker(os.environ["HOLDFAST_URL"], lease_seconds=2, worker_id=os.environ["FAR_NAME"], slots=1)


@worker.job("crawl")
async def crawl(ctx: Context, pages: int, stop_before: int) -> int:
    """Ten items a page; the first attempt waits for its end before one of them."""
    start = ctx.cursor or 0
    for page in range(start, pages):
        if page == stop_before and ctx.attempt == 1:
            (folder / "waiting").touch()
            await asyncio.sleep(60)
        await ctx.items([{"key": f"{page}-{n}", "data": {"page": page}} for n in range(10)], cursor=page + 1)
    return start


@worker.job("work")
async def work(ctx: Context, seconds: float) -> str:
    """Takes its time."""
    (folder / f"began {ctx.job_id}").touch()
    await asyncio.sleep(seconds)
    return worker.worker_id


@worker.job("freeze")
async def freeze(ctx: Context) -> int:
    """Its first attempt goes on when the test lets it."""
    if ctx.attempt == 1:
        (folder / "waiting").touch()
        while not (folder / "go on").exists():
            await asyncio.sleep(0.02)
    return ctx.attempt


if __name__ == "__main__":
    set_up_logging("json", "INFO")
    worker.run_forever()

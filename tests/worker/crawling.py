"""Handlers that report what they find, for every executor."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

from holdfast import Context, Holdfast, LeaseLost, Reported, RetryPolicy, SyncContext

SOON = RetryPolicy(base=0.01, factor=1.0, max_attempts=2)
PAGES = 4

hf = Holdfast()


def found(page: int) -> list[dict[str, Any]]:
    """The items of a page: a new one, and one that is on every page."""
    return [{"key": f"page {page}", "data": {"page": page}}, {"data": "an advertisement"}]


@hf.job("crawl.async", retry=SOON)
async def crawl(ctx: Context, failing: str = "raise") -> dict[str, Any]:
    """Report pages; the first attempt fails in the middle."""
    for page in range(ctx.cursor or 0, PAGES):
        if page == 2 and ctx.attempt == 1:
            raise RuntimeError("lost the way")
        told = await ctx.items(found(page), cursor=page + 1)
        if told.target_reached:
            break
    told = await ctx.progress(3, done_reason="no_more_results")
    return _told(ctx, told)


def _crawl(ctx: SyncContext, failing: str = "raise") -> dict[str, Any]:
    for page in range(ctx.cursor or 0, PAGES):
        if page == 2 and ctx.attempt == 1:
            if failing == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            raise RuntimeError("lost the way")
        told = ctx.items((item for item in found(page)), cursor=page + 1)
        if told.target_reached:
            break
    told = ctx.progress(3, done_reason="no_more_results")
    return _told(ctx, told)


crawl_in_thread = hf.job("crawl.thread", retry=SOON)(_crawl)
crawl_in_process = hf.job("crawl.process", executor="process", retry=SOON)(_crawl)


def _told(ctx: Context, told: Reported) -> dict[str, Any]:
    return {
        "from": ctx.cursor,
        "reported": told.progress_count,
        "stored": told.result_count,
        "reached": told.target_reached,
    }


def _late(ctx: SyncContext, mark: str) -> None:
    if ctx.attempt > 1:
        return
    Path(mark).touch()
    while not Path(f"{mark}.go").exists():
        time.sleep(0.005)
    try:
        ctx.items(found(1), cursor=9)
    except LeaseLost:
        Path(f"{mark}.lost").touch()


late_in_thread = hf.job("late.thread", lease=1)(_late)
late_in_process = hf.job("late.process", executor="process", lease=1)(_late)

"""The handlers that `holdfast conform` tries, in a worker of the Python SDK.

holdfast conform -- python -m examples.workers.conforming
"""

from __future__ import annotations

import asyncio
from typing import Any

from holdfast import Context, Fatal, Hold, Retry, Snooze
from holdfast.remote import RemoteWorker

worker = RemoteWorker(slots=2)


@worker.job("conform.echo")
async def echo(_: Context, payload: dict[str, Any]) -> dict[str, Any]:
    """Answer the payload."""
    return payload


@worker.job("conform.items")
async def items(ctx: Context, count: int, page: int) -> None:
    """Report items in pages, from the cursor on."""
    for start in range(ctx.cursor or 0, count, page):
        end = min(start + page, count)
        found = [{"key": f"item-{n}", "data": {"n": n}} for n in range(start, end)]
        if (await ctx.items(found, cursor=end)).target_reached:
            return


@worker.job("conform.slow")
async def slow(_: Context, seconds: float) -> None:
    """Take that long, unless told to stop."""
    await asyncio.sleep(seconds)


@worker.job("conform.fail")
async def fail(_: Context, kind: str, message: str) -> None:
    """End with this error."""
    if kind == "snooze":
        raise Snooze(1, message)
    raise {"fatal": Fatal, "hold": Hold, "retryable": Retry}[kind](message)


if __name__ == "__main__":
    worker.run_forever()

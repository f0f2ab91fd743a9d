"""An app as users have it, for tests of the testing kit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from holdfast import Context, Holdfast, RetryPolicy, Snooze


@dataclass
class Mailer:
    sent: list[str] = field(default_factory=list)
    closed: bool = False


mailers: list[Mailer] = []
ran: list[str] = []


@asynccontextmanager
async def lifespan(_app: Holdfast) -> AsyncIterator[Mailer]:
    mailers.append(Mailer())
    yield mailers[-1]
    mailers[-1].closed = True


hf = Holdfast("postgresql://nobody@nowhere.invalid/production", lifespan=lifespan)


@hf.job("email.send", retry=RetryPolicy(max_attempts=3, base=10, jitter=0))
async def send(ctx: Context, to: str) -> dict[str, str]:
    ran.append(to)
    ctx.resources.sent.append(to)
    if to == "nobody":
        raise ValueError("no such address")
    return {"sent_to": to}


@hf.job("newsletter", queue="bulk")
def newsletter(ctx: Any, to: list[str]) -> int:
    ran.append("newsletter")
    for address in to:
        ctx.enqueue("email.send", {"to": address})
    return len(to)


@hf.job("poll")
async def poll(ctx: Context) -> None:
    ran.append(f"poll {ctx.attempt}")
    if ctx.attempt < 3:
        raise Snooze(60)


@hf.job("crawl")
async def crawl(ctx: Context) -> Any:
    await ctx.items([{"key": str(ctx.attempt), "data": {}}], cursor=[ctx.attempt])
    if ctx.attempt < 2:
        raise Snooze(60)
    return ctx.cursor


@hf.job("for-ever")
async def for_ever(ctx: Context) -> None:
    ran.append("for-ever")
    await asyncio.Event().wait()


@hf.job("slow", timeout=0.05)
async def slow(ctx: Context) -> None:
    await asyncio.Event().wait()


@hf.job("again")
async def again(ctx: Context) -> None:
    await ctx.enqueue("again")


@hf.job("sum", executor="process")
def add_up(ctx: Any, numbers: list[int]) -> int:
    return sum(numbers)

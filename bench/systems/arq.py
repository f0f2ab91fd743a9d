"""arq on Redis: one worker with as many jobs at a time as handlers asked for, polling every 10 ms, no results kept.

Polling decides the latency, and its default of half a second would be all that one measures; results kept or other
read limits made no difference that could be told from the noise. There is no bulk call.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

from arq import create_pool
from arq.connections import RedisSettings
from arq.constants import default_queue_name
from arq.worker import Worker

from bench.tally import note


async def noop(_ctx: dict[str, Any], text: str) -> None:
    """What all systems run."""
    note(text)


class _Client:
    def __init__(self, pool: Any) -> None:
        self._pool = pool

    async def one(self, text: str) -> None:
        await self._pool.enqueue_job("noop", text)

    async def many(self, texts: list[str]) -> None:
        raise NotImplementedError


async def prepare(url: str) -> None:
    """Redis needs no tables."""


@contextlib.asynccontextmanager
async def client(url: str) -> AsyncIterator[_Client]:
    """An open pool."""
    async with await create_pool(RedisSettings.from_dsn(url)) as pool:
        yield _Client(pool)


def work(url: str, concurrency: int) -> None:
    """One worker; its log is silent below warnings unless somebody sets it up."""
    settings = RedisSettings.from_dsn(url)
    Worker([noop], redis_settings=settings, max_jobs=concurrency, poll_delay=0.01, keep_result=0).run()


async def unfinished(url: str) -> int:
    """The queue itself: a job leaves it only when it is done."""
    async with await create_pool(RedisSettings.from_dsn(url)) as pool:
        return int(await pool.zcard(default_queue_name))

"""SAQ on PostgreSQL: psycopg's binary build, uvloop, one `Worker`, and SAQ's own pool of 4 to 20 connections.

Pools of 5 to 50, connections not checked before use, and polling instead of notifications were no faster beyond
the noise of a busy machine. SAQ keeps a finished job for ten minutes (its `ttl`) and has no bulk call.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator
from typing import Any

import uvloop
from saq import Queue, Worker

from bench.tally import note


async def noop(_ctx: dict[str, Any], *, text: str) -> None:
    """What all systems run."""
    note(text)


class _Client:
    def __init__(self, queue: Queue) -> None:
        self._queue = queue

    async def one(self, text: str) -> None:
        await self._queue.enqueue("noop", text=text)

    async def many(self, texts: list[str]) -> None:
        raise NotImplementedError("SAQ enqueues one job at a time")


async def prepare(url: str) -> None:
    """Connect once: that makes the tables."""
    async with _connected(url):
        pass


@contextlib.asynccontextmanager
async def client(url: str) -> AsyncIterator[_Client]:
    """A connected queue."""
    async with _connected(url) as queue:
        yield _Client(queue)


def work(url: str, concurrency: int) -> None:
    """One `Worker`, which ends at SIGTERM by itself."""
    logging.basicConfig(level=logging.WARNING)
    uvloop.run(_work(url, concurrency))


async def unfinished(url: str) -> int:
    """What waits or runs, by SAQ's own count."""
    async with _connected(url) as queue:
        return int(await queue.count("incomplete"))


async def _work(url: str, concurrency: int) -> None:
    async with _connected(url) as queue:
        await Worker(queue, [noop], concurrency=concurrency).start()


@contextlib.asynccontextmanager
async def _connected(url: str) -> AsyncIterator[Queue]:
    queue = Queue.from_url(url)
    await queue.connect()
    try:
        yield queue
    finally:
        await queue.disconnect()

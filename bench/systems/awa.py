"""awa, a Rust core that calls Python handlers (experiment)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import awa
import uvloop

from bench.tally import note

E = os.environ.get
PART = int(E("X_PART", "1"))
STRIPES = int(E("X_STRIPES", "1"))
SHARDS = int(E("X_SHARDS", "1"))
QUEUE = awa.PartitionedQueue("bench", PART)


@dataclass
class Noop:
    """The job."""

    text: str


class _Client:
    def __init__(self, opened: awa.AsyncClient) -> None:
        self._opened = opened
        self._n = 0

    async def one(self, text: str) -> None:
        self._n += 1
        await self._opened.insert(Noop(text), **QUEUE.route_by_index(self._n))

    async def many(self, texts: list[str]) -> None:
        kw = {"opts": [QUEUE.route_by_index(i) for i in range(len(texts))]} if PART > 1 else {"queue": "bench"}
        await self._opened.enqueue_many_copy([Noop(text) for text in texts], **kw, queue_storage_queue_stripe_count=STRIPES)


async def prepare(url: str) -> None:
    """Make the schema."""
    async with awa.AsyncClient(url) as opened:
        await opened.migrate()
        opened.task(Noop, queue="bench")(_handle)
        await opened.start([("bench", 1)], queue_storage_queue_stripe_count=STRIPES)
        await opened.shutdown()
        if E("X_SHARDS"):
            async with await opened.transaction() as tx:
                await tx.execute("insert into awa.queue_meta(queue, enqueue_shards) values ('bench', %d) on conflict (queue) do update set enqueue_shards = excluded.enqueue_shards" % SHARDS)
        print((await opened.storage_status())[:120])


async def _handle(job: Any) -> None:
    note(job.args.text)


@contextlib.asynccontextmanager
async def client(url: str) -> AsyncIterator[_Client]:
    """An open client."""
    async with awa.AsyncClient(url) as opened:
        yield _Client(opened)


def work(url: str, concurrency: int) -> None:
    """One worker."""
    (uvloop.run if E("X_UV", "1") == "1" else asyncio.run)(_work(url, concurrency))


async def _work(url: str, concurrency: int) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    opened = awa.AsyncClient(url, max_connections=int(E("X_CONN", "10")))
    opened.task(Noop, queue="bench")(_handle)
    extra = {}
    if E("X_CLAIMERS"):
        extra["claimers"] = int(E("X_CLAIMERS"))
    if E("X_DEADLINE"):
        extra["deadline_duration_ms"] = int(E("X_DEADLINE"))
    if E("X_AGING"):
        extra["priority_aging_interval_ms"] = int(E("X_AGING"))
    extra["claim_batch_size"] = int(E("X_BATCH", "512"))
    await opened.start(QUEUE.queue_configs(max_workers_per_partition=concurrency // PART, **extra),
        poll_interval_ms=int(E("X_POLL", "200")),
        queue_storage_queue_stripe_count=STRIPES,
        queue_storage_lease_rotate_interval_ms=int(E("X_LROT", "250")),
    )
    await stop.wait()
    await opened.shutdown()
    await opened.close()


async def unfinished(url: str) -> int:
    """All that is not completed."""
    async with awa.AsyncClient(url) as opened, await opened.transaction() as tx:
        row = await tx.fetch_one("select count(*) as n from awa.jobs where state <> 'completed'")
        return int(row["n"])

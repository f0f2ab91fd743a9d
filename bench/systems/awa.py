"""awa, a Rust core that calls Python handlers: its queue storage, COPY for bulk, and its own defaults on uvloop.

Tried with 100 handlers at a time on two busy cores, and no faster beyond the noise: two or four partitions, two
stripes, four enqueue shards, more completion shards, claimers or connections, other claim batches and polls, no
deadline.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass

import awa
import uvloop

from bench.tally import note

_QUEUE = "bench"


@dataclass
class Noop:
    """The payload; awa names the job's kind after the class."""

    text: str


async def noop(job: awa.Job[Noop]) -> None:
    """What all systems run."""
    note(job.args.text)


class _Client:
    def __init__(self, opened: awa.AsyncClient) -> None:
        self._opened = opened

    async def one(self, text: str) -> None:
        await self._opened.insert(Noop(text), queue=_QUEUE)

    async def many(self, texts: list[str]) -> None:
        await self._opened.enqueue_many_copy([Noop(text) for text in texts], queue=_QUEUE)


async def prepare(url: str) -> None:
    """Migrate, then start a worker once: only the first start switches a new database to the queue storage."""
    async with awa.AsyncClient(url) as opened:
        await opened.migrate()
        await _start(opened, 1)
        await opened.shutdown()


@contextlib.asynccontextmanager
async def client(url: str) -> AsyncIterator[_Client]:
    """An open client."""
    async with awa.AsyncClient(url) as opened:
        yield _Client(opened)


def work(url: str, concurrency: int) -> None:
    """The Rust runtime, in this process."""
    uvloop.run(_work(url, concurrency))


async def unfinished(url: str) -> int:
    """All jobs in awa's own view that are not completed."""
    async with awa.AsyncClient(url) as opened, await opened.transaction() as transaction:
        row = await transaction.fetch_one("select count(*) as jobs from awa.jobs where state <> 'completed'")
        return int(row["jobs"])


async def _work(url: str, concurrency: int) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with awa.AsyncClient(url) as opened:
        await _start(opened, concurrency)
        await stop.wait()
        await opened.shutdown()


async def _start(opened: awa.AsyncClient, concurrency: int) -> None:
    opened.task(Noop, queue=_QUEUE)(noop)
    await opened.start([(_QUEUE, concurrency)])

"""Holdfast itself, as its users have it: an app, a handler, a worker."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator

import asyncpg

from bench.tally import note
from holdfast import Context, Holdfast
from holdfast.__main__ import main
from holdfast.config import Config
from holdfast.store.migrate import migrate

# Like the peers, it says nothing of each job.
os.environ["HOLDFAST_LOG_LEVEL"] = "WARNING"
app = Holdfast(os.environ["BENCH_URL"])


@app.job("bench.noop")
async def noop(ctx: Context, text: str) -> None:  # noqa: ARG001 - it does nothing
    """What all systems run."""
    note(text)


class _Client:
    def __init__(self, hf: Holdfast) -> None:
        self._hf = hf

    async def one(self, text: str) -> None:
        await self._hf.enqueue("bench.noop", {"text": text})

    async def many(self, texts: list[str]) -> None:
        await self._hf.enqueue_many([("bench.noop", {"text": text}) for text in texts])


async def prepare(url: str) -> None:
    """Make the schema."""
    await migrate(Config.load(database_url=url))


@contextlib.asynccontextmanager
async def client(url: str) -> AsyncIterator[_Client]:
    """An open app."""
    async with Holdfast(url) as hf:
        yield _Client(hf)


@contextlib.contextmanager
def blocking(url: str) -> Iterator[Callable[[str], object]]:
    """The blocking face of an app."""
    with Holdfast(url).sync as sync:
        yield lambda text: sync.enqueue("bench.noop", {"text": text})


def work(url: str, concurrency: int) -> None:  # noqa: ARG001 - the app has it from BENCH_URL
    """`holdfast worker`, as from the shell."""
    sys.argv = ["holdfast", "worker", "--app", "bench.systems.holdfast:app", "--lanes", f"general={concurrency}"]
    main()


async def unfinished(url: str) -> int:
    """What has not ended."""
    conn = await asyncpg.connect(url)
    try:
        return int(
            await conn.fetchval(
                "select (select count(*) from holdfast.ready) + (select count(*) from holdfast.leases)"
                " + (select count(*) from holdfast.due)"
            )
        )
    finally:
        await conn.close()

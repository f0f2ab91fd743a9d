"""Chancy, on psycopg 3 with its C accelerator, jobs in the worker's event loop (its AsyncExecutor).

The queue polls eagerly: without that, the next hundred jobs wait for the polling interval. Of the default plugins,
those that lead, recover and prune stay; without metrics and workflows most runs took less time. Completions are
written once a second, its default (more and less often were no faster); finished jobs are kept for a day.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator

from chancy import Chancy, Job, Queue, Worker
from chancy.plugins.leadership import Leadership
from chancy.plugins.pruner import Pruner
from chancy.plugins.recovery import Recovery

from bench.tally import note

_log = logging.getLogger("chancy")
_log.setLevel(logging.WARNING)


async def noop(*, text: str) -> None:
    """What all systems run."""
    note(text)


_job = Job.from_func(noop)


class _Client:
    def __init__(self, chancy: Chancy) -> None:
        self._chancy = chancy

    async def one(self, text: str) -> None:
        await self._chancy.push(_job.with_kwargs(text=text))

    async def many(self, texts: list[str]) -> None:
        jobs = [_job.with_kwargs(text=text) for text in texts]
        async for _ in self._chancy.push_many(jobs, batch_size=len(jobs)):
            pass


async def prepare(url: str) -> None:
    """`chancy misc migrate`."""
    async with _app(url) as chancy:
        await chancy.migrate()


@contextlib.asynccontextmanager
async def client(url: str) -> AsyncIterator[_Client]:
    """An open app."""
    async with _app(url) as chancy:
        await chancy.pool.wait()
        yield _Client(chancy)


def work(url: str, concurrency: int) -> None:
    """A worker for the default queue."""
    asyncio.run(_work(url, concurrency))


async def unfinished(url: str) -> int:
    """Jobs neither succeeded nor failed."""
    async with _app(url) as chancy, chancy.pool.connection() as conn:
        found = await conn.execute("select count(*) from chancy_jobs where state not in ('succeeded', 'failed')")
        return int((await found.fetchone() or (0,))[0])


async def _work(url: str, concurrency: int) -> None:
    queue = Queue("default", concurrency=concurrency, executor=Chancy.Executor.Async, eager_polling=True)
    async with _app(url) as chancy:
        await chancy.declare(queue, upsert=True)
        async with Worker(chancy) as worker:
            await worker.wait_for_shutdown()


def _app(url: str) -> Chancy:
    return Chancy(url, log=_log, no_default_plugins=True, plugins=[Leadership(), Pruner(), Recovery()])

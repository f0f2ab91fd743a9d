"""Taskiq with taskiq-postgres on asyncpg: uvloop, parameters not parsed, acknowledged once executed, no results.

None of Taskiq's PostgreSQL brokers looks for what was enqueued while nobody listened: they know jobs by NOTIFY
alone. To let it drain a backlog at all, the worker here announces the waiting rows anew when it starts.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator

import asyncpg
from taskiq.acks import AcknowledgeType
from taskiq.cli.worker.args import WorkerArgs
from taskiq.cli.worker.run import start_listen
from taskiq.decor import AsyncTaskiqDecoratedTask
from taskiq_pg.asyncpg import AsyncpgBroker

from bench.tally import note


async def noop(text: str) -> None:
    """What all systems run."""
    note(text)


class _Broker(AsyncpgBroker):  # type: ignore[misc] # untyped where mypy runs
    async def startup(self) -> None:
        await super().startup()
        if self.is_worker_process:
            conn = await asyncpg.connect(self.dsn)
            try:
                await conn.execute(
                    f"select pg_notify('{self.channel_name}', id::text) from {self.table_name}"
                    " where status = 'pending' order by id"
                )
            finally:
                await conn.close()


class _Client:
    def __init__(self, task: AsyncTaskiqDecoratedTask[[str], None]) -> None:
        self._task = task

    async def one(self, text: str) -> None:
        await self._task.kiq(text)

    async def many(self, texts: list[str]) -> None:
        raise NotImplementedError("Taskiq enqueues one job at a time")


async def prepare(url: str) -> None:
    """Start the broker once: that makes its table."""
    async with client(url):
        pass


@contextlib.asynccontextmanager
async def client(url: str) -> AsyncIterator[_Client]:
    """A started broker."""
    broker = _Broker(url)
    await broker.startup()
    try:
        yield _Client(broker.register_task(noop, "noop"))
    finally:
        await broker.shutdown()


def work(url: str, concurrency: int) -> None:
    """What each child process of `taskiq worker` does, in this process."""
    logging.basicConfig(level=logging.WARNING)
    broker = _Broker(url)
    broker.register_task(noop, "noop")
    start_listen(
        WorkerArgs(
            broker=broker,
            modules=[],
            max_async_tasks=concurrency,
            no_parse=True,
            ack_type=AcknowledgeType.WHEN_EXECUTED,
        )
    )


async def unfinished(url: str) -> int:
    """The rows that are left: a job's row is deleted when it is acknowledged."""
    conn = await asyncpg.connect(url)
    try:
        return int(await conn.fetchval("select count(*) from taskiq_messages"))
    finally:
        await conn.close()

"""RQ on Redis: a worker pool with one `SimpleWorker` for each core, which runs jobs without a fork for each of them.

RQ names SimpleWorker the fast one, for short and trusted jobs; it runs one job at a time, so that the pool has as
many handlers as cores, and more of them only cost more CPU. Jobs may be retried, without which RQ gives up those of
a worker that died. Results keep their default life of 500 s: deleting each job at once costs more.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator
from typing import Any

from redis import Redis
from rq import Queue, Retry, SimpleWorker
from rq.worker_pool import WorkerPool

from bench.tally import note

QUEUE = "default"


def noop(text: str) -> None:
    """What all systems run."""
    note(text)


class _Client:
    def __init__(self, queue: Any) -> None:
        self._queue = queue

    async def one(self, text: str) -> None:
        self._queue.enqueue(noop, text, retry=Retry(max=3))

    async def many(self, texts: list[str]) -> None:
        self._queue.enqueue_many([Queue.prepare_data(noop, (text,), retry=Retry(max=3)) for text in texts])


async def prepare(url: str) -> None:
    """Redis needs no tables."""


@contextlib.asynccontextmanager
async def client(url: str) -> AsyncIterator[_Client]:
    """The queue on an open connection."""
    with Redis.from_url(url) as conn:
        yield _Client(Queue(QUEUE, connection=conn))


def work(url: str, concurrency: int) -> None:
    """The pool, as `rq worker-pool` starts it."""
    size = min(concurrency, os.cpu_count() or 1)
    pool = WorkerPool([QUEUE], connection=Redis.from_url(url), num_workers=size, worker_class=SimpleWorker)
    pool.start(logging_level="WARNING")


async def unfinished(url: str) -> int:
    """What waits, what was taken but not begun, and what is running."""
    with Redis.from_url(url) as conn:
        queue = Queue(QUEUE, connection=conn)
        taken = int(conn.llen(queue.intermediate_queue_key))
        return int(queue.count) + taken + int(queue.started_job_registry.get_job_count(cleanup=False))

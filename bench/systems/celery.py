"""Celery on Redis: tasks acknowledged late, no results, one worker with a pool of as many threads as handlers.

Threads were the faster: with `prefork` and a process per core, the main process alone took more CPU per task than
the whole threaded worker. A prefetch multiplier above the default of 4 (400 tasks reserved) gained nothing. Workers
need not know of each other, so gossip, mingle and heartbeats are off. There is no bulk call: a group sends its tasks
one by one.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Iterator

from celery import Celery
from redis import Redis

from bench.tally import note

app = Celery("bench")
app.conf.update(task_acks_late=True, task_ignore_result=True, worker_prefetch_multiplier=4)
noop = app.task(note, name="bench.noop")


class _Client:
    async def one(self, text: str) -> None:
        noop.delay(text)

    async def many(self, texts: list[str]) -> None:
        raise NotImplementedError


async def prepare(url: str) -> None:
    """Redis needs no tables."""


@contextlib.asynccontextmanager
async def client(url: str) -> AsyncIterator[_Client]:
    """The app, with its own pool of connections."""
    app.conf.broker_url = url
    yield _Client()
    app.close()


@contextlib.contextmanager
def blocking(url: str) -> Iterator[Callable[[str], object]]:
    """The same; all its calls block."""
    app.conf.broker_url = url
    yield noop.delay
    app.close()


def work(url: str, concurrency: int) -> None:
    """`celery worker`, as from the shell."""
    app.conf.broker_url = url
    quiet = ["--loglevel=WARNING", "--without-gossip", "--without-mingle", "--without-heartbeat"]
    app.worker_main(["--quiet", "worker", "--pool=threads", f"--concurrency={concurrency}", *quiet])


async def unfinished(url: str) -> int:
    """What waits in the queue, and what was delivered but not acknowledged."""
    with Redis.from_url(url) as conn:
        return int(conn.llen("celery")) + int(conn.hlen("unacked"))

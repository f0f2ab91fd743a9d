"""Dramatiq on Redis: one worker of two processes, which share the handlers as threads; acknowledged when done.

Two processes were the faster on two cores, and so was a prefetch of ten messages for each handler instead of two.
There is no bulk call: a group sends its messages one by one.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import AsyncIterator
from typing import Any

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from redis import ConnectionPool, Redis

from bench.tally import note

PROCESSES = 2


def connect() -> Any:
    """Make the broker and its one actor; the worker's processes call this too."""
    # A thread needs a connection, and the consumers as well: the driver's own limit of 100 would starve them.
    pool = ConnectionPool.from_url(os.environ["BENCH_URL"], max_connections=1000)
    broker = RedisBroker(client=Redis(connection_pool=pool))
    dramatiq.set_broker(broker)
    return dramatiq.actor(note, actor_name="noop", broker=broker)


class _Client:
    def __init__(self, noop: Any) -> None:
        self._noop = noop

    async def one(self, text: str) -> None:
        self._noop.send(text)

    async def many(self, texts: list[str]) -> None:
        raise NotImplementedError


async def prepare(url: str) -> None:
    """Redis needs no tables."""


@contextlib.asynccontextmanager
async def client(url: str) -> AsyncIterator[_Client]:
    """The actor on an open broker."""
    os.environ["BENCH_URL"] = url
    noop = connect()
    yield _Client(noop)
    noop.broker.client.close()


def work(url: str, concurrency: int) -> None:
    """Become the `dramatiq` command: it reads its prefetch from the environment, and SIGTERM must reach it."""
    os.environ |= {"BENCH_URL": url, "dramatiq_queue_prefetch": str(10 * concurrency)}
    size = ["--processes", str(PROCESSES), "--threads", str(max(1, concurrency // PROCESSES))]
    command = [sys.executable, "-m", "dramatiq", "bench.systems.dramatiq:connect", "--skip-logging", *size]
    os.execv(sys.executable, command)


async def unfinished(url: str) -> int:
    """Messages kept: waiting, delivered but not acknowledged, or to be tried again."""
    with Redis.from_url(url) as conn:
        return int(conn.hlen("dramatiq:default.msgs")) + int(conn.hlen("dramatiq:default.DQ.msgs"))

"""Does one thing with one system, in that system's own virtual environment; says what came of it as JSON.

`python -m bench.drive SYSTEM VERB ...`, with the server's address in BENCH_URL. The verbs:
- `prepare`: make the system's tables, in an empty database;
- `one COUNT BYTES`: enqueue one job after the other, each accepted before the next is sent;
- `bulk COUNT BYTES BATCH`: enqueue in batches, where the system offers that;
- `tasks COUNT BYTES TASKS`: enqueue one by one from so many tasks of one event loop;
- `threads COUNT BYTES THREADS`: the same from so many threads, by the system's blocking call;
- `paced COUNT BYTES RATE`: enqueue so many per second, at even distances, never waiting for the answers of others;
- `work CONCURRENCY`: run one worker process until SIGTERM;
- `unfinished`: how many jobs the system has not recorded as done.

Producers run on uvloop in every environment that has it, that is, wherever the system's worker does.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, Protocol

from bench.tally import stamped

__all__ = ["Client", "System"]


class Client(Protocol):
    """How jobs of the one type are enqueued. The payload is one text; the handler calls `bench.tally.note` with it."""

    async def one(self, text: str) -> None:
        """Enqueue one job; it is accepted when this returns."""
        ...

    async def many(self, texts: list[str]) -> None:
        """Enqueue them by the system's own bulk call; NotImplementedError where it has none."""
        ...


class System(Protocol):
    """What a module in `bench.systems` offers; some have no `blocking`."""

    async def prepare(self, url: str) -> None:
        """Make tables and whatever else is needed, once, in an empty database."""
        ...

    def client(self, url: str) -> AbstractAsyncContextManager[Client]:
        """An open client, in its best documented configuration."""
        ...

    def blocking(self, url: str) -> AbstractContextManager[Callable[[str], object]]:
        """How a thread enqueues one job, for many threads at once."""
        ...

    def work(self, url: str, concurrency: int) -> None:
        """Run one worker process until SIGTERM, with so many handlers at a time."""
        ...

    async def unfinished(self, url: str) -> int:
        """How many jobs are not yet recorded as done."""
        ...


async def _one(client: Client, count: int, size: int) -> dict[str, Any]:
    began = time.monotonic()
    for _ in range(count):
        await client.one(stamped(size))
    return {"seconds": time.monotonic() - began, "count": count}


async def _bulk(client: Client, count: int, size: int, batch: int) -> dict[str, Any]:
    batches = [[stamped(size) for _ in range(min(batch, count - start))] for start in range(0, count, batch)]
    began = time.monotonic()
    for texts in batches:
        await client.many(texts)
    return {"seconds": time.monotonic() - began, "count": count}


async def _tasks(client: Client, count: int, size: int, tasks: int) -> dict[str, Any]:
    left = iter(range(count))

    async def call() -> None:
        for _ in left:
            await client.one(stamped(size))

    began = time.monotonic()
    await asyncio.gather(*(call() for _ in range(tasks)))
    return {"seconds": time.monotonic() - began, "count": count}


def _threads(system: System, url: str, count: int, size: int, threads: int) -> dict[str, Any]:
    if not hasattr(system, "blocking"):
        raise NotImplementedError
    with system.blocking(url) as enqueue, ThreadPoolExecutor(threads) as pool:
        left = iter(range(count))

        def call(_number: int) -> None:
            for _ in left:
                enqueue(stamped(size))

        enqueue(stamped(size))  # connections are not part of it
        began = time.monotonic()
        list(pool.map(call, range(threads)))
        return {"seconds": time.monotonic() - began, "count": count}


async def _paced(client: Client, count: int, size: int, rate: float) -> dict[str, Any]:
    began, late, under_way = time.monotonic(), 0.0, set[asyncio.Task[None]]()
    for number in range(count):
        wait = began + number / rate - time.monotonic()
        late = max(late, -wait)
        await asyncio.sleep(max(0.0, wait))
        task = asyncio.create_task(client.one(stamped(size)))
        under_way.add(task)
        task.add_done_callback(under_way.discard)
    await asyncio.gather(*under_way)
    return {"seconds": time.monotonic() - began, "count": count, "late": late}


async def _with_client(system: System, url: str, verb: str, numbers: list[int]) -> dict[str, Any]:
    async with system.client(url) as client:
        match verb, numbers:
            case "one", [count, size]:
                return await _one(client, count, size)
            case "bulk", [count, size, batch]:
                return await _bulk(client, count, size, batch)
            case "tasks", [count, size, tasks]:
                return await _tasks(client, count, size, tasks)
            case "paced", [count, size, rate]:
                return await _paced(client, count, size, rate)
    raise SystemExit(f"unknown: {verb} {numbers}")


def _quicken() -> None:
    with contextlib.suppress(ImportError):
        import uvloop

        asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())


def main() -> None:
    """Do what the command line says."""
    name, verb, *rest = sys.argv[1:]
    system: System = importlib.import_module(f"bench.systems.{name}")
    url, numbers = os.environ["BENCH_URL"], [int(part) for part in rest]
    if verb == "work":
        system.work(url, *numbers)
        return
    if verb == "prepare":
        asyncio.run(system.prepare(url))
        answer: dict[str, Any] = {}
    elif verb == "threads":
        answer = _threads(system, url, *numbers)
    elif verb == "unfinished":
        answer = {"unfinished": asyncio.run(system.unfinished(url))}
    else:
        _quicken()
        answer = asyncio.run(_with_client(system, url, verb, numbers))
    print(json.dumps(answer))


if __name__ == "__main__":
    main()

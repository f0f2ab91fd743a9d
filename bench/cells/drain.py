"""Draining jobs that were enqueued before: by one and two worker processes, with 100 bytes and 4 kB.

The same rules for all: the jobs are as many as the system is expected to run in some seconds; the rate counts
from the first handler's start to the last's, with no warm-up left out; a system has fifteen seconds more to
record all as done. What it cost is taken between the first and the last look at the tallies, so that the
start of a worker is not in it; transactions are counted over the whole life of the worker.
"""

from __future__ import annotations

import asyncio
import os
import time
from functools import partial

from bench import upkeep
from bench.limits import loop, pgbench
from bench.options import SMALL
from bench.results import Figures
from bench.runner import Runner
from bench.stage import Database, Measure, Stage

__all__ = ["LARGE", "drain", "expected", "run", "sized"]

LARGE = 4000
_LEAST, _MOST = 500, 400_000
_PATIENCE = 120.0
_SETTLING = 15.0
#: Two processes may be faster: they get more to do.
_SHARE = {1: 1.0, 2: 1.5}


async def run(stage: Stage, processes: int, size: int) -> None:
    """Each system in turn, and the limits beside one process."""
    measures: dict[str, Measure] = {
        name: partial(_measure, stage, runner, processes, size) for name, runner in stage.runners.items()
    }
    if processes == 1:
        measures["loop"] = partial(_loop, stage, size)
        measures["pgbench"] = partial(_pgbench, stage, size, 1)
        measures["pgbench-batch"] = partial(_pgbench, stage, size, loop.BATCH)
    await stage.interleave(f"drain-{processes}x{size}", measures)


async def expected(stage: Stage, runner: Runner, size: int) -> float:
    """How fast the system drains such jobs: as last seen, or by trying with more and more of them."""
    key, count = (runner.contestant.name, f"drain-{size}"), _LEAST
    while key not in stage.speeds:
        async with stage.fresh(runner.contestant) as database:
            await runner.enqueue(database.url, count, size)
            async with runner.workers(database.url) as workers:
                reading = await workers.reach(count, _PATIENCE)
        if reading.last - reading.first > min(0.4, stage.options.drain_seconds) or count > 20_000:
            stage.speeds[key] = reading.per_second
        count *= 6
    return stage.speeds[key]


async def sized(stage: Stage, runner: Runner, processes: int, size: int) -> int:
    """How many jobs to drain."""
    wanted = await expected(stage, runner, size) * stage.options.drain_seconds * _SHARE[processes]
    return int(max(_LEAST, min(_MOST, wanted)))


async def drain(
    stage: Stage,
    runner: Runner,
    database: Database,
    count: int,
    *,
    size: int = SMALL,
    processes: int = 1,
    others: int = 0,
) -> Figures:
    """Enqueue, drain, and say how fast that was and what it cost; `others` stay where they are."""
    contestant = runner.contestant
    await runner.enqueue(database.url, count, size)
    if contestant.store == "postgres":
        await upkeep.analyze(database.url)
    transactions = await stage.meter.transactions(database.name)
    async with runner.workers(database.url, processes) as workers:
        began_with = (await workers.reach(1, _PATIENCE)).count
        before, looked = await stage.costs(contestant, database, workers.pids), time.monotonic()
        await workers.reach((began_with + count) // 2, _PATIENCE)
        connections = await stage.meter.connections(database.name)
        reading = await workers.reach(count, _PATIENCE)
        after, seconds = await stage.costs(contestant, database, workers.pids), time.monotonic() - looked
        left = await runner.await_finished(database.url, others, _SETTLING)
        handlers = workers.read().count
    done = max(1, count - began_with)
    figures = {"per_second": (count - 1) / (reading.last - reading.first), "jobs": float(count)}
    figures |= after.since(before, done)
    figures |= {"left": float(left), "again": float(handlers - count)}
    busy = (figures.get("server_cpu_us", 0) + figures["worker_cpu_us"]) * done / 1e6 / seconds
    figures["cores_busy"] = min(busy, float(os.cpu_count() or 1))
    if contestant.store == "postgres":
        figures["connections"] = connections / processes
        await asyncio.sleep(0.2)  # the last connections hand in their counts as they go
        figures["transactions"] = (await stage.meter.transactions(database.name) - transactions) / count
    return figures


async def _measure(stage: Stage, runner: Runner, processes: int, size: int, _round: int) -> Figures:
    count = await sized(stage, runner, processes, size)
    async with stage.fresh(runner.contestant) as database:
        figures = await drain(stage, runner, database, count, size=size, processes=processes)
    if processes == 1:
        stage.speeds[runner.contestant.name, f"drain-{size}"] = figures["per_second"]
    return figures


async def _loop(stage: Stage, size: int, _round: int) -> Figures:
    key = ("loop", f"drain-{size}")
    count = int(max(_LEAST, stage.speeds.get(key, 10_000) * stage.options.drain_seconds))
    async with stage.fresh(stage.holdfast.contestant) as database:
        await loop.enqueue_bulk(database.url, count, size)
        await upkeep.analyze(database.url)
        before = await stage.meter.costs(database.name, [os.getpid()])
        per_second = await loop.drain(database.url, count)
        after = await stage.meter.costs(database.name, [os.getpid()])
    stage.speeds[key] = per_second
    return {"per_second": per_second} | after.since(before, count)


async def _pgbench(stage: Stage, size: int, batch: int, _round: int) -> Figures:
    async with stage.empty() as database:
        if batch not in stage.clients:
            stage.clients[batch] = await pgbench.best_clients(database.url, size, batch)
        clients = stage.clients[batch]
        per_second = await pgbench.drain(database.url, size, batch, clients, stage.options.drain_seconds)
    return {"per_second": per_second, "clients": float(clients)}

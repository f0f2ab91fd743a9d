"""What a worker with nothing to do costs, itself and at the server, per minute."""

from __future__ import annotations

import asyncio
from functools import partial

from bench.options import SMALL
from bench.results import Figures
from bench.runner import Runner
from bench.stage import Stage

__all__ = ["run"]

_SETTLED = 3.0


async def run(stage: Stage) -> None:
    """Once for each system: the figures hardly vary."""
    for name, runner in stage.runners_of("idle"):
        await stage.measure("idle", name, 0, partial(_measure, stage, runner))


async def _measure(stage: Stage, runner: Runner, _round: int) -> Figures:
    seconds = stage.options.idle_seconds
    async with stage.fresh(runner.contestant) as database, runner.workers(database.url) as workers:
        await runner.one(database.url, 1, SMALL)
        await workers.reach(1, 60)
        await asyncio.sleep(_SETTLED)
        before = await stage.costs(runner.contestant, database, workers.pids)
        await asyncio.sleep(seconds)
        after = await stage.costs(runner.contestant, database, workers.pids)
        connections = await stage.meter.connections(database.name)
    spent = after.since(before, 1)
    per_minute = 60 / seconds
    figures = {
        "worker_cpu_s": spent["worker_cpu_us"] / 1e6 * per_minute,
        "server_cpu_s": spent.get("server_cpu_us", 0) / 1e6 * per_minute,
    }
    if "statements" in spent:
        figures["statements_per_minute"] = spent["statements"] * per_minute
    if runner.contestant.store == "postgres":
        figures["connections"] = float(connections)
    return figures

"""From enqueueing to the handler's start, at a hundred jobs a second, in a worker that is up and has run some."""

from __future__ import annotations

import statistics
from functools import partial

from bench.options import SMALL
from bench.results import Figures
from bench.runner import Runner
from bench.stage import Stage

__all__ = ["run"]

_RATE = 100
_WARM = 20


async def run(stage: Stage) -> None:
    """Each system in turn."""
    await stage.interleave("latency", {n: partial(_measure, stage, runner) for n, runner in stage.runners.items()})


async def _measure(stage: Stage, runner: Runner, _round: int) -> Figures:
    count = stage.options.latency_jobs
    async with stage.fresh(runner.contestant) as database, runner.workers(database.url, waits=True) as workers:
        await runner.one(database.url, _WARM, SMALL)
        await workers.reach(_WARM, 60)
        warm = workers.waits()
        late = await runner.paced(database.url, count, SMALL, _RATE)
        await workers.reach(_WARM + count, 60)
        waits = sorted((workers.waits() - warm).elements())
    percent = statistics.quantiles(waits, n=100, method="inclusive")
    figures = {"p50_ms": percent[49], "p95_ms": percent[94], "p99_ms": percent[98], "late_ms": late}
    return {name: value * 1000 for name, value in figures.items()}

"""From enqueueing to the handler's start, at a hundred jobs a second, in a worker that is up and has run some.

Beside it, what one commit takes from end to end at the same pace: a machine that was at rest the moment before
takes longer for anything than one in a loop.
"""

from __future__ import annotations

import statistics
from functools import partial

from bench.limits import minimal
from bench.options import SMALL
from bench.results import Figures
from bench.runner import Runner
from bench.stage import Measure, Stage

__all__ = ["run"]

_RATE = 100
_WARM = 20


async def run(stage: Stage) -> None:
    """Each system in turn."""
    measures: dict[str, Measure] = {n: partial(_measure, stage, runner) for n, runner in stage.runners_of("latency")}
    measures["insert"] = partial(_commit, stage)
    await stage.interleave("latency", measures)


async def _measure(stage: Stage, runner: Runner, _round: int) -> Figures:
    count = stage.options.latency_jobs
    async with stage.fresh(runner.contestant) as database, runner.workers(database.url, waits=True) as workers:
        await runner.one(database.url, _WARM, SMALL)
        await workers.reach(_WARM, 60)
        warm = workers.waits()
        late = await runner.paced(database.url, count, SMALL, _RATE)
        await workers.reach(_WARM + count, 60)
        waits = sorted((workers.waits() - warm).elements())
    return {**_percentiles(waits), "late_ms": late * 1000}


async def _commit(stage: Stage, _round: int) -> Figures:
    async with stage.empty() as database:
        return _percentiles(await minimal.insert_paced(database.url, stage.options.latency_jobs, SMALL, _RATE))


def _percentiles(seconds: list[float]) -> Figures:
    percent = statistics.quantiles(seconds, n=100, method="inclusive")
    return {"p50_ms": percent[49] * 1000, "p95_ms": percent[94] * 1000, "p99_ms": percent[98] * 1000}

"""Ten minutes of load: jobs keep coming as fast as they are done; the pace at the end against that at the start."""

from __future__ import annotations

import asyncio
import time
from functools import partial

from bench.cells.drain import expected
from bench.meters import table_figures
from bench.options import SMALL
from bench.results import Figures
from bench.runner import Runner, Workers
from bench.stage import Database, Stage

__all__ = ["run"]

#: So many seconds' worth of jobs are enqueued at a time, whenever no more than that are left.
_CHUNK_SECONDS = 5


async def run(stage: Stage) -> None:
    """Once for each system."""
    for runner in stage.postgres_runners():
        await stage.measure("sustained", runner.contestant.name, 0, partial(_measure, stage, runner))


async def _measure(stage: Stage, runner: Runner, _round: int) -> Figures:
    minute = stage.options.sustained_seconds / 10
    chunk = int(max(500, await expected(stage, runner, SMALL) * min(_CHUNK_SECONDS, minute)))
    async with stage.fresh(runner.contestant) as database, runner.workers(database.url) as workers:
        await runner.enqueue(database.url, 2 * chunk, SMALL)
        await workers.reach(1, 60)
        feeding = asyncio.create_task(_feed(runner, database, workers, chunk))
        try:
            began, marks, figures = time.monotonic(), {}, Figures()
            for number in range(1, 11):
                await asyncio.sleep(max(0.0, began + number * minute - time.monotonic()))
                if feeding.done():
                    feeding.result()
                marks[number] = (time.monotonic(), workers.read().count)
                if number in (2, 4, 8, 10):
                    sizes = await table_figures(database.url)
                    figures |= {f"{name}_minute_{number}": value for name, value in sizes.items()}
        finally:
            feeding.cancel()
            await asyncio.gather(feeding, return_exceptions=True)
    early, late = _rate(marks[2], marks[4]), _rate(marks[8], marks[10])
    return {"ratio": late / early, "early_per_second": early, "late_per_second": late} | figures


async def _feed(runner: Runner, database: Database, workers: Workers, chunk: int) -> None:
    asked = 2 * chunk
    while True:
        await workers.reach(asked - chunk, 300)
        await runner.enqueue(database.url, chunk, SMALL)
        asked += chunk


def _rate(start: tuple[float, int], end: tuple[float, int]) -> float:
    return (end[1] - start[1]) / (end[0] - start[0])

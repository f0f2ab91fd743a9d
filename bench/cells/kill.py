"""kill -9 in the middle of a drain: nothing is lost, and few jobs run twice. Holdfast only."""

from __future__ import annotations

from functools import partial

from bench.cells.drain import sized
from bench.options import SMALL
from bench.results import Figures
from bench.stage import Stage

__all__ = ["run"]

_LEASE_SECONDS = "3"


async def run(stage: Stage) -> None:
    """In every round."""
    await stage.interleave("kill", {"holdfast": partial(_measure, stage)})


async def _measure(stage: Stage, _round: int) -> Figures:
    runner = stage.holdfast
    count = await sized(stage, runner, 1, SMALL)
    # Leases are shortened only so that the wait for them is short.
    lease = {"HOLDFAST_LEASE_SEC_DEFAULT": _LEASE_SECONDS}
    async with stage.fresh(runner.contestant) as database:
        await runner.enqueue(database.url, count, SMALL)
        async with runner.workers(database.url, settings=lease) as killed:
            await killed.reach(count // 2, 120)
            await killed.kill()
            first = killed.read().count
            open_jobs = await runner.unfinished(database.url)
        async with runner.workers(database.url, settings=lease) as second:
            await second.reach(open_jobs, 120)
            left = await runner.await_finished(database.url, 0, 60)
            again = first + second.read().count - count
    return {"again": float(again), "left": float(left), "jobs": float(count)}

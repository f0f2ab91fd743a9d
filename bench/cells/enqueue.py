"""Enqueueing: one after the other, and in batches of a thousand; beside it the same bytes by bare statements."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from bench.limits import loop, minimal
from bench.options import BATCH, SMALL
from bench.results import Figures
from bench.runner import Runner
from bench.stage import Database, Measure, Stage

__all__ = ["bulk", "one"]

Enqueue = Callable[[str, int, int], Awaitable[float]]
_LEAST, _MOST = 200, 300_000


async def one(stage: Stage) -> None:
    """Every job accepted before the next is sent."""
    measures: dict[str, Measure] = {
        name: partial(_measure, stage, runner, runner.one, "one") for name, runner in stage.runners.items()
    }
    measures["loop"] = partial(_function, stage, loop.enqueue_one, "one")
    measures["insert"] = partial(_insert, stage)
    await stage.interleave("enqueue-one", measures)


async def bulk(stage: Stage) -> None:
    """By each system's own bulk call."""
    measures: dict[str, Measure] = {
        name: partial(_measure, stage, runner, runner.bulk, "bulk") for name, runner in stage.runners.items()
    }
    measures["loop"] = partial(_function, stage, loop.enqueue_bulk, "bulk")
    measures["insert"] = partial(_bare, stage, minimal.insert_bulk, "insert")
    measures["copy"] = partial(_bare, stage, minimal.copy_bulk, "copy")
    await stage.interleave("enqueue-bulk", measures)


async def _measure(stage: Stage, runner: Runner, enqueue: Enqueue, verb: str, _round: int) -> Figures:
    key = (runner.contestant.name, verb)
    if key not in stage.speeds:
        async with stage.fresh(runner.contestant) as database:
            stage.speeds[key] = await enqueue(database.url, _LEAST if verb == "one" else 2 * BATCH, SMALL)
    async with stage.fresh(runner.contestant) as database:
        return await _sized(stage, key, enqueue, database)


async def _function(stage: Stage, enqueue: Enqueue, verb: str, _round: int) -> Figures:
    """The engine's own function, called by a bare loop."""
    stage.speeds.setdefault(("loop", verb), stage.speeds.get(("holdfast", verb), 1000))
    async with stage.fresh(stage.holdfast.contestant) as database:
        return await _sized(stage, ("loop", verb), enqueue, database)


async def _bare(stage: Stage, enqueue: Enqueue, name: str, _round: int) -> Figures:
    stage.speeds.setdefault((name, "bulk"), 20_000)
    async with stage.empty() as database:
        return await _sized(stage, (name, "bulk"), enqueue, database)


async def _insert(stage: Stage, _round: int) -> Figures:
    """A bare INSERT, and with it what one commit takes from end to end."""
    key = ("insert", "one")
    stage.speeds.setdefault(key, 1000)
    async with stage.empty() as database:
        per_second, round_trip = await minimal.insert_one(database.url, _count(stage, key), SMALL)
    stage.speeds[key] = per_second
    return {"per_second": per_second, "round_trip_ms": round_trip * 1000}


async def _sized(stage: Stage, key: tuple[str, str], enqueue: Enqueue, database: Database) -> Figures:
    stage.speeds[key] = await enqueue(database.url, _count(stage, key), SMALL)
    return {"per_second": stage.speeds[key]}


def _count(stage: Stage, key: tuple[str, str]) -> int:
    wanted = int(stage.speeds[key] * stage.options.enqueue_seconds)
    count = max(_LEAST, min(_MOST, wanted))
    return count if key[1] == "one" else max(1, count // BATCH) * BATCH

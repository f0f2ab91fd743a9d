"""Enqueueing: one after the other, from many tasks and threads, and in batches of a thousand.

Beside it the same bytes by bare statements; from many tasks or threads, those have a pool of ten connections.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from bench.limits import loop, minimal
from bench.options import BATCH, SMALL
from bench.results import Figures
from bench.runner import Runner
from bench.stage import Database, Measure, Stage

__all__ = ["TASKS", "THREADS", "bulk", "one", "tasks", "threads"]

Enqueue = Callable[[str, int, int], Awaitable[float]]
#: From how many at a time.
TASKS, THREADS = (1, 10, 50, 200), (1, 8, 50)
_LEAST, _MOST = 200, 300_000


async def one(stage: Stage) -> None:
    """Every job accepted before the next is sent."""
    measures: dict[str, Measure] = {
        name: partial(_measure, stage, runner, runner.one, "one") for name, runner in stage.runners_of("enqueue")
    }
    measures["loop"] = partial(_function, stage, loop.enqueue_one, "one")
    measures["insert"] = partial(_insert, stage)
    await stage.interleave("enqueue-one", measures)


async def bulk(stage: Stage) -> None:
    """By each system's own bulk call."""
    measures: dict[str, Measure] = {
        name: partial(_measure, stage, runner, runner.bulk, "bulk") for name, runner in stage.runners_of("enqueue")
    }
    measures["loop"] = partial(_function, stage, loop.enqueue_bulk, "bulk")
    measures["insert"] = partial(_bare, stage, minimal.insert_bulk, "insert")
    measures["copy"] = partial(_bare, stage, minimal.copy_bulk, "copy")
    await stage.interleave("enqueue-bulk", measures)


async def tasks(stage: Stage, number: int) -> None:
    """Each of so many tasks awaits the answer before it sends the next one."""
    measures: dict[str, Measure] = {
        name: partial(_measure, stage, runner, partial(runner.tasks, number), f"tasks-{number}")
        for name, runner in stage.runners_of("enqueue")
    }
    measures["insert"] = partial(_bare, stage, partial(minimal.insert_tasks, number), "insert", verb=f"tasks-{number}")
    await stage.interleave(f"enqueue-tasks-{number}", measures)


async def threads(stage: Stage, number: int) -> None:
    """The same with threads, and each system's blocking call."""
    measures: dict[str, Measure] = {
        name: partial(_measure, stage, runner, partial(runner.threads, number), f"threads-{number}")
        for name, runner in stage.runners_of("enqueue")
    }
    insert = partial(minimal.insert_threads, number)
    measures["insert"] = partial(_bare, stage, insert, "insert", verb=f"threads-{number}")
    await stage.interleave(f"enqueue-threads-{number}", measures)


async def _measure(stage: Stage, runner: Runner, enqueue: Enqueue, verb: str, _round: int) -> Figures:
    key = (runner.contestant.name, verb)
    if key not in stage.speeds:
        async with stage.fresh(runner.contestant) as database:
            stage.speeds[key] = await enqueue(database.url, 2 * BATCH if verb == "bulk" else _LEAST, SMALL)
    async with stage.fresh(runner.contestant) as database:
        return await _sized(stage, key, enqueue, database)


async def _function(stage: Stage, enqueue: Enqueue, verb: str, _round: int) -> Figures:
    """The engine's own function, called by a bare loop."""
    stage.speeds.setdefault(("loop", verb), stage.speeds.get(("holdfast", verb), 1000))
    async with stage.fresh(stage.holdfast.contestant) as database:
        return await _sized(stage, ("loop", verb), enqueue, database)


async def _bare(stage: Stage, enqueue: Enqueue, name: str, _round: int, *, verb: str = "bulk") -> Figures:
    stage.speeds.setdefault((name, verb), 20_000 if verb == "bulk" else 2000)
    async with stage.empty() as database:
        return await _sized(stage, (name, verb), enqueue, database)


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
    return max(1, count // BATCH) * BATCH if key[1] == "bulk" else count

"""How long jobs wait, and how many run at once, from what clients and handlers saw themselves."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Collection
from typing import Any
from uuid import UUID

from holdfast import Holdfast
from tests.harness.fleet import Fleet
from tests.harness.waiting import until

__all__ = ["assert_rate", "late", "most_at_once", "waits"]


async def waits(
    fleet: Fleet, hf: Holdfast, kind: str, payload: Any = None, *, number: int, every: float, **options: Any
) -> list[float]:
    """Enqueue this many jobs, one at a time. Returns the seconds from each request to the start of its handler."""
    asked: dict[UUID | None, float] = {}
    for _ in range(number):
        before = time.monotonic()
        asked[(await hf.enqueue(kind, payload, **options)).id] = before
        await asyncio.sleep(max(0.0, before + every - time.monotonic()))

    def began() -> dict[UUID | None, float] | None:
        found = {f.job_id: f.at for f in fleet.history.facts() if f.kind == "started" and f.job_id in asked}
        return found if len(found) == len(asked) else None

    starts = await until(began, what="they begin")
    return [starts[job_id] - at for job_id, at in asked.items()]


def late(seconds: list[float]) -> float:
    """What 95 % do not exceed."""
    return sorted(seconds)[int(len(seconds) * 0.95) - 1]


def most_at_once(
    fleet: Fleet, job_ids: Collection[UUID], *, per_process: bool = False, since: float = float("-inf")
) -> int:
    """How many of these jobs ran at the same time, at most; a killed process runs nothing any more."""
    running: dict[tuple[UUID | None, int | None], int] = {}
    most = 0
    for fact in fleet.history.facts():
        if fact.kind == "killed":
            running = {run: process for run, process in running.items() if process != fact.process}
        elif fact.job_id in job_ids and fact.kind == "started":
            running[fact.job_id, fact.attempt] = fact.process
            alike = [process for process in running.values() if not per_process or process == fact.process]
            most = max(most, len(alike)) if fact.at > since else most
        elif fact.job_id in job_ids and fact.kind == "ended":
            running.pop((fact.job_id, fact.attempt), None)
    return most


def assert_rate(starts: list[float], per_second: int) -> None:
    """A start is noted a moment after it was granted: a window may hold one second's worth more, not two."""
    starts = sorted(starts)
    for first, last in itertools.combinations(range(len(starts)), 2):
        assert last - first + 1 <= per_second * (starts[last] - starts[first] + 2)

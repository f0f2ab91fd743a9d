"""Slow jobs in thousands delay no fast one, and none of them ever takes a fast slot.

How long a fast job waits is measured twice in the same run, before the flood and in it. While other tests share the
machine, the bound is one that only a missing lane exceeds; `make chaos` measures.
"""

from __future__ import annotations

import asyncio
import time
from uuid import UUID

import pytest

from holdfast import Holdfast
from holdfast.testing.harness import Fleet, until
from tests.faults.conftest import CHAOS_SECONDS, NewFleet

FAST_SLOTS, GENERAL_SLOTS = 2, 3
FLOOD = 5000
#: Without lanes, a slot falls free once in so many seconds divided by the slots.
SLOW_SECONDS = 4.0
FAST_JOBS = 100


@pytest.mark.slow
@pytest.mark.timeout(240)
async def test_a_flood_of_slow_jobs_delays_no_fast_one(new_fleet: NewFleet, database_url: str, hf: Holdfast) -> None:
    lanes = f"fast={FAST_SLOTS},general={GENERAL_SLOTS}"
    fleet = new_fleet(database_url, module="tests.faults.steered", lanes=lanes, lease_sec_default=30)
    fleet.spawn()
    await fleet.ready()
    await waits(fleet, hf, 10)
    quiet = _late(await waits(fleet, hf, FAST_JOBS))
    flood = await hf.enqueue_many([("slow", {"seconds": SLOW_SECONDS})] * FLOOD)
    await until(lambda: most_at_once(fleet, {ref.id for ref in flood}) >= GENERAL_SLOTS, what="the flood runs")
    flooded = _late(await waits(fleet, hf, FAST_JOBS))

    print(f"95 % of the fast jobs waited at most {quiet * 1000:.1f} ms before, {flooded * 1000:.1f} ms in the flood")
    assert flooded <= (max(1.5 * quiet, quiet + 0.01) if CHAOS_SECONDS else quiet + SLOW_SECONDS / 8)
    assert most_at_once(fleet, {ref.id for ref in flood}) == GENERAL_SLOTS
    assert (await hf.client.backlog())["ready"] > FLOOD / 2


async def waits(fleet: Fleet, hf: Holdfast, number: int) -> list[float]:
    """How long so many fast jobs waited, one every 20 ms, from asking for them to the start of their handlers."""
    asked: dict[UUID, float] = {}
    for _ in range(number):
        before = time.monotonic()
        asked[(await hf.enqueue("fast")).id] = before
        await asyncio.sleep(max(0.0, before + 0.02 - time.monotonic()))

    def began() -> dict[UUID, float] | None:
        found = {f.job_id: f.at for f in fleet.history.facts() if f.kind == "started" and f.job_id in asked}
        return found if len(found) == len(asked) else None  # type: ignore[return-value]

    starts = await until(began, what="the fast jobs begin")
    return [starts[job_id] - at for job_id, at in asked.items()]


def most_at_once(fleet: Fleet, job_ids: set[UUID]) -> int:
    """How many of these jobs ran at the same time, at most, in one process."""
    running: dict[int, int] = {}
    most = 0
    for fact in fleet.history.facts():
        if fact.job_id in job_ids and fact.kind in ("started", "ended"):
            running[fact.process] = running.get(fact.process, 0) + (1 if fact.kind == "started" else -1)
            most = max(most, running[fact.process])
    return most


def _late(waits: list[float]) -> float:
    """What 95 % do not exceed."""
    return sorted(waits)[int(len(waits) * 0.95) - 1]

"""kill -9 of workers at random moments, while jobs keep arriving."""

from __future__ import annotations

import random
import time
from typing import Any

import pytest

from holdfast import Holdfast
from tests.faults.conftest import CHAOS_SECONDS
from tests.harness.deeds import Deeds
from tests.harness.fleet import Fleet, judge
from tests.harness.waiting import until

WORKERS = 4 if CHAOS_SECONDS else 3
BATCH = 40
#: For how long jobs arrive, how many there are at least, and how often somebody is killed meanwhile.
SECONDS, JOBS, KILLED_PER_BATCH = (CHAOS_SECONDS, 600, 0.2) if CHAOS_SECONDS else (1.5, 400, 0.4)


@pytest.mark.slow
@pytest.mark.timeout(240 + 2 * CHAOS_SECONDS)
async def test_kill_at_random_moments_loses_nothing_and_runs_nothing_twice(
    fleet: Fleet, hf: Holdfast, chance: random.Random, deeds: Deeds
) -> None:
    for _ in range(WORKERS):
        fleet.spawn()
    await fleet.ready()

    end = time.monotonic() + SECONDS
    recorded = killed = 0
    while time.monotonic() < end or recorded < JOBS or killed < 3:
        await _enqueue_some(hf, fleet, chance)
        recorded += BATCH
        working = [process for process in fleet.living if process.started]
        if len(working) > 1 and chance.random() < KILLED_PER_BATCH:
            chance.choice(working).kill()
            killed += 1
            fleet.spawn()
        await until(lambda: _few_wait(hf), what="the workers keep up")

    await until(lambda: _idle(hf), seconds=90, what="all jobs end")
    await fleet.drained()
    jobs, attempts = await judge(hf, fleet.history)
    lost = sum(attempt.outcome == "lost" for attempt in attempts)
    deeds.say(f"{len(attempts)} attempts, {lost} leases lost and recovered")
    assert len(jobs) == recorded
    assert killed >= 3


async def _enqueue_some(hf: Holdfast, fleet: Fleet, chance: random.Random) -> None:
    jobs: list[tuple[str, dict[str, float], dict[str, Any]]] = []
    for _ in range(BATCH):
        kind = chance.choice(["work", "work", "threaded", "quick"])
        target = f"target {chance.randrange(12)}" if chance.random() < 0.3 else None
        delay = chance.random() if target is None and chance.random() < 0.1 else None
        payload: dict[str, float] = {}
        if kind != "quick":
            payload["seconds"] = chance.choice([0, 0, 0.005, 0.02])
        if kind == "work" and chance.random() < 0.1:
            payload["failing"] = 1
        jobs.append((kind, payload, {"target": target, "delay": delay}))
    for job, answer in zip(jobs, await hf.enqueue_many(jobs), strict=True):
        fleet.history.enqueued(answer.id, target=job[2]["target"])


async def _few_wait(hf: Holdfast) -> bool:
    backlog = await hf.client.backlog()
    return backlog["ready"] + backlog["waiting"] < 400


async def _idle(hf: Holdfast) -> bool:
    backlog = await hf.client.backlog()
    return not any(backlog[part] for part in ("ready", "running", "due", "waiting"))

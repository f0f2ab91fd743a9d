"""kill -9 of workers that have claimed very short jobs ahead, each of which may fail once only."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.testing.harness import Fleet, judge, until
from tests.faults.conftest import CHAOS_SECONDS
from tests.harness.deeds import Deeds

KILLS = max(3, int(CHAOS_SECONDS / 4))
JOBS = 1500


@pytest.mark.slow
@pytest.mark.timeout(240 + 4 * CHAOS_SECONDS)
async def test_what_never_began_is_not_buried(
    fleet: Fleet, hf: Holdfast, chance: random.Random, deeds: Deeds
) -> None:
    recorded = 0
    for _ in range(KILLS):
        jobs: list[tuple[str, Any, Any]] = [("work", {"seconds": 0.001}, {"max_attempts": 1})] * JOBS
        for ref in await hf.enqueue_many(jobs):
            fleet.history.enqueued(ref.id)
        recorded += JOBS
        worker = fleet.spawn()
        await _begin(fleet, recorded - int(JOBS * chance.uniform(0.2, 0.8)))
        worker.kill()
        await worker.ended()
    fleet.spawn()
    await until(lambda: _idle(hf), seconds=90, what="all jobs end")
    await fleet.drained()
    jobs_found, attempts = await judge(hf, fleet.history)
    begun = {(fact.job_id, fact.attempt) for fact in fleet.history.facts() if fact.kind == "started"}
    free = [(a.job_id, a.attempt) for a in attempts if a.error_type == "NeverBegan"]
    charged = [(a.job_id, a.attempt) for a in attempts if a.outcome == "lost"]
    doubtful = [entry for entry in charged if entry not in begun]
    deeds.say(
        f"{recorded} jobs, {KILLS} kills: {len(charged)} attempts lost, of which {len(doubtful)} had not"
        f" begun; {len(free)} came back for nothing"
    )
    assert len(jobs_found) == recorded
    assert not [entry for entry in free if entry in begun], "it had begun, and cost nothing"


async def test_a_poison_job_that_is_always_claimed_ahead_dies_after_its_budget(fleet: Fleet, hf: Holdfast) -> None:
    jobs: list[tuple[str, Any, Any]] = [("work", {"seconds": 0.001}, {})] * 300
    refs = await hf.enqueue_many(jobs)
    poison = await hf.enqueue("suicide")  # two attempts
    for ref in (*refs, poison):
        fleet.history.enqueued(ref.id)

    async def dead() -> bool:
        if not fleet.living:
            fleet.spawn()
        backlog = await hf.client.backlog()
        return not any(backlog[part] for part in ("ready", "running", "due", "waiting"))

    await until(dead, seconds=90, what="all jobs end")
    await fleet.drained()
    await judge(hf, fleet.history)
    job = await hf.get(poison.id)
    assert (job.state, job.failures) == ("dead", 2)
    begun = [fact for fact in fleet.history.facts() if fact.kind == "started" and fact.job_id == poison.id]
    assert len(begun) == 2
    states = await asyncio.gather(*(hf.get(ref.id) for ref in refs))
    assert {found.state for found in states} == {"success"}


async def _begin(fleet: Fleet, count: int) -> None:
    """Wait until so many handlers have begun."""
    await until(lambda: fleet.history.count("started") >= count, seconds=120, what="some jobs have begun")


async def _idle(hf: Holdfast) -> bool:
    backlog = await hf.client.backlog()
    return not any(backlog[part] for part in ("ready", "running", "due", "waiting"))

"""kill -9 of workers whose jobs may fail only once: a dead job has begun."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from holdfast import Holdfast
from tests.faults.conftest import CHAOS_SECONDS, NewFleet
from tests.harness.deeds import Deeds
from tests.harness.fleet import Fleet, judge
from tests.harness.waiting import until

KILLS = max(2, int(CHAOS_SECONDS / 8))
JOBS = 1500 if CHAOS_SECONDS else 500
LAST_CHANCES = 300


@pytest.mark.usefixtures("warm_children")
@pytest.mark.parametrize(
    ("poison", "bystander", "beside", "behind"),
    [
        ("async", "async", 50, 50),
        ("async", "held", 20, 20),
        ("async", "process", 2, 2),
        ("thread", "thread", 50, 50),
        ("process", "process", 3, 5),
    ],
)
async def test_a_handler_that_kills_its_worker_buries_nobody_whose_handler_had_not_begun(
    *, new_fleet: NewFleet, database_url: str, hf: Holdfast, poison: str, bystander: str, beside: int, behind: int
) -> None:
    """All of them in one claim, with a slot each."""
    kind = f"bystander.{bystander}"
    fleet = new_fleet(database_url, "tests.faults.beginning", lanes=f"fast=0,general={beside + behind + 1}")
    once = {"max_attempts": 3 if bystander == "held" else 1}
    jobs: list[tuple[str, Any, Any]] = [(kind, {"seconds": 3.0}, once)] * (beside + behind)
    jobs.insert(beside, (f"poison.{poison}", {}, {"max_attempts": 1}))
    refs = await hf.enqueue_many(jobs)
    for ref in refs:
        fleet.history.enqueued(ref.id)
    await fleet.spawn().ended()
    begun = _begun(fleet)
    fleet.spawn()
    await until(lambda: _idle(hf), seconds=60, what="all jobs end, or are held")
    await fleet.drained()
    found, attempts = await judge(hf, fleet.history)
    charged = {(a.job_id, a.attempt) for a in attempts if a.outcome == "lost"}
    free = [a for a in attempts if a.error_type == "NeverBegan"]
    assert charged == begun
    assert free, "the poison came last: this proves nothing"
    buried = {job.id for job in found if job.state in ("dead", "error")}
    assert buried == {job_id for job_id, _ in begun}
    assert refs[beside].id in buried
    assert {job.state for job in found if job.id not in buried} == {"success"}


@pytest.mark.parametrize("seconds", [0.0, 0.001])
@pytest.mark.timeout(240 + 4 * CHAOS_SECONDS)
async def test_a_kill_buries_at_most_one_job_that_no_handler_saw(
    *, new_fleet: NewFleet, database_url: str, hf: Holdfast, chance: random.Random, deeds: Deeds, seconds: float
) -> None:
    """Very short jobs, claimed ahead. The one: recorded, and killed before its first statement."""
    fleet = new_fleet(database_url, "tests.faults.beginning")
    recorded = 0
    for _ in range(KILLS):
        job: tuple[str, Any, Any] = ("bystander.async", {"seconds": seconds}, {"max_attempts": 1})
        for ref in await hf.enqueue_many([job] * LAST_CHANCES):
            fleet.history.enqueued(ref.id)
        recorded += LAST_CHANCES
        worker = fleet.spawn()
        await _begin(fleet, recorded - int(LAST_CHANCES * chance.uniform(0.2, 0.8)))
        worker.kill()
        await worker.ended()
    fleet.spawn()
    await until(lambda: _idle(hf), seconds=180, what="all jobs end")
    await fleet.drained()
    found, attempts = await judge(hf, fleet.history)
    begun = _begun(fleet)
    free = [(a.job_id, a.attempt) for a in attempts if a.error_type == "NeverBegan"]
    charged = [(a.job_id, a.attempt) for a in attempts if a.outcome == "lost"]
    unseen = [entry for entry in charged if entry not in begun]
    deeds.say(
        f"{recorded} jobs, {KILLS} kills: {len(charged)} attempts lost, of which {len(unseen)} had not begun;"
        f" {len(free)} came back for nothing"
    )
    assert len(found) == recorded
    assert not [entry for entry in free if entry in begun], "it had begun, and cost nothing"
    assert len(unseen) <= KILLS


@pytest.mark.slow
@pytest.mark.timeout(240 + 4 * CHAOS_SECONDS)
async def test_jobs_that_never_began_are_not_charged(
    fleet: Fleet, hf: Holdfast, chance: random.Random, deeds: Deeds
) -> None:
    recorded = 0
    for _ in range(KILLS):
        jobs: list[tuple[str, Any, Any]] = [("work", {"seconds": 0.001}, {"max_attempts": 5})] * JOBS
        for ref in await hf.enqueue_many(jobs):
            fleet.history.enqueued(ref.id)
        recorded += JOBS
        worker = fleet.spawn()
        await _begin(fleet, recorded - int(JOBS * chance.uniform(0.2, 0.8)))
        worker.kill()
        await worker.ended()
    fleet.spawn()
    await until(lambda: _idle(hf), seconds=180, what="all jobs end")
    await fleet.drained()
    jobs_found, attempts = await judge(hf, fleet.history)
    begun = _begun(fleet)
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


def _begun(fleet: Fleet) -> set[tuple[Any, Any]]:
    """(job, attempt) of every handler that has begun."""
    return {(fact.job_id, fact.attempt) for fact in fleet.history.facts() if fact.kind == "started"}


async def _begin(fleet: Fleet, count: int) -> None:
    """Wait until this many handlers have begun."""
    await until(lambda: fleet.history.count("started") >= count, seconds=120, what="some jobs have begun")


async def _idle(hf: Holdfast) -> bool:
    backlog = await hf.client.backlog()
    return not any(backlog[part] for part in ("ready", "running", "due", "waiting"))

"""Processes that stand still: a frozen worker, and a handler that lets nothing else run."""

from __future__ import annotations

import pytest

from holdfast import Holdfast, JobRef
from tests.faults.conftest import NewFleet
from tests.harness.fleet import Fleet, WorkerProcess, judge
from tests.harness.waiting import until


@pytest.mark.parametrize("target", [None, "a target"])
async def test_a_worker_frozen_past_its_lease_changes_nothing(fleet: Fleet, hf: Holdfast, target: str | None) -> None:
    frozen, job = await _frozen_in_the_middle(fleet, hf, target=target)
    assert (await hf.wait(job.id, timeout=60)).attempt == 2
    before = await _everything(hf, job)
    frozen.thaw()
    await until(lambda: frozen.lines("LeaseLost"), what="the frozen worker learns of it")
    frozen.drain()
    await frozen.ended()
    assert await _everything(hf, job) == before

    await fleet.drained()
    await judge(hf, fleet.history)


async def test_a_frozen_worker_that_wakes_while_another_runs_its_job_changes_nothing(
    fleet: Fleet, hf: Holdfast
) -> None:
    frozen, job = await _frozen_in_the_middle(fleet, hf, target=None, seconds=10.0)
    await until(lambda: len(_runs(fleet, job)) == 2, what="another runs it")
    frozen.thaw()
    await until(lambda: frozen.lines("LeaseLost"), what="the frozen worker learns of it")
    frozen.drain()
    await frozen.ended()
    running = await hf.get(job.id)
    assert (running.state, running.attempt) == ("running", 2)
    assert (await hf.wait(job.id, timeout=60)).result == {"attempt": 2}

    await fleet.drained()
    await judge(hf, fleet.history)


async def test_a_handler_with_a_target_does_not_go_on_when_its_worker_thaws(fleet: Fleet, hf: Holdfast) -> None:
    """Whatever it waited for is there at once: it is canceled before it hears of it."""
    frozen, job = await _frozen_in_the_middle(fleet, hf, target="a target", kind="steps")
    assert (await hf.wait(job.id, timeout=60)).attempt == 2
    steps = fleet.history.folder / f"steps {job.id} 1"
    before = steps.read_text()
    frozen.thaw()
    await until(lambda: "canceled" in steps.read_text(), what="it is canceled")
    assert steps.read_text() == before + "canceled\n"


async def test_a_handler_that_blocks_the_event_loop_for_three_leases_runs_once(
    new_fleet: NewFleet, database_url: str, hf: Holdfast
) -> None:
    fleet = new_fleet(database_url, lease_sec_default=1.5)
    fleet.spawn()
    fleet.spawn()
    await fleet.ready()
    jobs = []
    for busy in (False, True):
        job = await hf.enqueue("block", {"seconds": 4.6, "busy": busy}, target="a target")
        fleet.history.enqueued(job.id, target="a target")
        done = await hf.wait(job.id, timeout=60)
        assert (done.state, done.attempt, done.failures) == ("success", 1, 0)
        jobs.append(job)

    await fleet.drained()
    await judge(hf, fleet.history)
    assert [len(_runs(fleet, job)) for job in jobs] == [1, 1]


async def _frozen_in_the_middle(
    fleet: Fleet, hf: Holdfast, *, target: str | None, seconds: float = 3.0, kind: str = "work"
) -> tuple[WorkerProcess, JobRef]:
    """A worker that stands still in the middle of a job, and another that may take it over."""
    frozen = fleet.spawn()
    job = await hf.enqueue(kind, {"seconds": seconds}, target=target)
    fleet.history.enqueued(job.id, target=target)
    await until(lambda: _runs(fleet, job), what="the handler starts")
    frozen.freeze()
    fleet.spawn()
    return frozen, job


def _runs(fleet: Fleet, job: JobRef) -> list[int]:
    return [f.process for f in fleet.history.facts() if f.kind == "started" and f.job_id == job.id]


async def _everything(hf: Holdfast, job: JobRef) -> object:
    return await hf.get(job.id), await hf.attempts(job.id), await hf.history(job.id)

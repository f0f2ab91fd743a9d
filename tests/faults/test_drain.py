"""SIGTERM: running jobs finish, or are interrupted without costing them an attempt."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections import Counter
from uuid import UUID

import pytest

from holdfast import Conflict, Holdfast, JobRef
from holdfast.model.states import State
from tests.faults.conftest import CHAOS_SECONDS, NewFleet
from tests.harness.deeds import Deeds
from tests.harness.fleet import Fleet, judge
from tests.harness.waiting import until

#: Of one target. What stands in line for longer than the test runs would only be waited for at its end.
MOST_IN_LINE = 3
#: A handler this long is still at work when the grace of a drain is over.
LONG_SECONDS = 2.0
OPEN = [state for state in State if not state.terminal]
MESSAGE = "Job was interrupted by user"


async def test_sigterm_lets_running_jobs_finish_and_claims_no_more(fleet: Fleet, hf: Holdfast) -> None:
    worker = fleet.spawn()
    running = await _running(fleet, hf, "work", seconds=1.5)
    thread = await _running(fleet, hf, "threaded", seconds=1.5)
    worker.drain()
    await until(lambda: "worker drains" in worker.output.read_text(), what="it drains")
    later = await hf.enqueue("work")
    assert await worker.ended() == 0
    for job in (running, thread):
        done = await hf.get(job.id)
        assert (done.state, done.attempt) == ("success", 1)
    assert (await hf.get(later.id)).state == "queued"
    fleet.spawn()
    await hf.wait(later.id, timeout=60)
    await fleet.drained()
    await judge(hf, fleet.history)


@pytest.mark.parametrize("policy", ["pause", "requeue"])
async def test_after_the_grace_jobs_are_handed_back_and_no_attempt_is_burned(
    new_fleet: NewFleet, database_url: str, hf: Holdfast, policy: str
) -> None:
    fleet = new_fleet(database_url, shutdown_grace_period_seconds=0.3, drain_policy=policy)
    worker = fleet.spawn()
    plain = await _running(fleet, hf, "work", seconds=60)
    thread = await _running(fleet, hf, "threaded", seconds=60)
    aimed = await _running(fleet, hf, "work", seconds=60, target="a target")
    worker.drain()
    assert await worker.ended() == 0

    for job in (plain, thread):
        back = await hf.get(job.id)
        assert (back.state, back.failures, back.attempt) == ("queued", 0, 1)
        assert [a.outcome for a in await hf.attempts(job.id)] == ["released"]
    held = await hf.get(aimed.id)
    (attempt,) = await hf.attempts(aimed.id)
    assert held.failures == 0
    if policy == "requeue":
        assert (held.state, attempt.outcome) == ("queued", "released")
    else:
        assert (held.state, attempt.outcome) == ("paused", "paused")
        assert attempt.error_message == MESSAGE
        assert [(event.event, event.note) for event in await hf.history(aimed.id)] == [("paused", MESSAGE)]


async def test_a_second_sigterm_ends_the_grace(fleet: Fleet, hf: Holdfast) -> None:
    worker = fleet.spawn()
    job = await _running(fleet, hf, "work", seconds=60)
    worker.drain()
    await until(lambda: "worker drains" in worker.output.read_text(), what="it drains")
    assert worker.alive
    began = time.monotonic()
    worker.drain()
    assert await worker.ended() == 0
    assert time.monotonic() - began < 20
    back = await hf.get(job.id)
    assert (back.state, back.failures) == ("queued", 0)


async def test_leases_are_renewed_to_the_end_of_a_drain(fleet: Fleet, hf: Holdfast) -> None:
    """The grace is longer than the lease, and another worker waits for a lease to lapse."""
    worker = fleet.spawn()
    job = await _running(fleet, hf, "work", seconds=5)
    fleet.spawn()
    await fleet.ready()
    worker.drain()
    assert await worker.ended() == 0
    done = await hf.get(job.id)
    assert (done.state, done.attempt) == ("success", 1)


@pytest.mark.slow
@pytest.mark.timeout(240 + 2 * CHAOS_SECONDS)
async def test_a_rolling_restart_loses_nothing_and_only_what_was_killed_costs_an_attempt(
    new_fleet: NewFleet, database_url: str, hf: Holdfast, deeds: Deeds
) -> None:
    """Under load, each worker is replaced by a new one; every other one is killed instead of told."""
    fleet = new_fleet(database_url, shutdown_grace_period_seconds=0.2)
    policies = itertools.cycle(["pause", "requeue"])
    for _ in range(4):
        fleet.spawn(drain_policy=next(policies))
    await fleet.ready()

    told: set[int] = set()
    lengths: dict[UUID, float] = {}
    end = time.monotonic() + CHAOS_SECONDS
    rounds = itertools.count()
    while next(rounds) < 4 or time.monotonic() < end:
        fleet.spawn(drain_policy=next(policies))
        await fleet.ready()
        oldest = fleet.living[0]
        await until(lambda pid=oldest.pid: _kept_busy(hf, fleet, pid, lengths), what="it has something to do")  # type: ignore[misc]
        if len(told) * 2 < len(fleet.processes) - 4:
            oldest.drain()
            assert await oldest.ended() == 0
            told.add(oldest.pid)
        else:
            oldest.kill()
        await _resume_all(hf, fleet)

    await until(lambda: _nothing_left(hf, fleet), seconds=90, what="all jobs end")
    await fleet.drained()
    jobs, attempts = await judge(hf, fleet.history)
    assert {job.state for job in jobs} == {"success"}
    gone = [attempt for attempt in attempts if int(attempt.worker.rsplit(":", 2)[1]) in told]
    assert {attempt.outcome for attempt in gone} <= {"success", "released", "paused"}
    assert any(attempt.outcome != "success" for attempt in gone)
    outcomes = Counter(attempt.outcome for attempt in attempts)
    deeds.say(f"{len(told)} told to drain, {len(attempts)} attempts: {dict(outcomes)}")
    lost = Counter(attempt.job_id for attempt in attempts if attempt.outcome == "lost")
    assert lost
    for job in jobs:
        assert job.failures <= lost[job.id]


async def test_every_attempt_leaves_one_line_of_json(fleet: Fleet, hf: Holdfast) -> None:
    worker = fleet.spawn()
    job = await hf.enqueue("work", {"failing": 1, "seconds": 0.05}, correlation_id="a thread of work")
    await hf.wait(job.id, timeout=60)
    await fleet.drained()
    failed, succeeded = worker.lines("AttemptEnded")
    assert (failed["outcome"], failed["state"], failed["failures"]) == ("failed", "retry", 1)
    assert (failed["error_type"], failed["error"]) == ("RuntimeError", "as asked")
    assert (succeeded["outcome"], succeeded["state"], succeeded["failures"]) == ("success", "success", 1)
    for number, line in enumerate((failed, succeeded), start=1):
        assert line["job_id"] == str(job.id)
        assert line["attempt"] == number
        assert line["duration_seconds"] >= 0.05
        assert line["correlation_id"] == "a thread of work"


async def test_the_attempt_of_a_killed_worker_has_its_line_in_the_log_of_the_leader(fleet: Fleet, hf: Holdfast) -> None:
    one, other = fleet.spawn(), fleet.spawn()
    await fleet.ready()
    job = await hf.enqueue("work", {"seconds": 20.0}, correlation_id="a thread of work", max_attempts=1)

    def began() -> list[int]:
        return [fact.process for fact in fleet.history.facts() if fact.kind == "started"]

    (pid,) = await until(began, what="its handler runs")
    killed, leader = (one, other) if one.pid == pid else (other, one)
    worker = (await hf.get(job.id)).lease_owner
    killed.kill()
    (lost,) = await until(lambda: leader.lines("AttemptEnded"), what="the leader tells of it")
    assert (lost["job_id"], lost["attempt"], lost["type"]) == (str(job.id), 1, "work")
    assert (lost["outcome"], lost["state"], lost["failures"]) == ("lost", "dead", 1)
    assert (lost["correlation_id"], lost["worker"]) == ("a thread of work", worker)
    assert lost["duration_seconds"] > 0
    assert lost["error"]


async def _kept_busy(hf: Holdfast, fleet: Fleet, pid: int, lengths: dict[UUID, float]) -> bool:
    """Whether a handler runs in this process that outlasts its grace; all have enough to do, no line grows long."""
    lines = Counter(job.target for job in await hf.find(states=OPEN, limit=1000))
    if lines[None] < 12:
        for number, seconds in enumerate((2.0, 0.02, 0.5, 1.0, 1.5, 0.0) * 4):
            target = f"target {number % 7}" if number % 2 else None
            if target is not None and lines[target] >= MOST_IN_LINE:
                continue
            lines[target] += 1
            job = await hf.enqueue("threaded" if number % 3 else "work", {"seconds": seconds}, target=target)
            lengths[job.id] = 0.0 if number % 3 else seconds  # a thread goes on to its end
            fleet.history.enqueued(job.id, target=target)
    facts = [fact for fact in fleet.history.facts() if fact.process == pid]
    ended = {(fact.job_id, fact.attempt) for fact in facts if fact.kind == "ended"}
    long = {job_id for job_id, seconds in lengths.items() if seconds >= LONG_SECONDS}
    return any(
        fact.kind == "started" and fact.job_id in long and (fact.job_id, fact.attempt) not in ended for fact in facts
    )


async def _resume_all(hf: Holdfast, fleet: Fleet) -> None:
    for job in await hf.find(states=["paused"], limit=1000):
        # One that was asked for before may have been resumed between the list and this.
        with contextlib.suppress(Conflict):
            await hf.resume(job.id)
            fleet.history.note("resumed", job_id=job.id)


async def _nothing_left(hf: Holdfast, fleet: Fleet) -> bool:
    await _resume_all(hf, fleet)
    backlog = await hf.client.backlog()
    moving = any(backlog[part] for part in ("ready", "running", "due", "waiting"))
    return not moving and not await hf.find(states=["paused"], limit=1)


async def _running(fleet: Fleet, hf: Holdfast, kind: str, *, seconds: float, target: str | None = None) -> JobRef:
    """A job whose handler has begun."""
    job = await hf.enqueue(kind, {"seconds": seconds}, target=target)
    fleet.history.enqueued(job.id, target=target)

    def begun() -> bool:
        return any(fact.kind == "started" and fact.job_id == job.id for fact in fleet.history.facts())

    await until(begun, what="the handler begins")
    return job

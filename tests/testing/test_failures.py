"""Failures are made by what makes them in production, and the engine does with them what it always does."""

from __future__ import annotations

import pytest

from holdfast import DatabaseUnavailable, Fatal, Hold, InvalidInput
from holdfast.testing.jobs import Jobs
from tests.testing.app import hf, ran, send


async def test_the_next_runs_raise(jobs: Jobs) -> None:
    jobs.fail_next(send, ConnectionError("refused"), times=2)
    ref = await send.enqueue(to="ada")
    for _ in range(2):
        (run,) = await jobs.run_due()
        assert (run.outcome, run.state, repr(run.error)) == ("failed", "retry", "ConnectionError('refused')")
        jobs.advance(60)
    assert [run.state for run in await jobs.run_due()] == ["success"]
    assert [attempt.error_type for attempt in await hf.attempts(ref.id)] == ["ConnectionError", "ConnectionError", None]
    assert ran == ["ada"]


async def test_a_failure_after_the_work_repeats_the_work(jobs: Jobs) -> None:
    jobs.fail_next(send, ConnectionError("broke off"), after=True)
    await send.enqueue(to="ada")
    assert [run.state for run in await jobs.run_due()] == ["retry"]
    jobs.advance(60)
    assert [run.state for run in await jobs.run_due()] == ["success"]
    assert ran == ["ada", "ada"]


@pytest.mark.parametrize(("error", "state"), [(Fatal("no"), "dead"), (Hold("look"), "error")])
async def test_signals_mean_what_they_mean(jobs: Jobs, error: Exception, state: str) -> None:
    jobs.fail_next("email.send", error)
    await send.enqueue(to="ada")
    assert [run.state for run in await jobs.run_due()] == [state]


async def test_the_next_run_takes_too_long(jobs: Jobs) -> None:
    jobs.time_out_next(send)
    ref = await send.enqueue(to="ada")
    assert [(run.outcome, run.state) for run in await jobs.run_due()] == [("timeout", "retry")]
    (attempt,) = await hf.attempts(ref.id)
    assert (attempt.outcome, attempt.error_message) == ("timeout", "the handler ran longer than 1200 s")


@pytest.mark.parametrize("after", [False, True])
async def test_a_worker_that_crashes_leaves_its_job_to_the_sweep(jobs: Jobs, after: bool) -> None:
    jobs.crash_next(send, after=after, times=3)
    ref = await send.enqueue(to="ada")
    for attempt in (1, 2, 3):
        (run,) = await jobs.run_due()
        assert (run.attempt, run.outcome, run.state) == (attempt, "crashed", "running")
        jobs.advance(31)
    assert await jobs.run_due() == []
    assert (await hf.get(ref.id)).state == "dead"
    assert ran == ["ada"] * 3 * after


async def test_a_lost_lease_drops_the_result(jobs: Jobs) -> None:
    jobs.lose_lease_next(send)
    ref = await send.enqueue(to="ada")
    first, second = await jobs.run_due()
    assert (first.outcome, first.state, second.attempt, second.state) == ("lease-lost", "queued", 2, "success")
    assert ran == ["ada", "ada"]
    assert [attempt.outcome for attempt in await hf.attempts(ref.id)] == ["lost", "success"]


async def test_only_types_that_exist_can_fail(jobs: Jobs) -> None:
    with pytest.raises(InvalidInput, match=r"no job type 'email.sent'"):
        jobs.fail_next("email.sent")


async def test_the_database_is_out_of_reach_for_a_while(jobs: Jobs) -> None:
    first = hf.sync.enqueue("email.send", {"to": "ada"})
    with jobs.database_down():
        with pytest.raises(DatabaseUnavailable):
            await send.enqueue(to="bob")
        with pytest.raises(DatabaseUnavailable):
            hf.sync.enqueue("email.send", {"to": "bob"})
        with pytest.raises(DatabaseUnavailable):
            await jobs.run_due()
        with pytest.raises(DatabaseUnavailable):
            async with hf:
                pass
    assert [run.job_id for run in await jobs.run_due()] == [first.id]
    assert hf.sync.get(first.id).state == "success"

"""Everything that the engine decides by time follows the time of the test."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from holdfast import InvalidInput
from holdfast.testing.jobs import Jobs
from tests.testing.app import hf, ran


async def test_frozen_time_stands_still_and_can_be_moved(jobs: Jobs) -> None:
    moment = datetime(2030, 2, 3, 4, 5, tzinfo=UTC)
    assert jobs.freeze(at=moment) == jobs.now() == moment
    assert jobs.advance(90) == moment + timedelta(seconds=90)
    assert jobs.advance(timedelta(days=400)) == moment + timedelta(days=400, seconds=90)
    ref = await hf.enqueue("email.send", {"to": "ada"}, delay=10)
    job = await hf.get(ref.id)
    assert job.created_at == jobs.now()
    assert job.run_at == jobs.now() + timedelta(seconds=10)


async def test_time_that_flows_can_be_moved_and_goes_on_from_where_it_stood(jobs: Jobs) -> None:
    real = datetime.now(UTC)
    assert timedelta(hours=1) <= jobs.advance(3600) - real < timedelta(hours=1, minutes=1)
    stood = jobs.freeze()
    assert jobs.now() == stood
    jobs.unfreeze()
    assert stood < jobs.now() < stood + timedelta(minutes=1)


async def test_time_starts_anew_with_every_test(jobs: Jobs) -> None:
    assert abs(jobs.now() - datetime.now(UTC)) < timedelta(minutes=1)
    jobs.advance(86400)
    jobs._sandbox.reset()
    assert abs(jobs.now() - datetime.now(UTC)) < timedelta(minutes=1)


def test_moments_have_a_zone_and_time_does_not_run_back(jobs: Jobs) -> None:
    with pytest.raises(InvalidInput, match="time zone"):
        jobs.freeze(at=datetime(2030, 1, 1))  # noqa: DTZ001 - what is refused here
    with pytest.raises(InvalidInput, match="only be moved forward"):
        jobs.advance(-1)


@pytest.mark.parametrize("frozen", [False, True])
async def test_a_scheduled_job_is_due_when_its_time_has_come(jobs: Jobs, frozen: bool) -> None:
    if frozen:
        jobs.freeze()
    await hf.enqueue("email.send", {"to": "ada"}, delay=3600)
    jobs.advance(3540)
    assert await jobs.run_due() == []
    jobs.advance(61)
    assert [run.result for run in await jobs.run_due()] == [{"sent_to": "ada"}]


async def test_retries_come_after_their_backoff_and_end_dead(jobs: Jobs) -> None:
    jobs.freeze()
    ref = await hf.enqueue("email.send", {"to": "nobody"})
    for wait, state in ((10, "retry"), (20, "retry"), (0, "dead")):
        (run,) = await jobs.run_due()
        assert (run.outcome, run.state, str(run.error)) == ("failed", state, "no such address")
        assert await jobs.run_due() == []
        if wait:
            assert (await hf.get(ref.id)).run_at == jobs.now() + timedelta(seconds=wait)
            jobs.advance(wait - 1)
            assert await jobs.run_due() == []
            jobs.advance(1)
    assert ran == ["nobody"] * 3


async def test_snoozed_jobs_come_back(jobs: Jobs) -> None:
    jobs.freeze()
    await hf.enqueue("poll")
    for outcome in ("snoozed", "snoozed", "success"):
        assert [run.outcome for run in await jobs.run_due()] == [outcome]
        assert await jobs.run_due() == []
        jobs.advance(60)


async def test_a_job_that_waited_too_long_goes_first(jobs: Jobs) -> None:
    jobs.freeze()
    await hf.enqueue("email.send", {"to": "old"}, priority=500)
    jobs.advance(901)
    await hf.enqueue("email.send", {"to": "young"}, priority=1)
    await jobs.run_due()
    assert ran == ["old", "young"]


@pytest.mark.parametrize("moment", [None, datetime(2001, 1, 1, tzinfo=UTC), datetime(2101, 1, 1, tzinfo=UTC)])
async def test_a_lease_lapses_when_its_time_is_over(jobs: Jobs, moment: datetime | None) -> None:
    jobs.freeze(at=moment)
    jobs.crash_next("email.send")
    ref = await hf.enqueue("email.send", {"to": "ada"})
    (crashed,) = await jobs.run_due()
    assert (crashed.outcome, crashed.state, ran) == ("crashed", "running", [])
    jobs.advance(30)
    assert await jobs.run_due() == []
    jobs.advance(1)
    (run,) = await jobs.run_due()
    assert (run.attempt, run.state) == (2, "success")
    assert [attempt.outcome for attempt in await hf.attempts(ref.id)] == ["lost", "success"]


async def test_ended_jobs_are_deleted_after_their_retention(jobs: Jobs) -> None:
    jobs.freeze()
    await hf.enqueue("email.send", {"to": "ada"})
    await jobs.run_due()
    jobs.advance(timedelta(days=6))
    jobs.maintain()
    assert len(jobs.enqueued(ended=True)) == 1
    jobs.advance(timedelta(days=1, seconds=1))
    jobs.maintain()
    assert jobs.enqueued(ended=True) == []


async def test_a_real_worker_obeys_the_same_time(jobs: Jobs) -> None:
    jobs.freeze(at=datetime(2030, 1, 1, tzinfo=UTC))
    due = await hf.enqueue("email.send", {"to": "due"}, delay=60)
    await hf.enqueue("email.send", {"to": "later"}, delay=62)
    jobs.advance(61)
    jobs.maintain()
    await hf.run_worker(burst=True, poll_interval=0.05)
    assert ran == ["due"]
    assert (await hf.get(due.id)).finished_at == jobs.now()

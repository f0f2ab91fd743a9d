"""Asking for something about a job: cancel, pause, resume, retry, delete."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from uuid import uuid4

import pytest

from holdfast import AlreadyFinal, Conflict, Holdfast, JobRef, NotFound
from tests.harness.inprocess import reached, working
from tests.harness.waiting import until

VERBS = ["cancel", "pause", "resume", "retry", "delete"]


async def _later(hf: Holdfast) -> JobRef:
    return await hf.enqueue("greet", {"name": "Ada"}, delay=3600)


@pytest.mark.parametrize("verb", VERBS)
async def test_no_request_on_a_job_that_does_not_exist(hf: Holdfast, verb: str) -> None:
    ask: Callable[..., Awaitable[object]] = getattr(hf, verb)
    with pytest.raises(NotFound, match="there is no job"):
        await ask(uuid4())
    with pytest.raises(NotFound, match="'nonsense' is not a job id"):
        await ask("nonsense")


@pytest.mark.parametrize("verb", ["cancel", "pause", "resume"])
async def test_a_job_that_has_ended_cannot_be_changed(hf: Holdfast, verb: str) -> None:
    job = await hf.enqueue("greet", {"name": "Ada"})
    await hf.run_worker(burst=True)
    with pytest.raises(AlreadyFinal, match=f"job {job.id} has ended and can no longer be changed"):
        await getattr(hf, verb)(job.id)


async def test_resume_needs_something_to_resume(hf: Holdfast) -> None:
    job = await _later(hf)
    with pytest.raises(Conflict, match=r"does not allow this request \(resume\)"):
        await hf.resume(job.id)


async def test_a_waiting_job_is_canceled(hf: Holdfast) -> None:
    jobs = [await _later(hf), await hf.enqueue("unknown"), await hf.enqueue("unknown", hold=True)]
    async with working(hf):
        for job in jobs:
            await hf.cancel(str(job.id), by="ada", reason="no longer wanted")
            done = await hf.wait(job, timeout=30)
            assert (done.state, done.attempt) == ("canceled", 0)
            assert [(e.event, e.by, e.note) for e in await hf.history(job)] == [("canceled", "ada", "no longer wanted")]


async def test_a_waiting_job_is_paused_and_goes_on_where_it_was(hf: Holdfast) -> None:
    job = await _later(hf)
    async with working(hf):
        await hf.pause(job)
        await reached(hf, job, "paused")
        await hf.resume(job)
        resumed = await reached(hf, job, "scheduled")
        assert resumed.run_at - resumed.created_at > timedelta(minutes=59)


async def test_a_paused_job_blocks_its_target_until_it_is_canceled(hf: Holdfast) -> None:
    first = await hf.enqueue("greet", {"name": "first"}, target="a target")
    second = await hf.enqueue("greet", {"name": "second"}, target="a target")
    await hf.pause(first)
    async with working(hf, types=["fail"]):
        await reached(hf, first, "paused")
    async with working(hf):
        beside = await hf.enqueue("greet", {"name": "beside"})
        await hf.wait(beside, timeout=30)
        assert (await hf.get(second)).state == "queued"
        await hf.cancel(first)
        assert (await hf.wait(second, timeout=30)).state == "success"


async def test_retry_runs_a_waiting_job_now(hf: Holdfast) -> None:
    job = await _later(hf)
    async with working(hf):
        assert await hf.retry(job) == job.id
        assert (await hf.wait(job, timeout=30)).state == "success"


async def test_retry_of_an_ended_job_makes_a_new_one_that_points_to_it(hf: Holdfast) -> None:
    job = await hf.enqueue("fail", priority=7, idempotency_key="k", correlation_id="c", tenant="acme")
    await hf.run_worker(burst=True)
    again = await hf.retry(job, by="ada")
    assert again != job.id
    new = await hf.get(again)
    assert (new.retry_of, new.state, new.priority, new.correlation_id, new.tenant, new.created_by) == (
        job.id,
        "queued",
        7,
        "c",
        "acme",
        "ada",
    )
    assert new.idempotency_key is None
    assert (await hf.get(job)).state == "dead"


async def test_delete_cancels_and_erases(hf: Holdfast) -> None:
    waiting = await _later(hf)
    dead = await hf.enqueue("fail")
    async with working(hf):
        await hf.wait(dead, timeout=30)
        for job in (waiting, dead):
            await hf.delete(job, by="ada")

        async def erased(job: JobRef) -> bool:
            return "erased" in [event.event for event in await hf.history(job)]

        for job, state in ((waiting, "canceled"), (dead, "dead")):
            await until(partial(erased, job))
            gone = await hf.get(job)
            assert (gone.state, gone.payload, gone.last_error) == (state, {}, None)
    assert [attempt.error_message for attempt in await hf.attempts(dead)] == [None]


async def test_times_are_of_the_database(hf: Holdfast) -> None:
    job = await hf.get((await _later(hf)).id)
    assert abs(datetime.now(UTC) - job.created_at) < timedelta(seconds=60)
    assert job.run_at - job.created_at == timedelta(hours=1)

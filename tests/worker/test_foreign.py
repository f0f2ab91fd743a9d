"""Whatever foreign code raises, and whatever that does when it is asked what it is: every attempt is settled."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

from holdfast import Context, Holdfast
from holdfast.telemetry.events import AttemptEnded, WorkerChanged
from holdfast.testing.inprocess import reached, working
from tests.worker import errors
from tests.worker.children import opened


@pytest.fixture
async def hf(database_url: str) -> AsyncIterator[Holdfast]:
    """An app with handlers that raise in each executor, and a good one."""
    async with opened(database_url, errors.hf) as app:
        yield app


@pytest.mark.parametrize("executor", ["async", "thread", "process"])
async def test_an_error_that_cannot_be_told_is_settled_and_the_worker_lives(hf: Holdfast, executor: str) -> None:
    jobs = {way: await hf.enqueue(executor, {"way": way}) for way in errors.WAYS}
    quick = await hf.enqueue("quick")
    await asyncio.wait_for(hf.run_worker(burst=True, lanes="general=2"), 60)
    assert (await hf.get(quick.id)).state == "success"
    ends = {way: await hf.get(job.id) for way, job in jobs.items()}
    assert {way: end.state.value for way, end in ends.items()} == dict.fromkeys(errors.WAYS, "dead")
    assert all(end.last_error for end in ends.values())
    assert "cannot say what it is" in (ends["exits"].last_error or "")
    attempts = {way: (await hf.attempts(job.id))[-1] for way, job in jobs.items()}
    assert {attempt.outcome for attempt in attempts.values()} == {"failed"}
    assert "in a_" in (attempts["syntax"].traceback or "") or "in in_" in (attempts["syntax"].traceback or "")


@pytest.mark.parametrize("fault", [SystemExit(2), asyncio.CancelledError(), GeneratorExit(), ValueError("no")])
async def test_a_subscriber_that_raises_harms_nobody(hf: Holdfast, fault: BaseException) -> None:
    def fail(event: AttemptEnded) -> None:
        raise fault

    hf.on(AttemptEnded)(fail)
    jobs = [await hf.enqueue("quick") for _ in range(3)]
    await asyncio.wait_for(hf.run_worker(burst=True), 30)
    assert [(await hf.get(job.id)).state.value for job in jobs] == ["success"] * 3


async def test_a_log_line_that_cannot_be_formatted_costs_no_job(
    hf: Holdfast, caplog: pytest.LogCaptureFixture
) -> None:
    @hf.job("log", retry=errors.ONCE)
    async def log(ctx: Context) -> None:
        ctx.logger.info("%d items", "x")
        ctx.logger.info("%s and %s", 1)  # noqa: PLE1206
        ctx.logger.info("fine: %s", 7)

    job = await log.enqueue()
    with caplog.at_level(logging.INFO, "holdfast.job"):
        await hf.run_worker(burst=True)
    assert (await hf.get(job.id)).state == "success"
    (attempt,) = await hf.attempts(job.id)
    excerpt = attempt.log_excerpt or ""
    assert excerpt.count("cannot be formatted: TypeError") == 2
    assert "INFO fine: 7" in excerpt
    assert "fine: 7" in caplog.text


async def test_what_a_worker_holds_without_a_handler_is_found_and_told(hf: Holdfast) -> None:
    told: list[WorkerChanged] = []
    hf.on(WorkerChanged)(told.append)
    async with working(hf) as worker:
        await reached(hf, await hf.enqueue("quick"), "success")
        settlement: Any = worker._settlement
        add = settlement.add

        def lose(held: Any, outcome: Any) -> None:
            settlement.add = add

        settlement.add = lose
        job = await hf.enqueue("quick")
        await reached(hf, job, "success")
    assert [attempt.outcome for attempt in await hf.attempts(job.id)] == ["released", "success"]
    assert "found an attempt without a handler" in {event.change for event in told}

"""Looking at jobs, and waiting for them."""

from __future__ import annotations

import asyncio
import math
from uuid import uuid4

import pytest

from holdfast import Holdfast, InvalidInput, NotFound, WaitTimeout
from tests.harness.inprocess import working


async def test_get_takes_ids_of_any_form(hf: Holdfast) -> None:
    ref = await hf.enqueue("greet", {"name": "Ada"})
    job = await hf.get(ref.id)
    assert await hf.get(str(ref.id)) == await hf.get(ref) == await hf.get(job) == job
    with pytest.raises(NotFound, match="there is no job"):
        await hf.get(uuid4())
    with pytest.raises(NotFound, match="'nonsense' is not a job id"):
        await hf.get("nonsense")


async def test_find_filters_and_pages_from_the_newest(hf: Holdfast) -> None:
    refs = await hf.enqueue_many([("greet", {"name": str(n)}, {"tenant": "acme"}) for n in range(5)])
    other = await hf.enqueue("fail", target="t", correlation_id="c", delay=60)
    newest = [ref.id for ref in reversed(refs)]
    assert [job.id for job in await hf.find()] == [other.id, *newest]
    assert [job.id for job in await hf.find(tenant="acme", limit=2)] == newest[:2]
    assert [job.id for job in await hf.find(tenant="acme", before=newest[1])] == newest[2:]
    for choice in (
        {"types": ["fail"]},
        {"queues": ["default"]},
        {"states": ["scheduled"]},
        {"target": "t"},
        {"correlation_id": "c"},
    ):
        assert [job.id for job in await hf.find(**choice)] == [other.id]
    assert await hf.find(tenant="nobody") == []


async def test_requests_are_not_listed_among_the_jobs(hf: Holdfast) -> None:
    ref = await hf.enqueue("greet", {"name": "Ada"})
    await hf.cancel(ref)
    assert [job.id for job in await hf.find()] == [ref.id]


async def test_wait_answers_the_ended_job(hf: Holdfast) -> None:
    job = await hf.enqueue("greet", {"name": "Ada"})
    waiting = asyncio.create_task(hf.wait(job.id, timeout=30))
    async with working(hf):
        done = await waiting
    assert (done.state, done.result) == ("success", "hello Ada ")


async def test_wait_gives_up_in_time_and_says_how_far_the_job_is(hf: Holdfast) -> None:
    job = await hf.enqueue("greet", {"name": "Ada"})
    with pytest.raises(WaitTimeout, match=rf"job {job.id} is still queued after 0.1 s"):
        await hf.wait(job.id, timeout=0.1)
    with pytest.raises(NotFound):
        await hf.wait(uuid4(), timeout=0.1)
    for timeout in (math.nan, math.inf, 10**400):
        with pytest.raises(InvalidInput, match="timeout must be from 0 to"):
            await hf.wait(job.id, timeout=timeout)


async def test_backlog_counts_ready_running_due_waiting_and_dead_jobs(hf: Holdfast) -> None:
    await hf.enqueue_many([("greet", {"name": "Ada"})] * 3)
    await hf.enqueue("greet", {"name": "Ada"}, delay=60)
    await hf.enqueue("greet", {"name": "Ada"}, target="t")
    backlog = await hf.client.backlog()
    assert {part: backlog[part] for part in ("ready", "due", "waiting", "running")} == {
        "ready": 3,
        "due": 1,
        "waiting": 1,
        "running": 0,
    }


async def test_a_filter_that_nobody_knows_is_refused(hf: Holdfast) -> None:
    """Or a misspelt tenant would show the jobs of all."""
    with pytest.raises(InvalidInput, match="did you mean 'tenant'"):
        await hf.find(tenent="acme")  # type: ignore[call-arg]

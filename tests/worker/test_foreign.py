"""Whatever code around handlers raises, every attempt is settled: middleware, subscribers, lifespans, loggers."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from holdfast import Context, Holdfast, JobRef, Middleware, NewJob, RetryPolicy, SyncContext
from holdfast.telemetry.events import AttemptEnded, AttemptStarted, WorkerChanged
from tests.harness.inprocess import reached, working
from tests.worker import ways
from tests.worker.children import opened
from tests.worker.ways import lifespans
from tests.worker.ways.raising import ERRORS, FEW
from tests.worker.ways.running import in_a_loop_of_ours
from tests.worker.ways.table import EVERYWHERE

ONCE = RetryPolicy(max_attempts=1)
Next = Callable[[], Awaitable[Any]]


@pytest.fixture
async def hf(database_url: str) -> AsyncIterator[Holdfast]:
    """An app with handlers in each executor, and a good one."""
    async with opened(database_url, ways.hf) as app:
        yield app


class Rude(Middleware):
    """Does what a job's correlation id says: when, and what it raises."""

    def __init__(self, begun: asyncio.Event | None = None) -> None:
        self.begun = begun

    async def run(self, ctx: Context, call_next: Next) -> Any:
        when, _, name = ctx.correlation_id.partition(" ")
        match when:
            case "before":
                raise ERRORS[name]()
            case "after":
                await call_next()
                raise ERRORS[name]()
            case "instead":
                return object()
            case "twice":
                return [await call_next(), await call_next()]
            case "at-once":
                return await asyncio.gather(call_next(), call_next())
            case "left":
                self.task = asyncio.ensure_future(call_next())
                await asyncio.sleep(0)
                if self.begun is not None:
                    await self.begun.wait()
            case "never":
                pass
            case _:
                return await call_next()
        return None


#: The outcome of the attempt in each executor.
_MANNERS = {
    "instead": "failed",
    "twice": "success",
    "at-once": "failed",
    "left": "failed",
    "never": "success",
}


@pytest.mark.usefixtures("quiet", "warm_children")
@pytest.mark.parametrize("executor", EVERYWHERE)
async def test_middleware_that_misbehaves_harms_its_own_attempt_alone(hf: Holdfast, executor: str) -> None:
    innocent = f"{executor} innocent"
    expected = {f"{when} {name}": "failed" for name in FEW for when in ("before", "after")} | _MANNERS

    jobs = {how: await hf.enqueue(innocent, correlation_id=how) for how in expected}
    last = await hf.enqueue(innocent)
    await in_a_loop_of_ours(_burst(hf, lambda app: app.middleware.append(Rude())))
    ends = {how: (await hf.attempts(job.id))[-1].outcome for how, job in jobs.items()}
    assert {how: end for how, end in ends.items() if end != expected[how]} == {}
    assert (await hf.get(last)).state == "success"


@pytest.mark.parametrize("executor", ["async", "thread"])
async def test_a_handler_does_not_outlive_its_attempt_though_middleware_left_it(hf: Holdfast, executor: str) -> None:
    ends: list[str] = []
    begun, loop = asyncio.Event(), asyncio.get_running_loop()

    async def wait(ctx: Context) -> None:
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            ends.append("handler")

    def block(ctx: Context) -> None:
        loop.call_soon_threadsafe(begun.set)
        while not ctx.canceled:
            os.sched_yield()
        ends.append("handler")

    hf.job("wait", retry=ONCE)(wait if executor == "async" else block)
    hf.on(AttemptEnded)(lambda event: ends.append("attempt"))
    hf.middleware.append(Rude(begun))
    job = await hf.enqueue("wait", correlation_id="left")
    await asyncio.wait_for(hf.run_worker(burst=True, maintenance=False), 30)
    assert "while the handler was running" in ((await hf.get(job)).last_error or "")
    assert ends == ["handler", "attempt"]


async def test_what_a_thread_asks_of_the_event_loop_ends_only_its_own_job(hf: Holdfast) -> None:
    """In a program's own event loop, which does not go on after a SystemExit."""

    class Closed(Middleware):
        async def enqueue(self, jobs: list[NewJob], call_next: Any) -> list[JobRef]:
            raise SystemExit("closed")

    @hf.job("parent", retry=ONCE)
    def parent(ctx: SyncContext) -> None:
        ctx.enqueue("quick")

    job, last = await parent.enqueue(), await hf.enqueue("quick")
    hf.middleware.append(Closed())
    await asyncio.wait_for(hf.run_worker(burst=True, maintenance=False), 30)
    assert ((await hf.get(job)).state, (await hf.get(job)).last_error) == ("dead", "closed")
    assert (await hf.get(last)).state == "success"


@pytest.mark.usefixtures("quiet")
async def test_a_subscriber_that_raises_harms_nobody(hf: Holdfast) -> None:
    def fail(event: Any) -> None:
        raise ERRORS[event.correlation_id]()

    jobs = [await hf.enqueue("async innocent", correlation_id=name) for name in FEW]
    await in_a_loop_of_ours(_burst(hf, lambda app: app.on(AttemptStarted, AttemptEnded)(fail)))
    assert {(await hf.get(job)).state.value for job in jobs} == {"success"}


@pytest.mark.parametrize("when", ["enter", "leave"])
async def test_a_lifespan_that_fails_ends_the_worker_and_loses_nothing(
    hf: Holdfast, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    for name in lifespans.ENTERING if when == "enter" else lifespans.LEAVING:
        job = await hf.enqueue("quick")
        monkeypatch.setenv("LIFESPAN", f"{when} {name}")
        with pytest.raises(BaseException) as raised:  # noqa: PT011 - of every kind
            await in_a_loop_of_ours(_burst(hf, declared=lifespans.hf))
        assert not isinstance(raised.value, TimeoutError), name
        assert (await hf.get(job)).state.value == ("queued" if when == "enter" else "success"), name


@pytest.mark.parametrize("when", ["enter", "leave"])
async def test_a_lifespan_that_exits_does_so_where_the_worker_is_waited_for(
    hf: Holdfast, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """Not in a task of its own, where it would end the event loop of somebody's program there and then."""
    monkeypatch.setenv("LIFESPAN", f"{when} exit")
    with pytest.raises(SystemExit, match="enough"):
        await _burst(hf, declared=lifespans.hf)


@pytest.mark.usefixtures("warm_children")
@pytest.mark.parametrize("name", ["exit", "canceled", "no-yield"])
async def test_a_lifespan_that_fails_in_a_child_fails_the_job(
    hf: Holdfast, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("LIFESPAN_OF", str(os.getpid()))
    monkeypatch.setenv("LIFESPAN", f"child {name}")
    job = await hf.enqueue("child")
    await in_a_loop_of_ours(_burst(hf, declared=lifespans.hf))
    assert (await hf.get(job)).state == "dead"
    assert [attempt.outcome for attempt in await hf.attempts(job.id)] == ["failed"]


async def test_a_log_line_that_cannot_be_formatted_is_kept_as_far_as_it_goes(
    hf: Holdfast, caplog: pytest.LogCaptureFixture
) -> None:
    @hf.job("log", retry=ONCE)
    async def log(ctx: Context) -> None:
        ctx.logger.info("%d items", "x")
        ctx.logger.info("%s and %s", 1)  # noqa: PLE1206
        ctx.logger.info("fine: %s", 7)

    job = await log.enqueue()
    with caplog.at_level(logging.INFO, "holdfast.job"):
        await hf.run_worker(burst=True, maintenance=False)
    (attempt,) = await hf.attempts(job.id)
    excerpt = attempt.log_excerpt or ""
    assert excerpt.count("cannot be formatted: TypeError") == 2
    assert "INFO fine: 7" in excerpt
    assert "fine: 7" in caplog.text


async def test_an_attempt_without_a_handler_is_found_and_reported(hf: Holdfast) -> None:
    told: list[WorkerChanged] = []
    hf.on(WorkerChanged)(told.append)
    async with working(hf) as worker:
        await reached(hf, await hf.enqueue("quick"), "success")
        settlement: Any = worker._settlement
        add = settlement.add

        def lose(claimed: Any, outcome: Any) -> None:
            settlement.add = add

        settlement.add = lose
        job = await hf.enqueue("quick")
        await reached(hf, job, "success")
    assert [attempt.outcome for attempt in await hf.attempts(job.id)] == ["released", "success"]
    assert "found an attempt without a handler" in {event.change for event in told}


async def _burst(
    hf: Holdfast, prepare: Callable[[Holdfast], object] = lambda app: None, declared: Holdfast = ways.hf
) -> None:
    """Work off everything with the same job types, or with those of another app and its lifespan."""
    url = hf.config.database_url or ""
    async with asyncio.timeout(90), Holdfast(url, lifespan=lifespans.lifespan) as app:
        for job_type in declared.registry:
            app.registry.add(job_type)
        prepare(app)
        await app.run_worker(burst=True, maintenance=False, lanes={"general": 2})

"""Middleware stands around handlers and around enqueueing; events tell what happened."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import asyncpg
import pytest

from holdfast import (
    Context,
    Holdfast,
    HoldfastError,
    InvalidInput,
    JobRef,
    Middleware,
    NewJob,
    Retry,
    RetryPolicy,
    Snooze,
    SyncContext,
    events,
)
from tests.client.lent import lend
from tests.harness.inprocess import reached, working

request_id = contextvars.ContextVar("request_id", default="none")
Next = Callable[[], Awaitable[Any]]


class Traced(Middleware):
    """Says when it is entered and left."""

    def __init__(self, name: str, trace: list[str]) -> None:
        self._name, self._trace = name, trace

    async def enqueue(self, jobs: list[NewJob], call_next: Any) -> list[JobRef]:
        self._trace.append(f"{self._name} > {','.join(job.type for job in jobs)}")
        refs: list[JobRef] = await call_next(jobs)
        self._trace.append(f"{self._name} < {','.join(ref.outcome for ref in refs)}")
        return refs

    async def run(self, ctx: Context, call_next: Next) -> Any:
        self._trace.append(f"{self._name} > {ctx.type} {ctx.attempt}")
        try:
            return await call_next()
        finally:
            self._trace.append(f"{self._name} <")


class RequestId(Middleware):
    """Takes an id from the request that enqueues to the handler that runs."""

    async def enqueue(self, jobs: list[NewJob], call_next: Any) -> list[JobRef]:
        for job in jobs:
            job.options.setdefault("correlation_id", request_id.get())
        refs: list[JobRef] = await call_next(jobs)
        return refs

    async def run(self, ctx: Context, call_next: Next) -> Any:
        request_id.set(ctx.correlation_id)
        return await call_next()


class Patient(Middleware):
    """A service that is away costs a retry of its own kind."""

    async def run(self, ctx: Context, call_next: Next) -> Any:
        try:
            return await call_next()
        except ConnectionError as away:
            raise Retry(delay=0.01) from away


@pytest.fixture
async def hf(database_url: str) -> AsyncIterator[Holdfast]:
    async with Holdfast(database_url) as app:
        yield app


async def test_the_first_middleware_stands_outermost(hf: Holdfast) -> None:
    trace: list[str] = []
    hf.middleware += [Traced("a", trace), Traced("b", trace)]

    @hf.job("work")
    async def work(ctx: Context) -> str:
        trace.append("handler")
        return "done"

    await hf.enqueue_many([("work", {}), ("work", {})])
    assert trace == ["a > work,work", "b > work,work", "b < created,created", "a < created,created"]
    trace.clear()
    async with working(hf, lanes={"fast": 0, "general": 1}):
        await reached(hf, (await hf.find())[0], "success")
        await reached(hf, (await hf.find())[1], "success")
    assert trace == ["a > work 1", "b > work 1", "handler", "b <", "a <"] * 2


@pytest.mark.parametrize("executor", ["async", "thread"])
async def test_context_reaches_the_handler_from_the_request(hf: Holdfast, executor: str) -> None:
    hf.middleware.append(RequestId())
    seen: list[str] = []

    async def coroutine(ctx: Context) -> None:
        seen.append(request_id.get())

    def function(ctx: Context) -> None:
        seen.append(request_id.get())

    hf.job("work")(coroutine if executor == "async" else function)
    request_id.set("request 7")
    job = await hf.enqueue("work")
    async with working(hf):
        await hf.wait(job, timeout=30)
    assert (await hf.get(job)).correlation_id == "request 7"
    assert seen == ["request 7"]


async def test_an_error_can_be_turned_into_another(hf: Holdfast) -> None:
    hf.middleware.append(Patient())

    @hf.job("work", retry=RetryPolicy(base=3600))
    async def work(ctx: Context) -> int:
        if ctx.attempt == 1:
            raise ConnectionError("away")
        return ctx.attempt

    async with working(hf):
        assert (await hf.wait(await work.enqueue(), timeout=30)).result == 2


async def test_a_result_can_be_replaced(hf: Holdfast) -> None:
    class Twice(Middleware):
        async def run(self, ctx: Context, call_next: Next) -> Any:
            return 2 * await call_next()

    hf.middleware.append(Twice())

    @hf.job("work")
    def work(ctx: Context) -> int:
        return 21

    async with working(hf):
        assert (await hf.wait(await work.enqueue(), timeout=30)).result == 42


async def test_the_timeout_covers_middleware_of_a_coroutine(hf: Holdfast) -> None:
    class Slow(Middleware):
        async def run(self, ctx: Context, call_next: Next) -> Any:
            await asyncio.sleep(60)

    hf.middleware.append(Slow())

    @hf.job("work", timeout=0.1, retry=RetryPolicy(max_attempts=1))
    async def work(ctx: Context) -> None: ...

    async with working(hf):
        job = await reached(hf, await work.enqueue(), "dead")
    assert "longer than 0.1 s" in (job.last_error or "")


@pytest.mark.parametrize("place", ["before", "after"])
async def test_middleware_around_a_thread_is_timed_too(hf: Holdfast, place: str) -> None:
    class Slow(Middleware):
        async def run(self, ctx: Context, call_next: Next) -> Any:
            if place == "after":
                await call_next()
            await asyncio.sleep(60)

    hf.middleware.append(Slow())

    @hf.job("work", timeout=0.1, retry=RetryPolicy(max_attempts=1))
    def work(ctx: Context) -> None: ...

    async with working(hf):
        job = await reached(hf, await work.enqueue(), "dead")
    assert "longer than 0.1 s" in (job.last_error or "")


async def test_a_thread_may_take_its_whole_time_within_middleware(hf: Holdfast) -> None:
    class Idle(Middleware):
        async def run(self, ctx: Context, call_next: Next) -> Any:
            await asyncio.sleep(0.3)
            return await call_next()

    hf.middleware.append(Idle())

    @hf.job("work", timeout=0.5, retry=RetryPolicy(max_attempts=1))
    def work(ctx: Context) -> str:
        threading.Event().wait(0.4)
        return "done"

    async with working(hf):
        assert (await hf.wait(await work.enqueue(), timeout=30)).result == "done"


@pytest.mark.parametrize("how", ["task", "wrapped", "inner"])
@pytest.mark.parametrize("executor", ["async", "thread"])
async def test_a_handler_never_begins_after_its_attempt_has_ended(hf: Holdfast, executor: str, how: str) -> None:
    """Middleware starts it in a task, and ends before that task has had its first step."""
    begun, left = list[int](), list[asyncio.Future[Any]]()

    async def later(call_next: Next) -> Any:
        await asyncio.sleep(0.05)
        return await call_next()

    class Hasty(Middleware):
        async def run(self, ctx: Context, call_next: Next) -> Any:
            if ctx.attempt == 2:
                return await call_next()
            left.append(asyncio.ensure_future(later(call_next) if how == "wrapped" else call_next()))
            raise Snooze(0.01)

    class Slow(Middleware):
        async def run(self, ctx: Context, call_next: Next) -> Any:
            return await (later(call_next) if how == "inner" else call_next())

    hf.middleware += [Hasty(), Slow()]

    async def coroutine(ctx: Context) -> None:
        begun.append(ctx.attempt)

    def function(ctx: Context) -> None:
        begun.append(ctx.attempt)

    hf.job("work")(coroutine if executor == "async" else function)
    async with working(hf):
        job = await hf.wait(await hf.enqueue("work"), timeout=30)
        ends = await asyncio.wait_for(asyncio.gather(*left, return_exceptions=True), 10)
    assert (job.state, job.attempt, begun) == ("success", 2, [2])
    refused = HoldfastError if how == "wrapped" else asyncio.CancelledError
    assert all(isinstance(end, refused) for end in ends), ends


async def test_middleware_that_returns_before_the_handler_began_has_failed(hf: Holdfast) -> None:
    begun = list[int]()

    class Accepts(Middleware):
        async def run(self, ctx: Context, call_next: Next) -> Any:
            self.task = asyncio.ensure_future(call_next())
            return "accepted"

    hf.middleware.append(Accepts())

    @hf.job("work", retry=RetryPolicy(max_attempts=1))
    async def work(ctx: Context) -> None:
        begun.append(ctx.attempt)

    async with working(hf):
        job = await reached(hf, await work.enqueue(), "dead", "success")
    assert (job.state, begun) == ("dead", [])
    assert "while the handler was running" in (job.last_error or "")


@pytest.mark.parametrize("executor", ["async", "thread"])
async def test_middleware_cannot_make_a_timeout_free(hf: Holdfast, executor: str) -> None:
    class Snoozing(Middleware):
        async def run(self, ctx: Context, call_next: Next) -> Any:
            try:
                return await call_next()
            except BaseException as error:
                raise Snooze(0.01) from error

    hf.middleware.append(Snoozing())

    async def coroutine(ctx: Context) -> None:
        await asyncio.sleep(60)

    def function(ctx: SyncContext) -> None:
        while not ctx.canceled:
            threading.Event().wait(0.01)

    hf.job("work", timeout=0.1, retry=RetryPolicy(max_attempts=1))(coroutine if executor == "async" else function)
    async with working(hf):
        job = await reached(hf, await hf.enqueue("work"), "dead")
    assert (job.attempt, job.last_error) == (1, "the handler ran longer than 0.1 s")


async def test_an_enqueue_can_be_refused(hf: Holdfast) -> None:
    class Closed(Middleware):
        async def enqueue(self, jobs: list[NewJob], call_next: Any) -> list[JobRef]:
            raise InvalidInput("closed on Sundays")

    hf.middleware.append(Closed())
    with pytest.raises(InvalidInput, match="closed on Sundays"):
        await hf.enqueue("work")
    assert await hf.find() == []


@pytest.mark.parametrize("how", ["drops", "forgets"])
async def test_middleware_that_swallows_jobs_is_noticed(hf: Holdfast, how: str) -> None:
    class Thief(Middleware):
        async def enqueue(self, jobs: list[NewJob], call_next: Any) -> Any:
            if how == "drops":
                jobs.clear()
                return await call_next(jobs)
            await call_next(jobs)
            return None

    hf.middleware.append(Thief())
    with pytest.raises(HoldfastError, match="2 jobs were to be recorded, but middleware answered for 0"):
        await hf.enqueue_many([("work", {}), ("work", {})])


@pytest.mark.parametrize("kind", ["asyncpg", "psycopg"])
async def test_middleware_wraps_enqueueing_on_a_callers_connection_too(
    hf: Holdfast, database_url: str, kind: str
) -> None:
    trace: list[str] = []
    hf.middleware.append(Traced("a", trace))
    async with lend(kind, database_url) as lent:
        if kind == "psycopg":
            hf.sync.enqueue("work", conn=lent.conn)
        else:
            await hf.enqueue("work", conn=lent.conn)
        await lent.commit()
    assert trace == ["a > work", "a < created"]


def test_an_observer_names_its_events(hf: Holdfast) -> None:
    with pytest.raises(InvalidInput, match="name the events"):
        hf.on(lambda event: None)  # type: ignore[type-var, arg-type]


async def test_events_are_told_to_those_who_want_them(hf: Holdfast, conn: asyncpg.Connection) -> None:
    told: list[events.Event] = []

    @hf.on(events.JobEnqueued, events.AttemptStarted, events.AttemptEnded)
    def observe(event: events.Event) -> None:
        told.append(event)

    @hf.on(events.AttemptEnded)
    def failing(event: events.AttemptEnded) -> None:
        raise RuntimeError("an observer's own fault harms nobody")

    @hf.job("work")
    async def work(ctx: Context) -> None: ...

    async with working(hf):
        job = await work.enqueue()
        await hf.wait(job, timeout=30)
    recorded, started, ended = told
    assert isinstance(recorded, events.JobEnqueued)
    assert (recorded.job_id, recorded.type, recorded.state, recorded.outcome) == (job.id, "work", "queued", "created")
    assert isinstance(started, events.AttemptStarted)
    assert (started.job_id, started.attempt) == (job.id, 1)
    assert isinstance(ended, events.AttemptEnded)
    assert (ended.job_id, ended.state) == (job.id, "success")


class TriesAgain(Middleware):
    """Calls the handler until it succeeds."""

    async def run(self, ctx: Context, call_next: Next) -> Any:
        while True:
            try:
                return await call_next()
            except Exception:  # noqa: BLE001 - as such middleware does
                await asyncio.sleep(0.05)


@pytest.mark.parametrize("executor", ["async", "thread"])
@pytest.mark.parametrize("max_attempts", [1, 2])
async def test_middleware_that_tries_again_and_again_has_the_attempts_time(
    database_url: str, executor: str, max_attempts: int
) -> None:
    app = Holdfast(database_url, middleware=[TriesAgain()])
    options: dict[str, Any] = {"timeout": 0.6, "retry": RetryPolicy(max_attempts=max_attempts, base=0)}

    def fail() -> None:
        raise ConnectionError("not today")

    if executor == "async":

        @app.job("again", **options)
        async def again(ctx: Context) -> None:
            fail()

    else:

        @app.job("again", **options)
        def again_in_thread(ctx: SyncContext) -> None:
            fail()

    async with app, working(app):
        ref = await app.enqueue("again")
        assert (await reached(app, ref.id, "dead", seconds=20)).failures == max_attempts
        assert {attempt.outcome for attempt in await app.attempts(ref)} == {"timeout"}


async def test_middleware_that_tries_again_ends_with_a_cancel(database_url: str) -> None:
    app, called = Holdfast(database_url, middleware=[TriesAgain()]), asyncio.Event()
    loop = asyncio.get_running_loop()

    @app.job("again", timeout=60)
    def again(ctx: SyncContext) -> None:
        loop.call_soon_threadsafe(called.set)
        raise ConnectionError("not today")

    async with app, working(app):
        ref = await again.enqueue()
        await called.wait()
        await app.cancel(ref)
        await reached(app, ref.id, "canceled", seconds=20)


async def test_middleware_that_forgets_to_await_the_handler_is_a_failure(database_url: str) -> None:
    calls: list[Any] = []

    class Forgets(Middleware):
        async def run(self, ctx: Context, call_next: Next) -> Any:
            calls.append(call_next())

    app = Holdfast(database_url, middleware=[Forgets()])

    @app.job("work", retry=RetryPolicy(max_attempts=1))
    async def work(ctx: Context) -> None: ...

    async with app, working(app):
        ref = await work.enqueue()
        assert "without awaiting it" in str((await reached(app, ref.id, "dead", seconds=20)).last_error)
    for call in calls:
        call.close()  # Python would warn that nobody has awaited it

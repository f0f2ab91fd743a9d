"""Due jobs run in the test itself, in order, to the end, and nothing else does."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg
import pytest

from holdfast import Conflict, Context, Holdfast, HoldfastError, InvalidInput, Middleware, Retry, events
from holdfast.testing import JobFailed, Jobs, running
from holdfast.testing.kit import Sandboxes, jobs_of
from tests.testing.app import for_ever, hf, mailers, ran, send


async def test_jobs_run_by_priority_and_then_by_age(jobs: Jobs) -> None:
    for to, priority in (("c", 100), ("d", 100), ("a", 1), ("e", 200), ("b", 1)):
        await send.options(priority=priority, queue="mail" if to == "d" else "default").enqueue(to=to)
    runs = await jobs.run_due()
    assert ran == ["a", "b", "c", "d", "e"]
    assert [(run.type, run.attempt, run.outcome, run.state) for run in runs] == [
        ("email.send", 1, "success", "success")
    ] * 5


async def test_what_is_due_later_by_priority_but_now_by_time_goes_first(jobs: Jobs) -> None:
    jobs.freeze()
    await send.options(delay=60, priority=1).enqueue(to="scheduled")
    await send.enqueue(to="queued")
    jobs.advance(60)
    await jobs.run_due()
    assert ran == ["scheduled", "queued"]


async def test_what_jobs_enqueue_runs_too(jobs: Jobs) -> None:
    await hf.enqueue("newsletter", {"to": ["ada", "bob"]})
    runs = await jobs.run_due()
    assert [run.type for run in runs] == ["newsletter", "email.send", "email.send"]
    assert runs[0].result == 2
    assert ran == ["newsletter", "ada", "bob"]


def test_a_test_without_event_loop_runs_the_same(jobs: Jobs) -> None:
    hf.sync.enqueue("newsletter", {"to": ["ada"]})
    assert [run.outcome for run in jobs.sync.run_due()] == ["success", "success"]
    assert ran == ["newsletter", "ada"]


async def test_handlers_run_in_the_loop_of_the_test(jobs: Jobs, holdfast_sandboxes: Sandboxes) -> None:
    app = Holdfast()
    done = asyncio.Event()

    @app.job("tell")
    async def tell(ctx: Context) -> None:
        done.set()

    with jobs_of(app, holdfast_sandboxes.of(app)) as others:
        await tell.enqueue()
        waiting = asyncio.create_task(done.wait())
        await others.run_due()
        assert await waiting


async def test_types_queues_and_limit_choose(jobs: Jobs) -> None:
    await hf.enqueue("newsletter", {"to": ["ada"]})
    await send.enqueue(to="bob")
    assert [run.type for run in await jobs.run_due(types=[send])] == ["email.send"]
    assert await jobs.run_due(queues=["nowhere"]) == []
    assert [run.type for run in await jobs.run_due(queues=["bulk"])] == ["newsletter"]
    await send.enqueue(to="eve")
    assert len(await jobs.run_due(limit=1)) == 1
    assert ran == ["bob", "newsletter", "ada"]
    with pytest.raises(InvalidInput, match=r"no job type 'email.sent'; it has email.send"):
        await jobs.run_due(types=["email.sent"])


async def test_the_lifespan_stands_around_the_handlers(jobs: Jobs) -> None:
    await send.enqueue(to="ada")
    await send.enqueue(to="bob")
    await jobs.run_due()
    (mailer,) = mailers
    assert (mailer.sent, mailer.closed) == (["ada", "bob"], True)


async def test_an_error_is_recorded_and_raised_on_request(jobs: Jobs) -> None:
    first = await send.enqueue(to="nobody")
    (run,) = await jobs.run_due()
    assert (run.outcome, run.state, run.error_message) == ("failed", "retry", "no such address")
    jobs.advance(10)
    with pytest.raises(ValueError, match="no such address"):
        await jobs.run_due(raise_errors=True)
    assert (await hf.get(first.id)).failures == 2


async def test_an_error_without_its_exception_is_raised_in_words(jobs: Jobs) -> None:
    await hf.enqueue("slow")
    with pytest.raises(JobFailed, match=r"slow: Timeout: the handler ran longer than 0.05 s"):
        await jobs.run_due(raise_errors=True)


async def test_requests_are_executed(jobs: Jobs) -> None:
    canceled, paused, resumed = [await send.enqueue(to=to) for to in ("a", "b", "c")]
    await hf.cancel(canceled.id)
    await hf.pause(paused.id)
    await hf.pause(resumed.id)
    assert await jobs.run_due() == []
    await hf.resume(resumed.id)
    assert [run.job_id for run in await jobs.run_due()] == [resumed.id]
    assert (await hf.get(canceled.id)).state == "canceled"
    assert (await hf.get(paused.id)).state == "paused"


async def test_a_running_handler_is_canceled(jobs: Jobs) -> None:
    ref = await for_ever.enqueue()

    async def cancel_once_it_runs() -> None:
        while not ran:
            await asyncio.sleep(0)
        await hf.cancel(ref.id)

    runs, _ = await asyncio.gather(jobs.run_due(), cancel_once_it_runs())
    assert [(run.outcome, run.state) for run in runs] == [("canceled", "canceled")]


async def test_jobs_with_a_target_run_in_order_of_release(jobs: Jobs) -> None:
    await send.options(target="ada", priority=500).enqueue(to="first")
    await send.options(target="ada", priority=1).enqueue(to="second")
    await jobs.run_due()
    assert ran == ["first", "second"]


async def test_one_job_can_be_run_alone(jobs: Jobs) -> None:
    await send.enqueue(to="first")
    second = await send.enqueue(to="second")
    run = await jobs.run(second)
    assert (run.state, ran) == ("success", ["second"])
    with pytest.raises(Conflict, match="is success and cannot be run now"):
        await jobs.run(second.id)


async def test_jobs_that_never_end_are_noticed(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "MOST_RUNS", 20)
    await hf.enqueue("again")
    with pytest.raises(HoldfastError, match="does 'again' never end"):
        await jobs.run_due()


async def test_a_retry_at_once_is_run_at_once(jobs: Jobs) -> None:
    jobs.fail_next(send, Retry(delay=0))
    await send.enqueue(to="ada")
    assert [run.outcome for run in await jobs.run_due()] == ["failed", "success"]


async def test_the_app_hears_of_what_happens(jobs: Jobs) -> None:
    heard: list[events.AttemptEnded] = []
    hf.events.subscribe(heard.append, events.AttemptEnded)
    ref = await send.enqueue(to="ada")
    await jobs.run_due()
    assert [(event.job_id, event.state) for event in heard] == [(ref.id, "success")]
    hf.events._subscribers.pop()


async def test_a_handler_may_complete_its_job_in_its_own_transaction(jobs: Jobs, holdfast_sandboxes: Sandboxes) -> None:
    app = Holdfast()

    @app.job("book")
    async def book(ctx: Context, fail: bool) -> None:
        async with ctx.transaction() as conn:
            await conn.execute("create table if not exists public.booked as select 1")
            if fail:
                raise ZeroDivisionError

    with jobs_of(app, holdfast_sandboxes.of(app)) as others:
        conn = await asyncpg.connect(others.database_url)
        try:
            for fail, outcome, exists in ((True, "failed", False), (False, "success", True)):
                await book.enqueue(fail=fail)
                assert [run.outcome for run in await others.run_due()] == [outcome]
                assert await conn.fetchval("select to_regclass('public.booked') is not null") is exists
        finally:
            await conn.execute("drop table public.booked")
            await conn.close()


async def test_a_handler_reports_and_goes_on_from_its_cursor(jobs: Jobs) -> None:
    job = await hf.enqueue("crawl")
    await jobs.run_due()
    jobs.advance(61)
    await jobs.run_due()
    done = await hf.get(job)
    assert (done.result, done.cursor, done.result_count) == ([1], [2], 2)


async def test_middleware_stands_around_the_handlers(jobs: Jobs) -> None:
    class Seen(Middleware):
        async def run(self, ctx: Context, call_next: Callable[[], Awaitable[Any]]) -> Any:
            ran.append(f"before {ctx.type}")
            return await call_next()

    hf.middleware.append(Seen())
    await send.enqueue(to="ada")
    await jobs.run_due()
    assert ran == ["before email.send", "ada"]


def test_handlers_in_processes_of_their_own_run_too(jobs: Jobs) -> None:
    hf.sync.enqueue("sum", {"numbers": [1, 2, 3]})
    assert [run.result for run in jobs.sync.run_due()] == [6]

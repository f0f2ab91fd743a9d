"""In inline mode `enqueue` returns when the job has run; the engine knows nothing of it."""

from __future__ import annotations

import asyncpg
import psycopg
import pytest

from holdfast import Context, Holdfast, Retry, RetryPolicy
from holdfast.model.job import HandlerFacts
from holdfast.testing.jobs import Jobs
from holdfast.testing.kit import Sandboxes, jobs_of
from tests.contracts.test_options import SAMPLES
from tests.testing.app import hf, mailers, newsletter, ran, send


async def test_a_job_has_run_when_enqueue_returns(jobs: Jobs) -> None:
    with jobs.inline():
        ref = await send.enqueue(to="ada")
        job = await hf.get(ref.id)
        assert (job.state, job.result, job.attempt) == ("success", {"sent_to": "ada"}, 1)
    await send.enqueue(to="bob")
    assert ran == ["ada"]


def test_a_test_without_event_loop_has_it_too(jobs: Jobs) -> None:
    with jobs.inline():
        ref = hf.sync.enqueue("email.send", {"to": "ada"})
    assert hf.sync.get(ref.id).state == "success"


@pytest.mark.parametrize("blocking", [False, True])
async def test_what_jobs_enqueue_runs_within_them(jobs: Jobs, blocking: bool) -> None:
    with jobs.inline():
        if blocking:
            hf.sync.enqueue("newsletter", {"to": ["ada", "bob"]})
        else:
            await newsletter.enqueue(to=["ada", "bob"])
    assert ran == ["newsletter", "ada", "bob"]
    assert len(jobs.enqueued(ended=True, state="success")) == 3
    assert len(mailers) == 1


async def test_handlers_know_what_a_worker_would_tell_them(jobs: Jobs, holdfast_sandboxes: Sandboxes) -> None:
    app = Holdfast()

    @app.job("tell", retry=RetryPolicy(max_attempts=7))
    async def tell(ctx: Context) -> dict[str, object]:
        if ctx.failures == 0:
            raise Retry(delay=0)
        return {name: getattr(ctx, name) for name in HandlerFacts._fields}

    given = {name: value for name, value in SAMPLES.items() if name in HandlerFacts._fields}
    with jobs_of(app, holdfast_sandboxes.of(app)) as others:
        with others.inline():
            ref = await tell.options(**given).enqueue()
        await others.run(ref)
        assert (await app.get(ref)).result == {**given, "failures": 1, "cursor": None}


async def test_many_run_in_their_order(jobs: Jobs) -> None:
    with jobs.inline():
        await hf.enqueue_many([("email.send", {"to": to}) for to in "cab"])
    assert ran == ["c", "a", "b"]


async def test_an_error_is_recorded_and_reaches_the_caller_on_request(jobs: Jobs) -> None:
    with jobs.inline():
        ref = await send.enqueue(to="nobody")
    assert (await hf.get(ref.id)).state == "retry"
    with jobs.inline(raise_errors=True), pytest.raises(ValueError, match="no such address"):
        await send.enqueue(to="nobody")
    jobs.assert_enqueued(send, state="retry", count=2)


async def test_what_is_not_due_waits(jobs: Jobs) -> None:
    with jobs.inline():
        await send.options(delay=60).enqueue(to="scheduled")
        await send.options(hold=True).enqueue(to="held")
        await hf.enqueue("a type of others")
        await send.options(target="t").enqueue(to="nobody")
        await send.options(target="t").enqueue(to="behind")
    assert ran == ["nobody"]
    jobs.advance(60)
    assert [run.state for run in await jobs.run_due()] == ["success", "retry"]


async def test_a_transaction_of_the_caller_is_waited_for(jobs: Jobs) -> None:
    conn = await asyncpg.connect(jobs.database_url)
    try:
        with jobs.inline():
            async with conn.transaction():
                await hf.enqueue("email.send", {"to": "asyncpg"}, conn=conn)
                assert ran == []
            with psycopg.connect(jobs.database_url) as blocking:
                hf.sync.enqueue("email.send", {"to": "psycopg"}, conn=blocking)
                assert ran == []
            undone = conn.transaction()
            await undone.start()
            await hf.enqueue("email.send", {"to": "rolled back"}, conn=conn)
            await undone.rollback()
    finally:
        await conn.close()
    await jobs.run_due()
    assert ran == ["asyncpg", "psycopg"]


async def test_planned_failures_happen_inline_as_well(jobs: Jobs) -> None:
    jobs.fail_next(send, ConnectionError("refused"))
    with jobs.inline(raise_errors=True), pytest.raises(ConnectionError):
        await send.enqueue(to="ada")

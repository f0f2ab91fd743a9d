"""What a handler does, and what becomes of its job."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import asyncpg
import pytest

from holdfast import CircuitOpen, Context, Fatal, Hold, Holdfast, Job, Retry, RetryPolicy, Snooze
from holdfast.worker.claimed import Claimed
from holdfast.worker.verdicts import Verdicts
from tests.harness.inprocess import reached, working

SOON = RetryPolicy(base=0.01, factor=1.0, max_attempts=3)


@dataclass
class Total:
    amount: int
    at: datetime


async def _outcomes(hf: Holdfast, job: Job) -> list[str]:
    return [attempt.outcome for attempt in await hf.attempts(job.id)]


async def test_what_the_handler_returns_is_the_result(hf: Holdfast) -> None:
    @hf.job("add")
    async def add(ctx: Context, left: int, right: int = 1) -> Total:
        return Total(left + right, datetime(2030, 1, 1, tzinfo=UTC))

    job = await add.enqueue(4)
    await hf.run_worker(burst=True)
    done = await hf.get(job.id)
    assert (done.state, done.status, done.attempt) == ("success", "COMPLETED", 1)
    assert done.result == {"amount": 5, "at": "2030-01-01T00:00:00Z"}
    assert done.finished_at is not None
    assert done.started_at is not None


@pytest.mark.parametrize("value", [None, 0, False, "", [], {}, "ümlaut ✓", [None], 0.5])
async def test_any_json_value_is_a_result(hf: Holdfast, value: Any) -> None:
    @hf.job("give")
    async def give(ctx: Context) -> Any:
        return value

    job = await give.enqueue()
    await hf.run_worker(burst=True)
    assert (await hf.get(job.id)).result == value


@pytest.mark.parametrize("value", ["\\u0000", "\\\\u0000", "C:\\u0000 and more", "7" * 5000, 10**4200], ids=range(5))
async def test_what_only_looks_like_something_else_is_stored_as_it_is(hf: Holdfast, value: Any) -> None:
    @hf.job("give")
    async def give(ctx: Context, same: Any) -> Any:
        return value

    job = await give.enqueue(value)
    await hf.run_worker(burst=True)
    done = await hf.get(job.id)
    assert (done.state, done.result, done.payload) == ("success", value, {"same": value})


@pytest.mark.parametrize(
    "value",
    [object(), "\x00", "\\\x00", "\ud800", 10**5000, [{"deep": -(10**4300)}], math.nan, [{"deep": -math.inf}]],
    ids=range(8),
)
async def test_a_result_that_cannot_be_stored_is_fatal_and_says_so(hf: Holdfast, value: Any) -> None:
    @hf.job("give", retry=SOON)
    async def give(ctx: Context) -> Any:
        return value

    job = await give.enqueue()
    await hf.run_worker(burst=True)
    dead = await hf.get(job.id)
    assert (dead.state, dead.attempt) == ("dead", 1)
    assert "the result" in (dead.last_error or "")


async def test_a_payload_that_no_longer_fits_waits_for_a_person_and_says_so(hf: Holdfast) -> None:
    job = await hf.enqueue("greet", {"name": "Ada"})

    @hf.job("greet", retry=SOON)
    async def greet(ctx: Context, person: str) -> None:
        raise AssertionError("must not run")

    await hf.run_worker(burst=True)
    held = await hf.get(job.id)
    assert (held.state, held.attempt) == ("error", 1)
    assert "the stored payload does not fit the handler of greet: person: Field required" in (held.last_error or "")


async def test_an_exception_is_retried_until_the_budget_is_used_up(hf: Holdfast) -> None:
    @hf.job("fail", retry=SOON)
    async def fail(ctx: Context) -> None:
        raise ValueError(f"attempt {ctx.attempt}")

    job = await fail.enqueue()
    await hf.run_worker(burst=True)
    dead = await hf.get(job.id)
    assert (dead.state, dead.status, dead.failures, dead.last_error) == ("dead", "FAILED", 3, "attempt 3")
    attempts = await hf.attempts(job.id)
    assert [(a.attempt, a.outcome, a.error_type) for a in attempts] == [
        (number, "failed", "ValueError") for number in (1, 2, 3)
    ]
    assert "in fail" in (attempts[0].traceback or "")


async def test_retries_wait_for_their_backoff(hf: Holdfast) -> None:
    @hf.job("fail", retry=RetryPolicy(base=50, jitter=0))
    async def fail(ctx: Context) -> None:
        raise ValueError

    job = await fail.enqueue()
    async with working(hf):
        waiting = await reached(hf, job, "retry")
    assert waiting.run_at - waiting.updated_at == timedelta(seconds=50)


async def test_retry_names_its_own_delay(hf: Holdfast) -> None:
    @hf.job("fail")
    async def fail(ctx: Context) -> None:
        raise Retry("not yet", delay=timedelta(hours=2))

    job = await fail.enqueue()
    async with working(hf):
        waiting = await reached(hf, job, "retry")
    assert waiting.run_at - waiting.updated_at == timedelta(hours=2)
    assert (waiting.failures, waiting.last_error) == (1, "not yet")


async def test_fatal_is_dead_at_once(hf: Holdfast) -> None:
    @hf.job("fail", retry=SOON)
    async def fail(ctx: Context) -> None:
        raise Fatal("no such customer")

    job = await fail.enqueue()
    await hf.run_worker(burst=True)
    dead = await hf.get(job.id)
    assert (dead.state, dead.attempt, dead.last_error) == ("dead", 1, "no such customer")


async def test_snooze_costs_no_attempt(hf: Holdfast) -> None:
    @hf.job("wait", retry=RetryPolicy(max_attempts=1))
    async def wait(ctx: Context) -> int:
        if ctx.attempt < 4:
            raise Snooze(0.0 if ctx.attempt == 1 else 0.05)
        return ctx.attempt

    job = await wait.enqueue()
    async with working(hf):
        done = await hf.wait(job.id, timeout=30)
    assert (done.state, done.result, done.failures) == ("success", 4, 0)
    assert await _outcomes(hf, done) == ["snoozed", "snoozed", "snoozed", "success"]


@pytest.mark.parametrize("error", [Snooze(0), Snooze(-1), Snooze(0.05), CircuitOpen("mail"), Snooze(0.2)])
def test_short_snoozes_become_longer_so_that_no_job_spins(error: Snooze) -> None:
    def delay(attempt: int, failures: int = 0) -> float | None:
        claim = SimpleNamespace(attempt=attempt, failures=failures)
        claimed = SimpleNamespace(claim=claim, interrupt=None, timed_out=False, described=None)
        return Verdicts(lambda _: False).raised(cast("Claimed", claimed), error).delay_seconds

    asked = error.delay_seconds or 0.0
    if asked >= 0.1:
        assert [delay(1), delay(1000)] == [asked, asked]
        return
    assert [delay(1), delay(4), delay(1000)] == [asked, max(asked, 0.03), 1.0]
    assert delay(1000, failures=999) == asked


async def test_a_snooze_without_a_delay_fails_and_says_why(hf: Holdfast) -> None:
    class Later(Snooze):
        def __init__(self) -> None: ...

    @hf.job("wait", retry=RetryPolicy(max_attempts=1))
    async def wait(ctx: Context) -> None:
        raise Later

    job = await wait.enqueue()
    await hf.run_worker(burst=True)
    dead = await hf.get(job.id)
    assert (dead.state, dead.last_error) == ("dead", "Later has no delay: its __init__ must call that of Snooze")


async def test_hold_keeps_the_job_for_a_person_and_resume_goes_on(hf: Holdfast) -> None:
    @hf.job("charge")
    async def charge(ctx: Context) -> str:
        if ctx.attempt == 1:
            raise Hold("the token limit is reached")
        return "charged"

    job = await charge.enqueue()
    async with working(hf):
        held = await reached(hf, job, "error")
        assert (held.status, held.last_error) == ("ERROR", "the token limit is reached")
        await hf.resume(job.id, by="ops")
        done = await hf.wait(job.id, timeout=30)
    assert (done.result, done.failures) == ("charged", 0)


async def test_on_failure_hold_asks_a_person(hf: Holdfast) -> None:
    @hf.job("charge", on_failure="hold")
    async def charge(ctx: Context) -> None:
        raise ValueError("refused")

    job = await charge.enqueue()
    await hf.run_worker(burst=True)
    held = await hf.get(job.id)
    assert (held.state, held.failures, held.attempt, held.last_error) == ("error", 1, 1, "refused")


async def test_an_async_handler_past_its_timeout_is_canceled(hf: Holdfast) -> None:
    ended = asyncio.Event()

    @hf.job("slow", timeout=0.1, retry=RetryPolicy(max_attempts=1))
    async def slow(ctx: Context) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    job = await slow.enqueue()
    await hf.run_worker(burst=True)
    dead = await hf.get(job.id)
    assert ended.is_set()
    assert (dead.state, dead.last_error) == ("dead", "the handler ran longer than 0.1 s")
    assert await _outcomes(hf, dead) == ["timeout"]


async def test_a_timeout_error_of_the_handlers_own_is_a_failure(hf: Holdfast) -> None:
    @hf.job("slow", retry=RetryPolicy(max_attempts=1))
    async def slow(ctx: Context) -> None:
        raise TimeoutError("the other side did not answer")

    job = await slow.enqueue()
    await hf.run_worker(burst=True)
    dead = await hf.get(job.id)
    assert (await _outcomes(hf, dead), dead.last_error) == (["failed"], "the other side did not answer")


async def test_the_error_and_traceback_of_strange_exceptions_are_stored(hf: Holdfast, conn: asyncpg.Connection) -> None:
    @hf.job("fail", retry=RetryPolicy(max_attempts=1))
    async def fail(ctx: Context) -> None:
        raise ValueError("a \x00 and a \ud800 and " + "x" * 100_000)

    job = await fail.enqueue()
    await hf.run_worker(burst=True)
    (attempt,) = await hf.attempts(job.id)
    assert attempt.error_message is not None
    assert attempt.error_message.startswith("a \N{REPLACEMENT CHARACTER} and a ")
    assert len(attempt.error_message) < 5000

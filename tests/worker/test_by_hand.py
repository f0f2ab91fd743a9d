"""What operators decide reaches running handlers: in the event loop, in a thread, in a process."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

import pytest

from holdfast import Context, Hold, Holdfast, RetryPolicy, Snooze, SyncContext
from holdfast.errors import AlreadyFinal, Conflict
from holdfast.model.job import Job
from holdfast.telemetry.bus import Bus
from holdfast.telemetry.events import AttemptEnded, Event, LeaseLost
from holdfast.worker.attempts import Attempts
from holdfast.worker.claimed import Claimed, ClaimedAttempts
from tests.harness.inprocess import reached, working
from tests.harness.waiting import until
from tests.model.test_hints import claim
from tests.worker import cpu_bound
from tests.worker.children import begun, opened

if TYPE_CHECKING:
    from holdfast.worker.deadlines import Timeouts
    from holdfast.worker.execution import Execution

ONCE_MORE = RetryPolicy(max_attempts=2, base=3600, jitter=0)


def waits_in_the_loop(hf: Holdfast) -> Callable[[], Awaitable[object]]:
    started = asyncio.Event()

    @hf.job("wait", retry=ONCE_MORE)
    async def wait(ctx: Context) -> None:
        started.set()
        await asyncio.Event().wait()

    return started.wait


def waits_in_a_thread(hf: Holdfast) -> Callable[[], Awaitable[object]]:
    started = threading.Event()

    @hf.job("wait", retry=ONCE_MORE)
    def wait(ctx: SyncContext) -> None:
        started.set()
        while not ctx.cancelled:
            threading.Event().wait(0.01)

    return lambda: asyncio.to_thread(started.wait)


#: How an operator decides, what becomes of the job, and the error of its attempt.
VERDICTS = [
    ("retry", "retry", "FailedByOperator"),
    ("fail", "dead", "FailedByOperator"),
    ("kill", "dead", "KilledByOperator"),
]


async def decide(hf: Holdfast, verb: str, job_id: Job) -> None:
    ops = await hf.operations()
    if verb == "kill":
        await ops.kill(job_id.id, reason="a known outage", by="ada")
    else:
        await ops.fail(job_id.id, "a known outage", will_retry=verb == "retry", by="ada")


async def judged(hf: Holdfast, job: Job, state: str, error: str) -> None:
    """The job became that, by an operator's verdict."""
    ended = await reached(hf, job.id, state)
    assert (ended.failures, ended.last_error) == (1, "a known outage")
    (attempt,) = await hf.attempts(job.id)
    assert (attempt.outcome, attempt.error_type, attempt.error_message) == ("failed", error, "a known outage")
    event = "killed" if error == "KilledByOperator" else "failed"
    assert [(e.event, e.by, e.note) for e in await hf.history(job.id)] == [(event, "ada", "a known outage")]


@pytest.mark.parametrize(("verb", "state", "error"), VERDICTS)
@pytest.mark.parametrize("waits", [waits_in_the_loop, waits_in_a_thread])
async def test_a_verdict_reaches_a_handler(
    hf: Holdfast, waits: Callable[[Holdfast], Callable[[], Awaitable[object]]], verb: str, state: str, error: str
) -> None:
    started = waits(hf)
    heard: list[Event] = []
    hf.events.subscribe(heard.append)
    job = await hf.get(await hf.enqueue("wait"))
    async with working(hf):
        await started()
        await decide(hf, verb, job)
        await judged(hf, job, state, error)
    (ended,) = [event for event in heard if isinstance(event, AttemptEnded)]
    assert (ended.outcome, ended.state, ended.failures, ended.error_type) == ("failed", state, 1, "FailedByOperator")


@pytest.mark.usefixtures("warm_children")
@pytest.mark.parametrize(("verb", "state", "error"), VERDICTS[1:])
async def test_a_verdict_ends_a_process(database_url: str, tmp_path: Path, verb: str, state: str, error: str) -> None:
    mark = tmp_path / "mark"
    async with opened(database_url, cpu_bound.hf) as hf:
        async with working(hf):
            job = await hf.get(await begun(hf, "sleep", mark, seconds=60))
            await decide(hf, verb, job)
            await judged(hf, job, state, error)


#: Every verb about a running job: the states in which that leaves it, how its attempt has ended, and the last event.
RUNNING: dict[str, tuple[set[str], str | None, str | None]] = {
    "fail with a retry": ({"retry"}, "failed", "failed"),
    "fail": ({"dead"}, "failed", "failed"),
    "kill": ({"dead"}, "failed", "killed"),
    "resolve": ({"canceled"}, "canceled", "resolved"),
    "cancel": ({"canceled"}, "canceled", "canceled"),
    "expire the lease": ({"queued", "running"}, "lost", "lease-expired"),
    "reprioritize": ({"running"}, None, "reprioritized"),
    "retry": ({"running"}, None, None),
}


async def ask(hf: Holdfast, verb: str, job_id: UUID) -> None:
    ops = await hf.operations()
    match verb:
        case "fail with a retry" | "fail":
            await ops.fail(job_id, "because", will_retry=verb != "fail", by="ada")
        case "kill":
            await ops.kill(job_id, reason="because", by="ada")
        case "expire the lease":
            await ops.expire_lease(job_id, reason="because", by="ada")
        case "reprioritize":
            await ops.reprioritize(job_id, 7, reason="because", by="ada")
        case "resolve":
            await ops.resolve(job_id, reason="because", by="ada")
        case _:
            await ops.request(cast("Any", verb), job_id, reason="because", by="ada")


@asynccontextmanager
async def handling(executor: str, database_url: str, mark: Path) -> AsyncIterator[tuple[Holdfast, UUID]]:
    """A job whose handler runs until it is told to stop, in this executor."""
    if executor == "process":
        async with opened(database_url, cpu_bound.hf) as hf:
            job_type = hf.registry.get("sleep")
            assert job_type is not None
            hf.registry.add(dataclasses.replace(job_type, retry=ONCE_MORE))
            async with working(hf):
                yield hf, (await begun(hf, "sleep", mark, seconds=60)).id
        return
    async with Holdfast(database_url) as hf:
        started = (waits_in_the_loop if executor == "async" else waits_in_a_thread)(hf)
        async with working(hf):
            job = await hf.enqueue("wait")
            await started()
            yield hf, job.id


@pytest.mark.usefixtures("warm_children")
@pytest.mark.parametrize("verb", RUNNING)
@pytest.mark.parametrize("executor", ["async", "thread", "process"])
async def test_every_verb_against_a_running_handler(
    database_url: str, tmp_path: Path, executor: str, verb: str
) -> None:
    """One outcome, and whoever cannot be obeyed is told what to do instead."""
    states, ended, event = RUNNING[verb]
    async with handling(executor, database_url, tmp_path / "mark") as (hf, job_id):
        if verb == "retry":
            with pytest.raises(Conflict, match="wait for its end, or let an operator fail it"):
                await ask(hf, verb, job_id)
        else:
            await ask(hf, verb, job_id)
        if ended is not None:
            await until(lambda: hf.attempts(job_id), what="the attempt has ended")
            first, *_ = await hf.attempts(job_id)
            assert first.outcome == ended
        if verb == "reprioritize":

            async def moved() -> bool:
                return (await hf.get(job_id)).priority == 7

            await until(moved, what="its priority has changed")
        job = await reached(hf, job_id, *states)
        assert [(e.event, e.by) for e in await hf.history(job_id)][:1] == ([(event, "ada")] if event else [])
        if ended is not None and verb != "expire the lease":
            with pytest.raises(Conflict):  # who comes too late
                await ask(hf, "expire the lease", job_id)
        if not job.state.terminal and job.state.value != "retry":
            await hf.cancel(job_id)  # a worker that claims it again meanwhile puts it off: what is scheduled cannot die
            await reached(hf, job_id, "canceled")


@pytest.mark.parametrize("ending", [Snooze(60), Hold("the token limit"), ValueError("its own")])
async def test_what_a_handler_raises_meanwhile_does_not_matter(hf: Holdfast, ending: Exception) -> None:
    started = asyncio.Event()

    @hf.job("stubborn")
    async def stubborn(ctx: Context) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise ending from None

    job = await hf.get(await stubborn.enqueue())
    async with working(hf):
        await started.wait()
        await decide(hf, "kill", job)
        await judged(hf, job, "dead", "KilledByOperator")


async def test_a_handler_that_succeeds_all_the_same_has_succeeded(hf: Holdfast) -> None:
    started = asyncio.Event()

    @hf.job("late")
    async def late(ctx: Context) -> str:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "done"
        raise AssertionError

    job = await hf.get(await late.enqueue())
    async with working(hf):
        await started.wait()
        await decide(hf, "kill", job)
        assert (await reached(hf, job.id, "success", "dead")).result == "done"
    with pytest.raises(AlreadyFinal, match="has ended as success; retry it if it is to run again"):
        await decide(hf, "kill", job)


async def test_a_worker_that_drains_does_not_rescue_a_killed_job(hf: Holdfast) -> None:
    """Its handler ignores that it was told to stop, until its worker does not wait any longer."""
    started, release = asyncio.Event(), asyncio.Event()

    @hf.job("deaf")
    async def deaf(ctx: Context) -> None:
        started.set()
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        raise asyncio.CancelledError

    job = await hf.get(await deaf.enqueue())
    async with working(hf) as worker:
        await started.wait()
        await decide(hf, "kill", job)
        with pytest.raises(Conflict, match="was killed by ada before; that takes effect when its handler has ended"):
            await decide(hf, "fail", job)
        worker.drain()
        worker.drain()
        release.set()
    await judged(hf, job, "dead", "KilledByOperator")


async def test_a_worker_whose_lease_was_ended_by_hand_has_lost_its_job(hf: Holdfast) -> None:
    started, release = asyncio.Event(), asyncio.Event()

    @hf.job("twice", retry=RetryPolicy(max_attempts=5))
    async def twice(ctx: Context) -> int:
        started.set()
        await release.wait()
        return ctx.attempt

    job = await twice.enqueue()
    async with working(hf):
        await started.wait()
        await (await hf.operations()).expire_lease(job.id, reason="the host is gone", by="ada")
        await until(lambda: hf.attempts(job.id), what="the attempt was closed")
        release.set()
        done = await hf.wait(job.id, timeout=30)
    assert done.attempt > 1
    assert done.result == done.attempt, "that of the first attempt came too late"
    first, *_ = await hf.attempts(job.id)
    words = "its lease was ended by ada: the host is gone"
    assert (first.outcome, first.error_type, first.error_message) == ("lost", "LeaseLost", words)


async def test_a_worker_is_told_at_once_that_its_lease_was_ended_by_hand(hf: Holdfast) -> None:
    """It does not have to claim the job again, or to renew its leases, to find out."""
    started, release, lost = asyncio.Event(), asyncio.Event(), asyncio.Event()
    hf.events.subscribe(lambda event: lost.set() if isinstance(event, LeaseLost) else None)

    @hf.job("long", lease=300)
    async def long(ctx: Context) -> None:
        started.set()
        await release.wait()

    job = await long.enqueue()
    async with working(hf):
        await started.wait()
        ops = await hf.operations()
        await ops.pause("type", "long", by="ada")
        await ops.expire_lease(job.id, by="ada")
        async with asyncio.timeout(20):  # which a renewal would not do: that comes after 150 s
            await lost.wait()
        release.set()
    assert [attempt.outcome for attempt in await hf.attempts(job.id)] == ["lost"]


def test_a_job_that_its_worker_cannot_begin_yet_is_put_off_for_longer_each_time() -> None:
    """Each time leaves a row: a handler that ran on for 20 seconds had left 19."""
    pauses: list[float | None] = []
    attempts = Attempts(
        "w1",
        Bus(),
        ClaimedAttempts(),
        cast("Execution", None),
        types={},
        timeouts=cast("Timeouts", None),
        on_ended=lambda _: None,
        on_struck=lambda _: None,
        settle=lambda _, outcome: pauses.append(outcome.delay_seconds),
    )
    earlier, again = (Claimed(claim((1, 0, number)), "general", 0.0) for number in (1, 2))
    for _ in range(2000):
        attempts.claimed_again(earlier, again)
    assert pauses[:8] == [1, 2, 4, 8, 16, 32, 60, 60]
    assert set(pauses[8:]) == {60}

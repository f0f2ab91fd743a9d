"""Cancel and pause reach a running handler; a drain does too."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from holdfast import Context, Hold, Holdfast, RetryPolicy
from holdfast.config import Config
from holdfast.telemetry.events import WorkerChanged
from holdfast.worker.claimed import Claimed
from tests.harness.inprocess import reached, working
from tests.harness.waiting import until


class Waiting:
    """A handler that waits for ever, and tells when it began."""

    def __init__(self, hf: Holdfast) -> None:
        self.begun = asyncio.Event()
        self.ended_at = 0.0
        self.job = hf.job("wait", retry=RetryPolicy(max_attempts=1))(self.wait)

    async def wait(self, ctx: Context) -> None:
        self.begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.ended_at = time.monotonic()


async def test_cancel_reaches_a_running_handler_at_once(hf: Holdfast) -> None:
    waiting = Waiting(hf)
    job = await hf.enqueue("wait")
    async with working(hf):
        await waiting.begun.wait()
        asked_at = time.monotonic()
        await hf.cancel(job.id, by="ada", reason="wrong customer")
        done = await hf.wait(job.id, timeout=30)
    assert waiting.ended_at - asked_at < 1.0
    assert (done.state, done.status, done.failures) == ("canceled", "CANCELED", 0)
    assert [a.outcome for a in await hf.attempts(job.id)] == ["canceled"]
    assert [(e.event, e.by, e.note) for e in await hf.history(job.id)] == [("canceled", "ada", "wrong customer")]


async def test_cancel_without_notification_arrives_with_the_heartbeat(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through a connection that hears nothing, as behind a pooler without a direct URL."""
    monkeypatch.setenv("HOLDFAST_HEARTBEAT_SECONDS", "0.2")
    monkeypatch.setattr("holdfast.worker.leases.LeaseKeeper._heard", lambda *_: None)
    async with Holdfast(database_url) as hf:
        waiting = Waiting(hf)
        job = await hf.enqueue("wait")
        async with working(hf):
            await waiting.begun.wait()
            await hf.cancel(job.id)
            assert (await hf.wait(job.id, timeout=30)).state == "canceled"


async def test_pause_and_resume_cost_no_attempt(hf: Holdfast) -> None:
    waiting = Waiting(hf)
    job = await hf.enqueue("wait", target="a target")
    behind = await hf.enqueue("wait", target="a target")
    async with working(hf):
        await waiting.begun.wait()
        await hf.pause(job.id)
        paused = await reached(hf, job, "paused")
        assert (paused.status, paused.failures) == ("PAUSED", 0)
        assert (await hf.get(behind.id)).state == "queued"
        waiting.begun.clear()
        await hf.resume(job.id)
        await waiting.begun.wait()
        assert (await hf.get(job.id)).attempt == 2
        await hf.cancel(job.id)
        await hf.cancel(behind.id)
        await hf.wait(job.id, timeout=30)
        await hf.wait(behind.id, timeout=30)


async def test_hold_while_being_canceled_is_an_error(hf: Holdfast) -> None:
    begun = asyncio.Event()

    @hf.job("charge")
    async def charge(ctx: Context) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise Hold("the token limit is reached") from None

    job = await charge.enqueue()
    async with working(hf):
        await begun.wait()
        await hf.cancel(job.id)
        held = await reached(hf, job, "error", "canceled")
    assert (held.state, held.last_error) == ("error", "the token limit is reached")


async def test_hold_while_being_drained_is_an_error(hf: Holdfast) -> None:
    begun = asyncio.Event()

    @hf.job("charge", on_failure="hold")
    async def charge(ctx: Context) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise Hold("the token limit is reached") from None

    job = await charge.enqueue()
    async with working(hf) as worker:
        await begun.wait()
        worker.drain()
        worker.drain()
    held = await hf.get(job)
    assert (held.state, held.last_error) == ("error", "the token limit is reached")


async def test_a_handler_that_finishes_though_it_was_canceled_has_succeeded(hf: Holdfast) -> None:
    begun = asyncio.Event()

    @hf.job("stubborn")
    async def stubborn(ctx: Context) -> str:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            assert ctx.canceled
        return "done all the same"

    job = await stubborn.enqueue()
    async with working(hf):
        await begun.wait()
        await hf.cancel(job.id)
        done = await hf.wait(job.id, timeout=30)
    assert (done.state, done.result) == ("success", "done all the same")


async def test_a_thread_sees_that_it_is_to_stop(hf: Holdfast) -> None:
    begun = threading.Event()

    @hf.job("crunch", retry=RetryPolicy(max_attempts=1))
    def crunch(ctx: Context) -> None:
        assert not ctx.canceled
        begun.set()
        while not ctx.canceled:
            threading.Event().wait(0.01)
        raise InterruptedError

    job = await crunch.enqueue()
    async with working(hf):
        await until(begun.is_set)
        await hf.cancel(job.id)
        done = await hf.wait(job.id, timeout=30)
    assert (done.state, done.failures) == ("canceled", 0)


async def test_a_thread_past_its_timeout_keeps_its_slot_until_it_returns(hf: Holdfast) -> None:
    told, return_now = threading.Event(), threading.Event()

    @hf.job("crunch", timeout=0.1, retry=RetryPolicy(max_attempts=1))
    def crunch(ctx: Context) -> None:
        while not ctx.canceled:
            threading.Event().wait(0.01)
        told.set()
        return_now.wait()
        raise InterruptedError

    first, second = await crunch.enqueue(), await crunch.enqueue()
    async with working(hf, lanes={"general": 1}):
        await until(told.is_set)
        assert (await hf.get(first.id)).state == "running"
        assert (await hf.get(second.id)).state == "queued"
        return_now.set()
        await hf.wait(first.id, timeout=30)
        await hf.wait(second.id, timeout=30)
    assert [a.outcome for a in await hf.attempts(first.id)] == ["timeout"]


@pytest.mark.parametrize("executor", ["async", "thread"])
async def test_a_handler_that_timed_out_has_timed_out_though_a_drain_ends_it(hf: Holdfast, executor: str) -> None:
    """Its worker drains because it is stuck, and interrupts it once more: it must not run again for nothing."""
    told: list[WorkerChanged] = []
    hf.events.subscribe(told.append, WorkerChanged)

    async def coroutine(ctx: Context) -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(3600)

    def thread(ctx: Context) -> None:
        while ctx._claimed.interrupt is None:  # type: ignore[attr-defined]
            time.sleep(0.01)
        assert ctx.canceled

    @hf.job("beside")
    async def beside(ctx: Context) -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(0.5)  # the drain waits for it, and so the other one can be settled

    hf.job("late", timeout=0.1, retry=RetryPolicy(max_attempts=1))(coroutine if executor == "async" else thread)
    async with working(hf, stuck_after_seconds=0.2) as worker:
        other, job = await hf.enqueue_many([("beside", {}), ("late", {})])
        await until(lambda: any(event.change == "drains" for event in told), what="the worker drains")
        worker.drain()
        worker.drain()
    assert [a.outcome for a in await hf.attempts(job)] == ["timeout"]
    assert (await hf.get(job)).state == "dead"
    assert [a.outcome for a in await hf.attempts(other)] == ["released"]


async def test_a_handler_that_drains_for_longer_than_its_time_is_handed_back(hf: Holdfast) -> None:
    begun = asyncio.Event()

    @hf.job("clean", timeout=0.5, retry=RetryPolicy(max_attempts=1))
    async def clean(ctx: Context) -> None:
        begun.set()
        try:
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(3600)  # ended by the timeout

    async with working(hf) as worker:
        job = await clean.enqueue()
        await begun.wait()
        worker.drain()
        worker.drain()
    assert [a.outcome for a in await hf.attempts(job)] == ["released"]


@pytest.mark.parametrize(
    ("policy", "paused"),
    [(None, {"hold", "hold t"}), ("pause", {"hold", "hold t", "retry t"}), ("requeue", {"hold"})],
)
async def test_a_drain_pauses_what_is_for_a_person_and_hands_back_the_rest(
    database_url: str, policy: str | None, paused: set[str]
) -> None:
    """Unless the policy decides for all jobs with a target."""
    app = Holdfast(database_url)
    if policy is not None:
        app.config = Config.load({"HOLDFAST_DRAIN_POLICY": policy}, database_url=database_url)
    async with app as hf:
        begun = asyncio.Semaphore(0)
        for name in ("retry", "hold"):

            @hf.job(name, on_failure=name)
            async def wait(ctx: Context) -> None:
                begun.release()
                await asyncio.Event().wait()

        jobs = {f"{name}{mark}": await hf.enqueue(name, target=f"{name}{mark}" if mark else None)
                for name in ("retry", "hold") for mark in ("", " t")}  # fmt: skip
        async with working(hf) as worker:
            for _ in jobs:
                await begun.acquire()
            worker.drain()
            worker.drain()
        for label, job in jobs.items():
            left = await hf.get(job)
            expected = ("paused", "drained") if label in paused else ("queued", "released")
            assert (left.state, left.reason, left.failures) == (*expected, 0), label
            notes = [event.note for event in await hf.history(job)]
            assert notes == (["Job was interrupted by user"] if label in paused else [])


async def test_a_job_canceled_before_its_handler_began_frees_its_slot(hf: Holdfast) -> None:
    """As it happens to one that was claimed ahead, and to one whose task has not taken its first step."""
    began: list[int] = []

    @hf.job("quick")
    async def quick(ctx: Context, number: int) -> None:
        began.append(number)

    async with working(hf, lanes={"general": 1}) as worker:
        await reached(hf, await quick.enqueue(0), "success")
        start = worker._intake._start

        def stop_first(claimed: Claimed) -> None:
            claimed.stop("cancel")
            start(claimed)

        worker._intake._start = stop_first
        job = await quick.enqueue(-1)
        assert (await hf.wait(job.id, timeout=30)).state == "canceled"
        worker._intake._start = start
        job = await quick.enqueue(-2)
        assert (await hf.wait(job.id, timeout=30)).state == "success"
    assert -1 not in began

"""A worker over HTTP, against a real server on a real port."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from holdfast import (
    Context,
    Fatal,
    Forbidden,
    Hold,
    Holdfast,
    HoldfastError,
    InvalidInput,
    Retry,
    RetryPolicy,
    Snooze,
    SyncContext,
)
from holdfast.remote import RemoteWorker
from tests.harness.waiting import until
from tests.remote.conftest import running


class Order(BaseModel):
    number: int


async def test_handlers_of_both_kinds_run_and_answer(app: Holdfast, served: str) -> None:
    worker = RemoteWorker(served)
    seen: dict[str, Any] = {}

    @worker.job("double")
    async def double(ctx: Context, n: int) -> int:
        seen.update(id=ctx.job_id, type=ctx.type, attempt=ctx.attempt, correlation=ctx.correlation_id)
        return 2 * n

    @worker.job("ship")
    def ship(ctx: SyncContext, order: Order) -> str:
        ctx.logger.warning("shipping %s", order.number)
        return f"{order.number} by {threading.current_thread().name}"

    first = await app.enqueue("double", {"n": 21}, correlation_id="c-1")
    second = await app.enqueue("ship", {"number": 7})
    await worker.run(burst=True)
    done = await app.get(first)
    assert (done.state, done.result, done.attempt) == ("success", 42, 1)
    assert seen == {"id": first.id, "type": "double", "attempt": 1, "correlation": "c-1"}
    assert str((await app.get(second)).result).startswith("7 by holdfast-handler")
    (attempt,) = await app.attempts(second.id)
    assert attempt.worker == f"remote:open:{worker.worker_id}"
    assert attempt.log_excerpt == "WARNING shipping 7"


@pytest.mark.parametrize(
    ("error", "state", "kind"),
    [
        (Fatal("no use"), "dead", "failed"),
        (Retry("later", delay=60), "retry", "failed"),
        (Snooze(60, "not now"), "scheduled", "snoozed"),
        (Hold("ask somebody"), "error", "failed"),
        (ValueError("a \x00 and a \ud800"), "retry", "failed"),
    ],
)
async def test_what_a_handler_raises_decides(
    app: Holdfast, served: str, error: Exception, state: str, kind: str
) -> None:
    worker = RemoteWorker(served)

    @worker.job("raise")
    async def handler(ctx: Context) -> None:
        raise error

    job = await app.enqueue("raise")
    await worker.run(burst=True)
    assert (await app.get(job)).state == state
    (attempt,) = await app.attempts(job.id)
    assert attempt.outcome == kind
    assert attempt.error_message is None or "\x00" not in attempt.error_message


async def test_a_payload_that_does_not_fit_waits_for_a_person(app: Holdfast, served: str) -> None:
    worker = RemoteWorker(served)

    @worker.job("ship")
    async def ship(ctx: Context, order: Order) -> None:
        raise AssertionError("it must not run")

    job = await app.enqueue("ship", {"number": "many"})
    await worker.run(burst=True)
    found = await app.get(job)
    assert (found.state, "number" in str(found.last_error)) == ("error", True)


async def test_a_result_that_the_server_refuses_is_a_failure(app: Holdfast, served: str) -> None:
    worker = RemoteWorker(served)

    @worker.job("long")
    async def long(ctx: Context) -> str:
        return "x" * 1_100_000

    job = await app.enqueue("long")
    await worker.run(burst=True)
    found = await app.get(job)
    assert (found.state, bool(found.last_error)) == ("dead", True)


@pytest.mark.usefixtures("maintained")
async def test_items_and_cursor_are_reported_and_continued(app: Holdfast, served: str) -> None:
    worker = RemoteWorker(served)

    @worker.job("collect")
    async def collect(ctx: Context) -> int:
        start = ctx.cursor or 0
        for page in range(start, 3):
            if page == 2 and start == 0:
                raise Retry("the site went away", delay=0)
            await ctx.items([{"key": str(page * 2 + n), "data": page} for n in range(2)], cursor=page + 1)
        await ctx.progress(4, done_reason="no_more_results")
        return start

    job = await app.enqueue("collect")
    async with running(worker):
        done = await app.wait(job.id, timeout=30)
    assert (done.result, done.attempt, done.cursor) == (2, 2, 3)
    assert (done.progress_count, done.result_count, done.done_reason) == (10, 6, "no_more_results")
    assert [item.key for item in await app.items(job.id)] == [str(n) for n in range(6)]


async def test_a_job_with_enough_items_is_over(app: Holdfast, served: str) -> None:
    worker = RemoteWorker(served)
    refused: list[str] = []

    @worker.job("collect")
    def collect(ctx: SyncContext) -> str:
        for n in range(10):
            if ctx.items([{"key": str(n), "data": n}], cursor=n).target_reached:
                break
        try:
            ctx.items([{"key": "one more", "data": None}])
        except HoldfastError as error:
            refused.append(str(error))
        return "nobody reads this"

    job = await app.enqueue("collect", target_count=3)
    await worker.run(burst=True)
    done = await app.get(job)
    assert (done.state, done.result_count, done.done_reason) == ("success", 3, "target_reached")
    assert "as many items as were wanted" in refused[0]


async def test_children_are_recorded_over_http(app: Holdfast, served: str) -> None:
    worker = RemoteWorker(served)

    @worker.job("parent")
    async def parent(ctx: Context) -> str:
        return str((await ctx.enqueue("child", {"n": 1}, priority=3)).id)

    @worker.job("parent in a thread")
    def in_a_thread(ctx: SyncContext) -> str:
        return str(ctx.enqueue("child", {"n": 2}).id)

    jobs = [await app.enqueue(kind, correlation_id="family") for kind in ("parent", "parent in a thread")]
    await worker.run(burst=True)
    for job in jobs:
        child = await app.get(str((await app.get(job)).result))
        assert (child.parent_id, child.correlation_id) == (job.id, "family")


async def test_what_needs_the_database_says_so(app: Holdfast, served: str) -> None:
    worker = RemoteWorker(served)

    @worker.job("direct")
    async def direct(ctx: Context) -> None:
        async with ctx.transaction():
            raise AssertionError("there is none")

    job = await app.enqueue("direct")
    await worker.run(burst=True)
    assert "over HTTP only" in str((await app.get(job)).last_error)


async def test_handlers_of_an_app_run_over_http_too(app: Holdfast, served: str) -> None:
    @app.job("greet", retry=RetryPolicy(max_attempts=2))
    async def greet(ctx: Context, name: str) -> str:
        return f"hello {name}, from {ctx.resources}"

    @asynccontextmanager
    async def lifespan(worker: RemoteWorker) -> AsyncIterator[str]:
        yield worker.worker_id

    job = await greet.enqueue(name="ada")
    await RemoteWorker(served, worker_id="far-away", app=app, lifespan=lifespan).run(burst=True)
    assert (await app.get(job)).result == "hello ada, from far-away"


@pytest.mark.usefixtures("maintained")
async def test_a_blocked_event_loop_keeps_its_leases(app: Holdfast, served: str) -> None:
    worker = RemoteWorker(served, lease_seconds=1)

    @worker.job("block")
    async def block(ctx: Context) -> None:
        time.sleep(3)

    job = await app.enqueue("block")
    # In a thread with a loop of its own: this loop serves.
    await asyncio.to_thread(lambda: asyncio.run(worker.run(burst=True)))
    done = await app.get(job)
    assert (done.state, done.attempt) == ("success", 1)


@pytest.mark.usefixtures("maintained")
@pytest.mark.parametrize("slots", [1, 8], ids=["all slots busy", "a pull waits"])
@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_a_cancel_reaches_a_handler_at_once(app: Holdfast, served: str, kind: str, slots: int) -> None:
    worker = RemoteWorker(served, slots=slots)
    began, heard = asyncio.Event(), list[float]()
    loop = asyncio.get_running_loop()

    @worker.job("async")
    async def waits(ctx: Context) -> None:
        began.set()
        try:
            await asyncio.sleep(60)
        finally:
            heard.append(time.monotonic())

    @worker.job("thread")
    def looks(ctx: SyncContext) -> None:
        loop.call_soon_threadsafe(began.set)
        while not ctx.canceled:
            time.sleep(0.005)
        heard.append(time.monotonic())

    job = await app.enqueue(kind)
    async with running(worker):
        await asyncio.wait_for(began.wait(), 20)
        await asyncio.sleep(0.3)  # whatever listens is listening
        asked = time.monotonic()
        await app.cancel(job.id)
        await until(lambda: heard, what="the handler stops")
        done = await app.wait(job.id, timeout=20)
    assert done.state == "canceled"
    assert heard[0] - asked < 2.0  # usually within 0.1


async def test_a_drain_hands_back_what_does_not_end_in_time(app: Holdfast, served: str) -> None:
    worker = RemoteWorker(served, grace_seconds=0.2)
    began = asyncio.Event()

    @worker.job("long")
    async def long(ctx: Context) -> None:
        began.set()
        await asyncio.sleep(60)

    job = await app.enqueue("long")
    async with running(worker):
        await asyncio.wait_for(began.wait(), 20)
    found = await app.get(job)
    assert (found.state, found.failures) == ("queued", 0)
    assert [attempt.outcome for attempt in await app.attempts(job.id)] == ["released"]


async def test_a_report_that_is_refused_concerns_its_own_job_only(app: Holdfast, served: str) -> None:
    worker = RemoteWorker(served, slots=20)
    ready, waiting = asyncio.Event(), 0

    @worker.job("report")
    async def report(ctx: Context, length: int) -> None:
        nonlocal waiting
        waiting += 1
        if waiting == 20:
            ready.set()
        await ready.wait()  # so that they share requests
        await ctx.items([{"key": "k" * length, "data": 1}])

    jobs = [await app.enqueue("report", {"length": 300 if n == 7 else 10}) for n in range(20)]
    await asyncio.wait_for(worker.run(burst=True), 60)
    states = [(await app.get(job)).state for job in jobs]
    assert states == ["retry" if n == 7 else "success" for n in range(20)]
    assert "/items/0/key" in str((await app.get(jobs[7])).last_error)


async def test_a_worker_that_is_told_to_be_quiet_finishes_and_ends(app: Holdfast, served: str) -> None:
    worker = RemoteWorker(served, worker_id="loud")
    began = asyncio.Event()

    @worker.job("work")
    async def work(ctx: Context) -> None:
        began.set()
        await asyncio.sleep(1)

    job = await app.enqueue("work")
    task = asyncio.create_task(worker.run())
    await asyncio.wait_for(began.wait(), 20)
    await (await app.operations()).workers.quiet("remote:open:loud", by="a test")
    await asyncio.wait_for(task, 30)
    assert (await app.get(job)).state == "success"


async def test_a_key_that_is_not_valid_ends_the_worker(app: Holdfast, served: str) -> None:
    await (await app.operations()).keys.create("k", scopes=["work"], by="a test")
    worker = RemoteWorker(served, "hf_nonsense")
    worker.job("any")(_any)
    with pytest.raises(Forbidden):
        await worker.run()


async def test_a_worker_says_what_is_wrong_with_it() -> None:
    with pytest.raises(InvalidInput, match="slots"):
        RemoteWorker("http://localhost", slots=0)
    with pytest.raises(InvalidInput, match="visible ASCII"):
        RemoteWorker("http://localhost", worker_id="é")
    worker = RemoteWorker("http://localhost")
    with pytest.raises(InvalidInput, match="handlers for 1 to 100"):
        await worker.run()
    worker.job("any")(_any)
    with pytest.raises(InvalidInput, match="twice"):
        worker.job("any")(_any)


async def _any(ctx: Context) -> None:
    pass


def test_a_worker_is_started_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "tasks.py").write_text(
        "from holdfast.remote import RemoteWorker\n"
        "worker = RemoteWorker('http://127.0.0.1:1', timeout=1)\n"
        "@worker.job('any')\nasync def handler(ctx): pass\n"
    )

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "holdfast.remote", *arguments]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)

    assert "tasks:nobody is not a RemoteWorker" in run("tasks:nobody").stderr
    process = subprocess.Popen(
        [sys.executable, "-m", "holdfast.remote", "tasks:worker"], cwd=tmp_path, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    with process.stderr:
        started, line = process.stderr.readline(), process.stderr.readline()
        process.terminate()
    assert "pulls any from http://127.0.0.1:1" in started
    assert "no jobs can be pulled" in line
    assert process.wait(30) == 0


async def test_the_types_of_a_live_remote_worker_are_known(app: Holdfast, served: str) -> None:
    worker = RemoteWorker(served)

    @worker.job("text.shout")
    async def shout(_: Context) -> None: ...

    assert await app.client.other_names("type", "text.shout") == []
    await worker.run(burst=True)
    assert await app.client.other_names("type", "text.shout") is None
    assert await app.client.other_names("type", "text.shuot") == ["text.shout"]

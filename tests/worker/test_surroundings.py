"""What a worker's process has around handlers (environment, limits, signals, clock) serves all jobs alike."""

from __future__ import annotations

import asyncio
import importlib
import os
import resource
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from holdfast import Context, Holdfast, InvalidInput, RetryPolicy, SyncContext
from holdfast.lifecycle import importing
from holdfast.worker import surroundings
from holdfast.worker.processes import pool
from tests.harness.inprocess import reached, working
from tests.harness.waiting import until
from tests.worker import leftovers
from tests.worker.children import children, opened

ONCE = RetryPolicy(max_attempts=1)


async def test_children_find_the_variables_that_the_app_has_taken_away(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While they import it and enter its lifespan, and no longer."""
    for name in ("APP_SECRET", "APP_PASSWORD"):
        monkeypatch.setitem(importing._variables, name, name.lower())
    monkeypatch.setenv("APP_SECRET", "app_secret")
    monkeypatch.delitem(sys.modules, "tests.worker.secretive", raising=False)
    secretive = importlib.import_module("tests.worker.secretive")
    async with opened(database_url, secretive.hf) as hf, working(hf):
        job = await hf.wait(await hf.enqueue("whisper"), timeout=30)
    assert job.result == ["app_secret", "app_password", None, None], job.last_error


@pytest.fixture
def limited() -> Iterator[int]:
    """A limit that a handler may lower; it is given back."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield before[0]
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("executor", ["async", "thread"])
async def test_a_limit_that_a_handler_lowers_is_raised_again(hf: Holdfast, limited: int, executor: str) -> None:
    def lower() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2**30, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))

    async def coroutine(ctx: Context) -> None:
        lower()

    def function(ctx: SyncContext) -> None:
        lower()

    hf.job("lower")(coroutine if executor == "async" else function)

    @hf.job("look")
    async def look(ctx: Context) -> int:
        await asyncio.sleep(0.06)  # limits are looked at some times a second
        return resource.getrlimit(resource.RLIMIT_FSIZE)[0]

    async with working(hf):
        await reached(hf, await hf.enqueue("lower"), "success")
        await hf.wait(await look.enqueue(), timeout=10)
        assert (await hf.wait(await look.enqueue(), timeout=10)).result == limited


async def test_a_limit_that_the_last_handler_lowers_is_raised_again(
    hf: Holdfast, limited: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if it ends right after another one, when the limits have just been looked at."""
    monkeypatch.setattr(surroundings, "_LOOK_SECONDS", 0.3)

    @hf.job("lower")
    async def lower(ctx: Context) -> None:
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (2**30, hard))

    jobs = [await lower.enqueue() for _ in range(3)]
    async with working(hf):
        for job in jobs:
            await hf.wait(job, timeout=10)
        await until(lambda: resource.getrlimit(resource.RLIMIT_FSIZE)[0] == limited, what="it is raised")


@pytest.fixture
def timed() -> Iterator[None]:
    """A timer that a handler may leave, and whose signal would end the process; both are given back."""
    before = signal.getsignal(signal.SIGPROF)
    yield
    signal.setitimer(signal.ITIMER_PROF, 0)
    signal.signal(signal.SIGPROF, before)


@pytest.mark.usefixtures("timed")
@pytest.mark.parametrize("executor", ["async", "thread"])
async def test_a_timer_that_a_handler_leaves_is_disarmed(
    hf: Holdfast, caplog: pytest.LogCaptureFixture, executor: str
) -> None:
    def leave() -> None:
        signal.setitimer(signal.ITIMER_PROF, 10_000)

    async def coroutine(ctx: Context) -> None:
        leave()

    def function(ctx: SyncContext) -> None:
        leave()

    name = f"leaves a timer, {executor}"
    hf.job(name)(coroutine if executor == "async" else function)
    async with working(hf):
        await reached(hf, await hf.enqueue(name), "success")
        await until(lambda: signal.getitimer(signal.ITIMER_PROF)[0] == 0, what="it is disarmed")
    assert f"a handler of {name} had left armed" in caplog.text


@pytest.mark.usefixtures("timed")
async def test_timers_of_the_app_and_of_handlers_that_run_stay(hf: Holdfast) -> None:
    """Of a profiler that its lifespan has started, and of a handler beside others that end."""
    release = asyncio.Event()
    signal.signal(signal.SIGPROF, lambda *_: None)

    @hf.job("timed")
    async def long(ctx: Context) -> bool:
        signal.setitimer(signal.ITIMER_PROF, 10_000)
        await release.wait()
        await asyncio.sleep(0.02)  # timers are looked at some times a second
        return signal.getitimer(signal.ITIMER_PROF)[0] > 0

    @hf.job("short")
    async def short(ctx: Context) -> None: ...

    async with working(hf):
        running = await reached(hf, await long.enqueue(), "running")
        for _ in range(3):
            await reached(hf, await short.enqueue(), "success")
        release.set()
        assert (await hf.wait(running.id, timeout=10)).result is True
        await until(lambda: signal.getitimer(signal.ITIMER_PROF)[0] == 0, what="it is disarmed")
    signal.setitimer(signal.ITIMER_PROF, 10_000)
    async with working(hf):
        await reached(hf, await short.enqueue(), "success")
    assert signal.getitimer(signal.ITIMER_PROF)[0] > 0


@pytest.fixture
def signals() -> Iterator[None]:
    """Signals that a worker in this program handles; they are given back."""
    before = [(number, signal.getsignal(number)) for number in (signal.SIGTERM, signal.SIGINT)]
    yield
    for number, handler in before:
        signal.signal(number, handler)


@pytest.mark.usefixtures("signals")
async def test_stray_signals_do_not_end_a_worker_that_handles_signals(
    hf: Holdfast, caplog: pytest.LogCaptureFixture
) -> None:
    @hf.job("stray")
    def stray(ctx: SyncContext) -> None:
        os.kill(os.getpid(), signal.SIGUSR2)

    async with working(hf, signals=True):
        await reached(hf, await stray.enqueue(), "success")
        await until(lambda: "SIGUSR2 was received and ignored" in caplog.text, what="it is told")
    assert signal.getsignal(signal.SIGUSR2) is signal.SIG_DFL


@pytest.mark.usefixtures("signals")
def test_stray_signals_do_not_end_a_blocking_worker(database_url: str, caplog: pytest.LogCaptureFixture) -> None:
    app = Holdfast(database_url)

    @app.job("stray")
    async def stray(ctx: Context) -> None:
        os.kill(os.getpid(), signal.SIGUSR2)
        await until(lambda: "SIGUSR2 was received and ignored" in caplog.text, what="it is told")

    with app.sync:
        job = stray.sync.enqueue()
        app.sync.run_worker(burst=True)
        assert app.sync.get(job).state == "success"
    assert signal.getsignal(signal.SIGUSR2) is signal.SIG_DFL


@pytest.mark.usefixtures("limited")
async def test_children_start_as_their_worker_did(database_url: str) -> None:
    """Whatever a handler in the worker's process has changed, and has not changed back."""
    before, policy = leftovers.inherited(), os.sched_getscheduler(0)
    async with opened(database_url, leftovers.hf) as hf, working(hf) as worker:
        await hf.wait(await hf.enqueue("quick"), timeout=10)
        with ExitStack() as undo:
            undo.callback(os.umask, os.umask(0o27))
            undo.callback(signal.signal, signal.SIGUSR2, signal.signal(signal.SIGUSR2, signal.SIG_IGN))
            blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1, signal.SIGTERM})
            undo.callback(signal.pthread_sigmask, signal.SIG_SETMASK, blocked)
            undo.callback(os.sched_setscheduler, 0, policy, os.sched_param(0))
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
            for number in (resource.RLIMIT_FSIZE, resource.RLIMIT_MSGQUEUE):
                limits = resource.getrlimit(number)
                undo.callback(resource.setrlimit, number, limits)
                resource.setrlimit(number, (2**18, limits[1]))
            assert all(now != then for now, then in zip(leftovers.inherited(), before, strict=True))
            job = await hf.enqueue("inherit")
            await until(lambda: children(worker), what="a child starts")
        assert (await hf.wait(job, timeout=30)).result == before


async def test_a_handler_cannot_take_the_signals_of_its_worker(hf: Holdfast) -> None:
    @hf.job("nest", retry=ONCE)
    async def nest(ctx: Context) -> None:
        await hf.run_worker(burst=True, signals=True, types=["none"])

    @hf.job("none")
    async def none(ctx: Context) -> None: ...

    before = signal.getsignal(signal.SIGTERM)
    async with working(hf, types=["nest"]):
        job = await reached(hf, await nest.enqueue(), "dead", "success", seconds=20)
    assert "signals belong to the worker" in (job.last_error or "")
    assert signal.getsignal(signal.SIGTERM) is before
    with pytest.raises(InvalidInput, match="main thread"):
        await asyncio.to_thread(lambda: hf.sync.run_worker(signals=True))


async def test_time_in_which_the_worker_was_stopped_does_not_count_for_a_child() -> None:
    loop = asyncio.get_running_loop()
    begun = loop.create_future()

    def stop() -> None:
        time.sleep(0.4)
        loop.call_later(0.02, begun.set_result, None)

    loop.call_soon(stop)
    assert await pool._first_awake({begun}, 0.3) == "done"
    assert await pool._first_awake({loop.create_future()}, 0.1) == "over"

"""Workers over HTTP that are killed, frozen, drained, or cut off from their server."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast import Context, Holdfast
from holdfast.remote import RemoteWorker
from holdfast.web.server import address, listen
from tests.harness import warm
from tests.harness.waiting import until
from tests.remote.conftest import app, maintained, running, served, serving

__all__ = ["app", "maintained", "served"]

Spawn = Callable[[str], warm.Process]
pytestmark = pytest.mark.usefixtures("maintained")


@pytest.fixture
def spawn(served: str, tmp_path: Path) -> Iterator[Spawn]:
    """Start workers; their log is in the file of their name."""
    started: list[warm.Process] = []

    def spawn(name: str) -> warm.Process:
        environment = {**os.environ, "HOLDFAST_URL": served, "FAR_NAME": name, "FAR_FOLDER": str(tmp_path)}
        with (tmp_path / name).open("ab") as output:
            started.append(warm.Process(["-m", "tests.faults.far"], env=environment, stdout=output))
        return started[-1]

    yield spawn
    for process in started:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            process.wait(10)


async def ended(process: warm.Process) -> int:
    await until(lambda: process.poll() is not None, what="the worker ends")
    return int(process.poll() or 0)


async def test_another_worker_goes_on_from_the_cursor_of_one_that_was_killed(
    app: Holdfast, spawn: Spawn, tmp_path: Path
) -> None:
    job = await app.enqueue("crawl", {"pages": 5, "stop_before": 3})
    first = spawn("first")
    await until((tmp_path / "waiting").exists, what="three pages are reported")
    first.kill()
    spawn("second")
    done = await app.wait(job.id, timeout=60)
    assert (done.state, done.attempt, done.result) == ("success", 2, 3)
    assert (done.progress_count, done.result_count, done.cursor) == (50, 50, 5)
    assert len({item.key for item in await app.items(job.id)}) == 50
    attempts = {one.attempt: (one.worker, one.outcome) for one in await app.attempts(job.id)}
    assert attempts == {1: ("remote:open:first", "lost"), 2: ("remote:open:second", "success")}


async def test_a_worker_that_wakes_up_too_late_changes_nothing(app: Holdfast, spawn: Spawn, tmp_path: Path) -> None:
    job = await app.enqueue("freeze")
    first = spawn("first")
    await until((tmp_path / "waiting").exists, what="the job runs")
    first.send_signal(signal.SIGSTOP)
    spawn("second")
    done = await app.wait(job.id, timeout=60)
    assert (done.result, done.attempt) == (2, 2)
    (tmp_path / "go on").touch()
    first.send_signal(signal.SIGCONT)
    await until(lambda: "lease lost, result dropped" in (tmp_path / "first").read_text(), what="it hears of it")
    again = await app.get(job.id)
    assert (again.state, again.result, again.updated_at) == ("success", 2, done.updated_at)
    later = await app.enqueue("work", {"seconds": 0})
    assert (await app.wait(later.id, timeout=60)).state == "success"


async def test_sigterm_lets_jobs_finish_and_pulls_no_more(app: Holdfast, spawn: Spawn, tmp_path: Path) -> None:
    job = await app.enqueue("work", {"seconds": 1.5})
    worker = spawn("first")
    await until((tmp_path / f"began {job.id}").exists, what="the job runs")
    worker.terminate()
    await until(lambda: "worker drains" in (tmp_path / "first").read_text(), what="it drains")
    later = await app.enqueue("work", {"seconds": 0})
    assert await ended(worker) == 0
    assert (await app.get(job.id)).state == "success"
    assert (await app.get(later.id)).state == "queued"


async def test_a_second_sigterm_hands_jobs_back_at_no_cost(app: Holdfast, spawn: Spawn, tmp_path: Path) -> None:
    job = await app.enqueue("work", {"seconds": 60})
    worker = spawn("first")
    await until((tmp_path / f"began {job.id}").exists, what="the job runs")
    worker.terminate()
    await until(lambda: "worker drains" in (tmp_path / "first").read_text(), what="it drains")
    worker.terminate()
    assert await ended(worker) == 0
    back = await app.get(job.id)
    assert (back.state, back.failures) == ("queued", 0)
    assert [one.outcome for one in await app.attempts(job.id)] == ["released"]


async def test_what_ends_while_the_server_is_away_is_told_once_it_is_back(app: Holdfast) -> None:
    with listen("127.0.0.1", 0) as listener:
        port = int(address(listener).rpartition(":")[2])
    worker = RemoteWorker(f"http://127.0.0.1:{port}", timeout=2)
    began, go_on = asyncio.Event(), asyncio.Event()

    @worker.job("report")
    async def report(ctx: Context) -> str:
        await ctx.items([{"key": "before", "data": 1}], cursor=1)
        began.set()
        await go_on.wait()
        await ctx.items([{"key": "while it is away", "data": 2}], cursor=2)
        return "done"

    job = await app.enqueue("report")
    async with running(worker):
        async with serving(app, port):
            await asyncio.wait_for(began.wait(), 20)
        go_on.set()
        await asyncio.sleep(2)
        async with serving(app, port):
            done = await app.wait(job.id, timeout=30)
            later = await app.enqueue("report")
            assert (await app.wait(later.id, timeout=60)).state == "success"
            worker.drain()
    assert (done.state, done.result, done.attempt) == ("success", "done", 1)
    assert (done.progress_count, done.result_count, done.cursor) == (2, 2, 2)


async def test_a_handler_with_a_target_is_stopped_when_its_lease_cannot_be_kept(app: Holdfast) -> None:
    with listen("127.0.0.1", 0) as listener:
        port = int(address(listener).rpartition(":")[2])
    worker = RemoteWorker(f"http://127.0.0.1:{port}", timeout=2, patience=1, lease_seconds=1)
    began = {"aimed": asyncio.Event(), "free": asyncio.Event()}
    ends: list[str] = []

    @worker.job("wait")
    async def wait(ctx: Context, name: str) -> None:
        began[name].set()
        try:
            await asyncio.sleep(60)
        finally:
            ends.append(name)

    await app.enqueue("wait", {"name": "aimed"}, target="an account")
    await app.enqueue("wait", {"name": "free"})
    async with running(worker):
        async with serving(app, port):
            for event in began.values():
                await asyncio.wait_for(event.wait(), 20)
        await until(lambda: ends, what="the lease is over")
        assert ends == ["aimed"]
        worker.drain()  # and `running` asks once more, which interrupts the other one

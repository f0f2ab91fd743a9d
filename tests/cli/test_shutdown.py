"""Whatever hangs, a worker can be told to stop: the first signal drains, the second hurries, the third ends it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from holdfast import Holdfast, State
from holdfast.cli.children import _ending
from tests.cli.conftest import ROOT, TASKS, Start, alive
from tests.harness.inprocess import reached
from tests.harness.waiting import until

APP = """
import asyncio, contextlib, time
from holdfast import Holdfast, events

async def deaf():
    while True:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(3600)

@contextlib.asynccontextmanager
async def lifespan(hf):
    print("begins to start", flush=True)
    {start}
    yield
    print("begins to stop", flush=True)
    {stop}

hf = Holdfast(lifespan=lifespan)

@hf.on(events.WorkerChanged)
def observe(event):
    if event.change == {observed!r}:
        print("observes", flush=True)
        time.sleep(3600)

@hf.job("nothing")
async def nothing(ctx): pass
"""


def app(folder: Path, start: str = "pass", stop: str = "pass", observed: str = "", name: str = "hanging") -> str:
    (folder / f"{name}.py").write_text(APP.format(start=start, stop=stop, observed=observed))
    return f"{name}:hf"


@pytest.mark.parametrize("hangs", ["await asyncio.sleep(3600)", "await deaf()"], ids=["asleep", "deaf"])
async def test_a_lifespan_that_hangs_on_start_is_given_up_at_the_first_signal(
    start: Start, tmp_path: Path, hangs: str
) -> None:
    worker = start("worker", "--app", app(tmp_path, start=hangs), folder=tmp_path)
    await worker.wrote("begins to start")
    worker.process.send_signal(signal.SIGTERM)
    assert await worker.ended(seconds=25) == 0


@pytest.mark.parametrize("hangs", ["await asyncio.sleep(3600)", "await deaf()"], ids=["asleep", "deaf"])
async def test_a_lifespan_that_hangs_on_stop_is_given_up_at_the_second_signal(
    start: Start, hf: Holdfast, tmp_path: Path, hangs: str
) -> None:
    worker = start("worker", "--app", app(tmp_path, stop=hangs), folder=tmp_path)
    await until(lambda: len(worker.lines("started")) == 1)
    worker.process.send_signal(signal.SIGTERM)
    await worker.wrote("begins to stop")
    worker.process.send_signal(signal.SIGINT)
    assert await worker.ended(seconds=25) == 0


@pytest.mark.parametrize("moment", ["start", "stop"])
async def test_a_lifespan_that_blocks_the_loop_is_given_up_ten_seconds_after_the_grace(
    start: Start, hf: Holdfast, tmp_path: Path, moment: str
) -> None:
    hanging = app(tmp_path, **{moment: "time.sleep(3600)"})
    worker = start("worker", "--app", hanging, folder=tmp_path, HOLDFAST_SHUTDOWN_GRACE_PERIOD_SECONDS="0")
    if moment == "stop":
        await until(lambda: len(worker.lines("started")) == 1)
    else:
        await worker.wrote("begins to start")
    worker.process.send_signal(signal.SIGTERM)
    await worker.wrote(f"begins to {moment}")
    told_at = time.monotonic()
    assert await worker.ended(seconds=25) == 0
    assert time.monotonic() - told_at > 9
    assert "is blocked by its app's lifespan or observers and ends" in worker.text


async def test_observers_that_block_the_loop_when_a_worker_starts_or_stops_are_given_up_alike(
    start: Start, hf: Holdfast, tmp_path: Path
) -> None:
    workers = {}
    for moment in ("started", "stopped"):
        hanging = app(tmp_path, observed=moment, name=moment)
        grace = {"HOLDFAST_SHUTDOWN_GRACE_PERIOD_SECONDS": "0"}
        workers[moment] = start("worker", "--app", hanging, folder=tmp_path, **grace)
    await workers["started"].wrote("observes")
    await until(lambda: len(workers["stopped"].lines("started")) == 1)
    for worker in workers.values():
        worker.process.send_signal(signal.SIGTERM)
    for worker in workers.values():
        assert await worker.ended(seconds=30) == 0
        assert "is blocked by its app's lifespan or observers and ends" in worker.text


async def test_a_third_signal_ends_a_worker_whose_event_loop_is_blocked(start: Start, tmp_path: Path) -> None:
    blocked = "[time.sleep(1) for _ in range(3600)]"
    worker = start("worker", "--app", app(tmp_path, start=blocked), folder=tmp_path)
    await worker.wrote("begins to start")
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGTERM):
        assert worker.process.poll() is None
        worker.process.send_signal(number)
        await asyncio.sleep(0.2)  # two signals at once may be one
    assert await worker.ended(seconds=5) == 128 + signal.SIGTERM


async def test_a_hangup_drains(start: Start, hf: Holdfast) -> None:
    worker = start("worker", "--app", TASKS)
    job = await hf.enqueue("nap", {"seconds": 0.5})
    await worker.wrote("begins to nap")
    worker.process.send_signal(signal.SIGHUP)
    assert await worker.ended() == 0
    assert (await hf.get(job)).state is State.SUCCESS


PAUSE = """
import os, pathlib, time
if {condition}:
    print("has no handlers yet", flush=True)
    while not pathlib.Path("go").exists():
        time.sleep(0.01)
"""
STUCK = """
import threading
from holdfast import Holdfast, RetryPolicy

hf = Holdfast()

@hf.job("stuck", timeout=0.2, retry=RetryPolicy(max_attempts=1))
def stuck(ctx): threading.Event().wait(120)
"""


@pytest.mark.parametrize("moment", ["the interpreter starts", "the app is imported"])
async def test_a_signal_counts_while_a_process_replaces_itself(
    start: Start, hf: Holdfast, tmp_path: Path, moment: str
) -> None:
    """The new program has no handlers then, and would die of it before it has settled anything."""
    anew = "'HOLDFAST_REMAINS' in os.environ"
    imported = "pathlib.Path('imported').exists()"
    early = moment == "the interpreter starts"
    (tmp_path / "sitecustomize.py").write_text(PAUSE.format(condition=anew) if early else "")
    pause = "" if early else PAUSE.format(condition=imported) + "pathlib.Path('imported').touch()\n"
    (tmp_path / "thread.py").write_text(pause + STUCK)
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    worker = start("worker", "--app", "thread:hf", "--stuck-after", "0.2", folder=tmp_path, PYTHONPATH=path)
    job = await hf.enqueue("stuck", {})
    await worker.wrote("has no handlers yet")
    worker.process.send_signal(signal.SIGTERM)
    await asyncio.sleep(0.2)  # it would have died of it
    (tmp_path / "go").touch()
    assert await worker.ended() == 0
    assert [a.outcome for a in await hf.attempts(job)] == ["timeout"]
    assert len(worker.lines("started")) == 1


async def test_a_real_time_signal_ends_no_process_and_one_that_is_killed_is_started_again(start: Start) -> None:
    workers = start("worker", "--app", TASKS, "--processes", 2)
    await until(lambda: len(workers.lines("started")) == 2)
    first, second = workers.children()
    os.kill(first, signal.SIGRTMIN + 2)
    os.kill(second, signal.SIGKILL)
    await until(lambda: len(workers.lines("started")) == 3)
    assert "was killed by SIGKILL and is restarted" in workers.text
    assert alive(first)
    workers.process.send_signal(signal.SIGTERM)
    assert await workers.ended() == 0


def test_the_end_of_a_process_by_a_signal_without_a_name_is_told() -> None:
    assert _ending(-(signal.SIGRTMIN + 2)) == f"was killed by signal {signal.SIGRTMIN + 2}"


async def test_a_third_signal_ends_processes_that_stand_still(start: Start) -> None:
    workers = start("worker", "--app", TASKS, "--processes", 2)
    await until(lambda: len(workers.lines("started")) == 2)
    children = workers.children()
    os.kill(children[0], signal.SIGSTOP)
    workers.process.send_signal(signal.SIGTERM)
    await until(lambda: not alive(children[1]), what="the other one has drained")
    workers.process.send_signal(signal.SIGTERM)
    await asyncio.sleep(0.2)  # two signals at once may be one
    workers.process.send_signal(signal.SIGTERM)
    assert await workers.ended(seconds=5) == 128 + signal.SIGTERM
    await until(lambda: not alive(children[0]), what="the one that stood still is gone")


async def test_a_worker_starts_though_standard_error_is_closed(hf: Holdfast, database_url: str) -> None:
    job = await hf.enqueue("add", {"a": 1, "b": 1})
    command = f"exec {sys.executable} -m holdfast worker --app {TASKS} --burst <&- >&- 2>&-"
    worker = await asyncio.create_subprocess_shell(
        command, cwd=ROOT, env={**os.environ, "HOLDFAST_DATABASE_URL": database_url}
    )
    assert await asyncio.wait_for(worker.wait(), 30) == 0
    assert (await hf.get(job)).state is State.SUCCESS


async def test_a_worker_works_and_ends_though_nobody_reads_its_log(hf: Holdfast, database_url: str) -> None:
    job = await hf.enqueue("talkative", {})
    unread, error = os.pipe()
    worker = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "holdfast", "worker", "--app", TASKS, "--burst"),
        stderr=error,
        cwd=ROOT,
        env={**os.environ, "HOLDFAST_DATABASE_URL": database_url},
    )
    try:
        assert await asyncio.wait_for(worker.wait(), 30) == 0
    finally:
        os.close(unread)
        os.close(error)
    assert (await hf.get(job)).state is State.SUCCESS


DEAF = """
import asyncio, signal
from holdfast import Holdfast

hf = Holdfast()
WAYS = {
    "ignore": lambda number: signal.signal(number, signal.SIG_IGN),
    "remove": lambda number: asyncio.get_running_loop().remove_signal_handler(number),
    "add": lambda number: asyncio.get_running_loop().add_signal_handler(number, lambda: None),
}

@hf.job("deafen")
async def deafen(ctx, way):
    if way == "remove":
        WAYS["add"](signal.SIGTERM)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        WAYS[way](number)
"""


@pytest.mark.parametrize("way", ["ignore", "remove", "add"])
async def test_a_handler_that_replaces_handlers_of_signals_makes_no_worker_deaf(
    start: Start, hf: Holdfast, tmp_path: Path, way: str
) -> None:
    (tmp_path / "deaf.py").write_text(DEAF)
    worker = start("worker", "--app", "deaf:hf", folder=tmp_path)
    await reached(hf, await hf.enqueue("deafen", {"way": way}), "success")
    await worker.wrote("something replaced the handlers of SIGTERM")
    worker.process.terminate()
    assert await worker.ended() == 0

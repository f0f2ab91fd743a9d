"""`executor="process"`: how handlers in processes of their own are stopped, and what becomes of those that die."""

from __future__ import annotations

import asyncio
import dataclasses
import errno
import inspect
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import Context, Holdfast
from holdfast.lifecycle.elapsed import elapsed
from holdfast.worker import endings
from holdfast.worker.claimed import Claimed
from holdfast.worker.processes import pool
from holdfast.worker.processes.child import Child
from holdfast.worker.processes.launch import Launch
from holdfast.worker.starts import Starts
from tests.harness.inprocess import reached, working
from tests.harness.slowness import Slowness
from tests.harness.stuck import waits_in_c
from tests.harness.waiting import until
from tests.worker import cpu_bound
from tests.worker.children import alive, begun, children, limit, opened, run_through

pytestmark = pytest.mark.usefixtures("warm_children")


@pytest.fixture
async def hf(database_url: str) -> AsyncIterator[Holdfast]:
    """An app with the handlers that are to run in processes, and an asynchronous one."""
    async with opened(database_url, cpu_bound.hf) as app:
        yield app


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    """A file that a handler writes when it has begun."""
    return tmp_path / "mark"


async def test_an_idle_child_that_was_killed_costs_the_next_job_nothing(hf: Holdfast) -> None:
    async with working(hf) as worker:
        first = await hf.wait((await hf.enqueue("tell")).id, timeout=30)
        # Held still, so that its end comes to light only when it has been given the next job.
        (child,) = children(worker)
        os.kill(child.pid, signal.SIGSTOP)
        second = await hf.enqueue("tell")
        await until(lambda: child not in worker._execution._processes._idle)
        os.kill(child.pid, signal.SIGKILL)
        done = await hf.wait(second.id, timeout=30)
    assert (done.state, done.attempt) == ("success", 1)
    assert done.result["pid"] != first.result["pid"]


@pytest.mark.parametrize("why", ["cancel", "timeout"])
async def test_a_catastrophic_regular_expression_is_interrupted_and_cleans_up(
    hf: Holdfast, mark: Path, why: str
) -> None:
    limit(hf, "regex", 0.5 if why == "timeout" else None)
    async with working(hf):
        job = await begun(hf, "regex", mark)
        if why == "cancel":
            await hf.cancel(job.id)
        began = time.monotonic()
        done = await hf.wait(job.id, timeout=30)
        assert time.monotonic() - began < 4, "the grace was not needed"
    (attempt,) = await hf.attempts(job.id)
    assert Path(f"{mark}.cleaned").exists()
    if why == "cancel":
        assert (done.state, done.failures, attempt.outcome) == ("canceled", 0, "canceled")
    else:
        assert (done.state, attempt.outcome, attempt.error_type) == ("dead", "timeout", "Timeout")


@pytest.mark.parametrize("why", ["cancel", "pause", "timeout"])
async def test_an_endless_call_in_c_is_killed_after_the_grace(
    hf: Holdfast, mark: Path, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "GRACE_SECONDS", 0.5)
    limit(hf, "c call", 0.5 if why == "timeout" else None)
    async with working(hf):
        job = await begun(hf, "c call", mark)
        pid = int(await until(mark.read_text))
        if why == "timeout":
            done = await hf.wait(job.id, timeout=30)
            assert (done.state, [a.outcome for a in await hf.attempts(job.id)]) == ("dead", ["timeout"])
        else:
            await (hf.cancel(job.id) if why == "cancel" else hf.pause(job.id))
            done = await reached(hf, job, "canceled", "paused", seconds=10)
            assert (done.state, done.failures) == ("canceled" if why == "cancel" else "paused", 0)
        assert not alive(pid), "it had ended before its job was settled"


async def test_a_handler_that_timed_out_has_timed_out_though_its_worker_drains(
    hf: Holdfast, mark: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "GRACE_SECONDS", 3.0)
    limit(hf, "c call", 0.5)
    async with working(hf) as worker:
        job = await begun(hf, "c call", mark)
        (claimed,) = worker._claimed.all()
        await until(lambda: claimed.late, what="its time is over")
        worker.drain()
        worker.drain()
        await until(lambda: claimed.interrupt == "drain", what="the drain interrupts it")
    assert [a.outcome for a in await hf.attempts(job.id)] == ["timeout"]


async def test_the_call_in_c_indeed_ignores_the_signal(hf: Holdfast, mark: Path) -> None:
    """What the tests beside this one assume."""
    async with working(hf) as worker:
        job = await begun(hf, "c call", mark)
        (child,) = children(worker)
        await until(lambda: waits_in_c(child.pid), what="it has come to the call")
        child.interrupt()
        await asyncio.sleep(1)
        assert alive(child.pid)
        assert (await hf.get(job.id)).state == "running"
        child.kill()
        assert (await hf.wait(job.id, timeout=30)).last_error == (
            "the handler's process was killed by SIGKILL, perhaps for want of memory"
        )


@pytest.mark.parametrize("target", [None, "a target"])
async def test_a_fast_job_runs_at_once_while_a_child_spins_and_leases_are_renewed(
    hf: Holdfast, mark: Path, monkeypatch: pytest.MonkeyPatch, target: str | None, slow: Slowness
) -> None:
    """With a target the child has a guard, which hears of renewals without the child, where nothing else runs."""
    monkeypatch.setattr(pool, "GRACE_SECONDS", 0.2)
    hf.config = dataclasses.replace(hf.config, lease_sec_default=1, heartbeat_seconds=0.2)
    kind = "c loop" if target is None else "c call"
    limit(hf, kind, None, lease=1.0)
    async with working(hf, lanes={"general": 3}):
        job = await hf.enqueue(kind, {"mark": str(mark)}, target=target)
        await until(mark.exists, what="the handler begins")
        end = time.monotonic() + 3
        while time.monotonic() < end:
            began = time.monotonic()
            quick = await hf.enqueue("quick")
            assert (await hf.wait(quick.id, timeout=10)).state == "success"
            assert time.monotonic() - began < 1 * slow.factor
            await asyncio.sleep(0.05)  # else this loop is what keeps the processor busy
        running = await hf.get(job.id)
        assert (running.state, running.attempt) == ("running", 1), "three leases long"
        await hf.cancel(job.id)
        assert (await hf.wait(job.id, timeout=10)).attempt == 1


@pytest.mark.parametrize("how", ["return", "hold", "fail"])
async def test_a_handler_that_comes_to_its_own_end_is_believed(hf: Holdfast, mark: Path, how: str) -> None:
    async with working(hf) as worker:
        job = await begun(hf, "despite", mark, how=how)
        await hf.cancel(job.id)
        done = await reached(hf, job, "success", "error", "canceled", seconds=10)
        await until(lambda: not children(worker), what="the interrupted child is not kept")
    if how == "return":
        assert (done.state, done.result) == ("success", "done all the same, True")
    elif how == "hold":
        assert (done.state, done.last_error) == ("error", "the token limit is reached")
    else:
        assert (done.state, done.failures) == ("canceled", 0)


async def test_an_interruption_never_cuts_a_message_to_the_worker_in_half(hf: Holdfast, tmp_path: Path) -> None:
    async with working(hf):
        for number in range(3):
            job = await begun(hf, "chatty", tmp_path / f"mark {number}")
            await hf.cancel(job.id)
            done = await reached(hf, job, "success", "canceled", seconds=20)
            assert done.result == "all understood"
            (attempt,) = await hf.attempts(job.id)
            assert (attempt.log_excerpt or "").endswith("WARNING and out")


async def test_sigterm_of_others_does_not_disturb_a_handler(hf: Holdfast, mark: Path) -> None:
    """A service manager signals all processes of a service; the worker lets its jobs finish."""
    async with working(hf):
        job = await begun(hf, "sleep", mark, seconds=1)
        pid = int(await until(mark.read_text))
        for number in (signal.SIGTERM, signal.SIGINT):
            os.kill(pid, number)
        done = await hf.wait(job.id, timeout=30)
    assert (done.state, done.result) == ("success", "slept")


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("exit", "the handler's process exited with code 7"),
        ("segmentation fault", "the handler's process was killed by SIGSEGV"),
        ("killed", "the handler's process was killed by SIGKILL, perhaps for want of memory"),
        ("nonsense", "the handler's process sent an invalid message: not a frame: b'[]'"),
    ],
)
async def test_a_crash_fails_only_its_own_job(hf: Holdfast, mark: Path, how: str, message: str) -> None:
    async with working(hf, lanes={"general": 2}):
        other = await begun(hf, "sleep", mark, seconds=1)
        job = await hf.enqueue("crash", {"how": how}, max_attempts=2)
        failed = await reached(hf, job, "retry")
        assert failed.last_error == message
        (attempt,) = await hf.attempts(job.id)
        assert (attempt.outcome, attempt.error_type) == ("failed", "ProcessDied")
        assert (await hf.wait(other.id, timeout=30)).result == "slept"
        after = await hf.enqueue("tell")
        assert (await hf.wait(after.id, timeout=30)).state == "success"


async def test_what_a_handler_started_is_killed_with_it(
    hf: Holdfast, mark: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "GRACE_SECONDS", 0.2)
    async with working(hf):
        job = await begun(hf, "offspring", mark)
        pid = int(await until(mark.read_text))
        await hf.cancel(job.id)
        await hf.wait(job.id, timeout=30)
        await until(lambda: not alive(pid), seconds=5)


async def test_the_time_of_one_order_does_not_end_the_next(hf: Holdfast, mark: Path) -> None:
    limit(hf, "tell", None, lease=1.2)
    async with working(hf, lanes={"general": 1}) as worker:
        first = await hf.wait((await hf.enqueue("tell", target="a target")).id, timeout=30)
        job = await begun(hf, "sleep", mark, seconds=2)
        (child,) = children(worker)
        assert child.pid == first.result["pid"]
        assert (await hf.wait(job.id, timeout=30)).state == "success"


async def test_a_child_that_was_ended_with_its_lease_costs_no_attempt(hf: Holdfast, mark: Path) -> None:
    """The worker finds out later than the guard, but its lease has not been swept yet."""
    async with working(hf) as worker:
        job = await hf.enqueue("sleep", {"mark": str(mark), "seconds": 60}, target="a target", max_attempts=1)
        await until(mark.exists, what="the handler begins")
        claimed = worker._claimed.get(job.id)
        assert claimed is not None
        assert claimed.renewed is not None
        claimed.renewed(elapsed())
        (attempt,) = await until(lambda: hf.attempts(job.id), what="the attempt ends")
        assert (attempt.outcome, attempt.error_message) == ("released", "the lease could not be renewed")
        assert (await hf.get(job.id)).failures == 0
        await hf.cancel(job.id)
        await reached(hf, job, "canceled", seconds=15)


ORPHANS = """
import asyncio, ctypes, os
from pathlib import Path
from holdfast.worker.processes.child import Child

PR_SET_CHILD_SUBREAPER = 36
ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

async def main():
    child = Child()
    await child.greet()
    child.kill()
    child.join(10)
    child.close()
    print(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())

asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets a process inherit orphans, as the first one does")
def test_a_worker_that_inherits_orphans_reaps_what_its_child_leaves_behind() -> None:
    """As the first process of a container does: the guard of each child would stay there as a zombie."""
    done = subprocess.run([sys.executable, "-c", ORPHANS], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"


async def test_nobody_waits_while_the_rest_of_a_group_is_reaped(monkeypatch: pytest.MonkeyPatch) -> None:
    reaping, over = threading.Event(), threading.Event()

    def reap_orphans(_child: Child) -> None:
        reaping.set()
        over.wait(10)

    monkeypatch.setattr(Child, "_reap_orphans", reap_orphans)
    child = Child()
    try:
        child.kill()
        await asyncio.to_thread(reaping.wait, 10)
        began = time.monotonic()
        child.kill()
        child.interrupt()
        assert await asyncio.wait_for(child.ended, 5) == -signal.SIGKILL
        assert time.monotonic() - began < 5
    finally:
        over.set()
        child.close()


@pytest.mark.usefixtures("cold_children")
async def test_a_child_that_does_not_begin_in_time_fails_the_job(hf: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "START_SECONDS", 0.05)
    job = await run_through(hf, "tell", max_attempts=1)
    (attempt,) = await hf.attempts(job.id)
    assert (attempt.error_type, job.last_error) == (
        "ProcessDied",
        "the handler's process did not begin within 0.05 s",
    )


async def test_a_process_whose_end_no_thread_can_await_is_ended_and_costs_no_attempt(
    hf: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endings, "START_AGAIN_SECONDS", 0.01)
    start, refused = threading.Thread.start, list[str]()

    def refuse_once(thread: threading.Thread) -> None:
        if thread.name.startswith("holdfast-child") and not refused:
            refused.append(thread.name)
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse_once)
    job = await run_through(hf, "tell", max_attempts=1)
    assert [attempt.outcome for attempt in await hf.attempts(job.id)] == ["snoozed", "success"]
    assert not alive(int(refused[0].rpartition("-")[2]))


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EAGAIN, errno.ENOMEM, errno.ENOENT])
async def test_a_process_for_which_the_system_has_no_room_costs_no_attempt(
    hf: Holdfast, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(endings, "START_AGAIN_SECONDS", 0.01)
    monkeypatch.setattr(pool, "_GONE_SECONDS", 0.01)
    pair, refused = socket.socketpair, list[int]()

    def refuse_once(*arguments: Any, **more: Any) -> Any:
        if not refused and inspect.stack()[1].frame.f_globals["__name__"].startswith("holdfast.worker.processes"):
            refused.append(number)
            raise OSError(number, os.strerror(number))
        return pair(*arguments, **more)

    monkeypatch.setattr(socket, "socketpair", refuse_once)
    job = await run_through(hf, "tell", max_attempts=1)
    assert refused
    assert [attempt.outcome for attempt in await hf.attempts(job.id)] == ["snoozed", "success"]


async def test_a_child_that_stands_still_when_it_may_begin_costs_no_attempt_and_no_turn(
    hf: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "_BEGIN_SECONDS", 0.3)
    begin, stopped = Starts.begin, asyncio.Event()

    async with working(hf, lanes={"general": 2}) as worker:

        async def begin_and_freeze(starts: Starts, claimed: Claimed) -> None:
            await begin(starts, claimed)
            if claimed.type == "tell" and not stopped.is_set():
                (child,) = children(worker)
                os.kill(child.pid, signal.SIGSTOP)
                stopped.set()

        monkeypatch.setattr(Starts, "begin", begin_and_freeze)
        frozen = await hf.enqueue("tell", max_attempts=1)
        await stopped.wait()
        other = await hf.enqueue("quick", max_attempts=1)
        assert (await hf.wait(other.id, timeout=15)).state == "success"
        done = await hf.wait(frozen.id, timeout=15)
    assert (done.state, done.failures) == ("success", 0)
    first, _ = await hf.attempts(frozen.id)
    assert (first.outcome, first.error_message) == ("released", "the handler's process did not respond for 0.3 s")


@pytest.mark.usefixtures("cold_children")
async def test_a_timeout_does_not_count_while_a_cold_child_starts(hf: Holdfast, slow: Slowness) -> None:
    seconds = 0.15 * slow.factor
    limit(hf, "tell", seconds)
    job = await run_through(hf, "tell", max_attempts=1)
    assert job.state == "success"
    (attempt,) = await hf.attempts(job.id)
    assert (attempt.duration_ms or 0) < 1000 * seconds


async def test_a_child_ends_when_its_connection_to_the_worker_closes(hf: Holdfast) -> None:
    """As it does where the kernel does not kill it with its parent."""
    async with working(hf) as worker:
        pid = (await hf.wait((await hf.enqueue("tell")).id, timeout=30)).result["pid"]
        (child,) = children(worker)
        child.close()
        await until(lambda: not Path(f"/proc/{pid}").exists(), seconds=5)


@pytest.mark.usefixtures("cold_children")
@pytest.mark.parametrize("what", ["a module in front", "no path", "another environment", "another folder", "no Python"])
async def test_children_start_as_their_worker_did(
    hf: Holdfast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """Whatever handlers in the worker's own process have changed there."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "executable", sys.executable)
    monkeypatch.chdir(Path.cwd())
    folder = str(Path.cwd())
    (tmp_path / "queue.py").write_text("raise SystemExit('not the queue that was meant')")

    @hf.job("change")
    async def change(ctx: Context) -> None:
        match what:
            case "a module in front":
                sys.path.insert(0, str(tmp_path))
            case "no path":
                sys.path.clear()
            case "another environment":
                monkeypatch.setenv("PYTHONHOME", str(tmp_path))
            case "another folder":
                os.chdir(tmp_path)
            case _:
                sys.executable = "/nowhere/python"

    async with working(hf):
        await reached(hf, await change.enqueue(), "success")
        job = await hf.enqueue("folder", max_attempts=1)
        done = await hf.wait(job.id, timeout=30)
    assert (done.state, done.attempt, done.result) == ("success", 1, folder), done.last_error


@pytest.mark.usefixtures("cold_children")
async def test_a_child_that_dies_before_its_handler_began_costs_no_attempt(
    hf: Holdfast, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(pool, "_DIED_SECONDS", 0.01)
    greeting, spoiled = Launch.greeting, list[int]()

    def spoil_twice(launch: Launch) -> dict[str, Any]:
        told = greeting(launch)
        if len(spoiled) < 2:
            spoiled.append(1)
            told["path"] = []  # it does not find Holdfast
        return told

    monkeypatch.setattr(Launch, "greeting", spoil_twice)
    job = await run_through(hf, "tell", max_attempts=1)
    assert (job.state, job.failures) == ("success", 0)
    outcomes = [(attempt.outcome, attempt.error_message) for attempt in await hf.attempts(job.id)]
    assert [outcome for outcome, _ in outcomes] == ["snoozed", "snoozed", "success"]
    assert "could not be started: the handler's process exited with code 1" in str(outcomes[0][1])
    assert "exited with code 1 before the handler began" in caplog.text

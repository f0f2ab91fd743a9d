"""`executor="process"`: what a handler leaves behind in its process never touches another job."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest

from holdfast import Holdfast
from holdfast.worker.attempts import Attempts
from holdfast.worker.processes.company import Company
from tests.harness.inprocess import reached, working
from tests.harness.waiting import until
from tests.worker import leftovers
from tests.worker.children import begun, children, opened
from tests.worker.lapse import lapse

ONE = {"general": 1}

pytestmark = pytest.mark.usefixtures("warm_children")


@pytest.fixture
async def hf(database_url: str) -> AsyncIterator[Holdfast]:
    """An app whose handlers are untidy."""
    async with opened(database_url, leftovers.hf) as app:
        yield app


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    """A file that a handler writes when it has begun."""
    return tmp_path / "mark"


async def test_a_forked_copy_sends_no_answer(hf: Holdfast, tmp_path: Path) -> None:
    """It ends as any program would, its parent alone says how the job ended, and the child is used again."""
    ends = {
        "return": (0, ""),
        "exit": (3, ""),
        "message": (1, "enough\n"),
        "raise": (1, "ValueError: in the copy\n"),
        "speak": (0, "a line of the copy\n"),
        "again": (0, ""),
    }
    jobs = {how: await hf.enqueue("fork", {"how": how, "log": str(tmp_path / how)}) for how in ends}
    last = await hf.enqueue("pid")
    async with working(hf, lanes=ONE) as worker:
        for how, (code, told) in ends.items():
            done = await hf.wait(jobs[how], timeout=30)
            assert (done.state, done.result) == ("success", ["original", code]), how
            written = (tmp_path / how).read_text()
            assert written.endswith(told)
            assert bool(written) == bool(told), written
            (attempt,) = await hf.attempts(done.id)
            assert attempt.log_excerpt is None
        (child,) = children(worker)
        assert (await hf.wait(last, timeout=30)).result == child.pid
    assert await hf.find(types=["child"]) == []


async def test_processes_that_a_handler_forks_can_be_terminated(hf: Holdfast) -> None:
    jobs = [await hf.enqueue("terminate", {"how": how}) for how in ("process", "pool")]
    async with working(hf, lanes=ONE):
        ends = [await hf.wait(job, timeout=30) for job in jobs]
    assert [(done.state, done.result) for done in ends] == [("success", -15), ("success", 0)]


async def test_a_handler_is_interrupted_though_it_forks_all_the_time(hf: Holdfast, tmp_path: Path) -> None:
    async with working(hf):
        for number in range(3):
            mark = tmp_path / f"mark {number}"
            job = await begun(hf, "fork busily", mark)
            await hf.cancel(job)
            await reached(hf, job, "canceled", seconds=10)
            assert Path(f"{mark}.cleaned").exists(), "the grace was not needed"


async def test_a_second_answer_is_not_taken_for_that_of_the_next_job(hf: Holdfast) -> None:
    jobs = [await hf.enqueue(name) for name in ("twice", "pid", "pid")]
    async with working(hf, lanes=ONE):
        first, second, third = [(await hf.wait(job, timeout=30)).result for job in jobs]
    assert first == "said twice"
    assert isinstance(second, int)
    assert second != third, "a child that speaks out of turn is not kept"


async def test_an_answer_before_the_handler_began_is_refused(hf: Holdfast, mark: Path) -> None:
    async with working(hf, lanes=ONE):
        first = await begun(hf, "foretell", mark)
        second = await hf.wait((await hf.enqueue("pid")).id, timeout=30)
    assert (second.state, second.attempt) == ("success", 1)
    assert second.result not in (0, (await hf.get(first)).result), "it has run, in another child"


@pytest.mark.parametrize("when", ["idle", "busy"])
async def test_a_thread_left_behind_has_no_part_in_the_next_job(hf: Holdfast, mark: Path, when: str) -> None:
    """Even if the child did not notice it, and is used again."""
    told = Path(f"{mark}.told")
    async with working(hf, lanes=ONE) as worker:
        first = await hf.wait((await hf.enqueue("thread", {"mark": str(mark)})).id, timeout=30)
        if when == "idle":
            Path(f"{mark}.go").touch()
            await until(told.exists, seconds=10, what="the thread is not left waiting")
        failed = await hf.wait((await hf.enqueue("stumble", {"mark": str(mark)})).id, timeout=30)
        third = await hf.wait((await hf.enqueue("pid")).id, timeout=30)
        assert len(children(worker)) == 1
    assert (failed.state, failed.last_error) == ("dead", f"in process {first.result}")
    (attempt,) = await hf.attempts(failed.id)
    assert attempt.log_excerpt is None
    assert json.loads(told.read_text()) == {
        "log": None,
        "enqueue": "HoldfastError: the handler of this attempt has ended; nothing is recorded for it any more",
        "transaction": ("HoldfastError: the handler of this attempt has ended; it can no longer begin a transaction"),
    }
    assert await hf.find(types=["child"]) == []
    assert third.result != first.result, "a child in which somebody else speaks is not kept"


@pytest.mark.usefixtures("effects")
async def test_a_transaction_left_open_ends_with_its_child(hf: Holdfast, conn: asyncpg.Connection) -> None:
    async with working(hf, lanes=ONE):
        first = await hf.wait((await hf.enqueue("open transaction")).id, timeout=30)
        second = await hf.wait((await hf.enqueue("pid")).id, timeout=30)
        assert second.result != first.result
        await until(lambda: _none_open(conn), seconds=10, what="the transaction has ended")
    assert await conn.fetchval("select count(*) from public.effects") == 0


@pytest.mark.usefixtures("effects")
async def test_a_stale_attempt_commits_nothing(
    hf: Holdfast, mark: Path, conn: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lease is swept while the child's transaction is open; the next attempt alone has an effect."""
    monkeypatch.setattr(Attempts, "lost", lambda _attempts, _claimed: None)  # as if it did not stop with its lease
    async with working(hf):
        job = await begun(hf, "slow post", mark)
        await lapse(conn)
        Path(f"{mark}.go").touch()
        done = await hf.wait(job, timeout=30)
    assert Path(f"{mark}.raised").read_text() == "LeaseLost"
    assert done.attempt > 1
    assert await conn.fetchval("select array_agg(job_id) from public.effects") == [job.id]
    assert (await hf.attempts(job))[0].outcome == "lost"


async def test_every_handler_begins_in_the_same_folder(hf: Holdfast, tmp_path: Path) -> None:
    jobs = [await hf.enqueue("wander", {"to": str(tmp_path / "elsewhere")}) for _ in range(2)]
    async with working(hf, lanes=ONE):
        results = [(await hf.wait(job, timeout=30)).result for job in jobs]
    assert results[0] == results[1]
    assert results[0][1] == str(Path.cwd())


async def _none_open(conn: asyncpg.Connection) -> bool:
    return bool(
        await conn.fetchval(
            "select count(*) = 0 from pg_stat_activity "
            "where datname = current_database() and state like 'idle in transaction%'"
        )
    )


@pytest.mark.parametrize("what", leftovers.LEFT)
async def test_a_child_is_kept_only_if_nothing_of_its_handler_lives_on(hf: Holdfast, what: str) -> None:
    """Settings are restored; threads and processes could do anything to the next job."""
    async with working(hf, lanes=ONE):
        first = await hf.wait((await hf.enqueue("leave", {"what": what})).id, timeout=30)
        second = await hf.wait((await hf.enqueue("rest")).id, timeout=30)
    assert (first.state, second.state) == ("success", "success"), (first.last_error, second.last_error)
    assert (first.result == second.result) is (what in leftovers.KEPT)


def test_every_look_at_a_child_finds_what_it_looks_for() -> None:
    """In a process of its own, with a copy of it for each of them."""
    run = subprocess.run(
        [sys.executable, "-m", "tests.worker.kernel_leftovers"], capture_output=True, text=True, check=False, timeout=60
    )
    found = json.loads(run.stdout or "{}")
    assert found.pop("nothing") == [False, True], run.stderr
    assert found.pop("hooks of the interpreter") == [False, True], "they are restored"
    assert found == {name: [True, True] for name in found}
    assert len(found) > 5


async def test_a_child_that_is_not_used_again_has_a_successor_at_once(hf: Holdfast) -> None:
    async with working(hf, lanes=ONE) as worker:
        first = await hf.wait((await hf.enqueue("leave", {"what": "timer"})).id, timeout=30)
        (successor,) = await until(lambda: [c for c in children(worker) if c.pid != first.result], what="it starts")
        second = await hf.wait((await hf.enqueue("pid")).id, timeout=30)
        assert second.result == successor.pid
        await until(lambda: len(children(worker)) == 1, what="no more than one is kept")
        third = await hf.wait((await hf.enqueue("pid")).id, timeout=30)
        assert third.result == successor.pid


async def test_threads_of_an_app_are_not_those_of_a_handler(hf: Holdfast, conn: asyncpg.Connection) -> None:
    """A payload that does not fit: no handler has begun, but the module has started a thread."""
    async with working(hf, lanes=ONE) as worker:
        await reached(hf, await hf.enqueue("quick"), "success")
        await conn.execute("select holdfast.enqueue('leave', '{}')")
        (child,) = await until(lambda: set(children(worker)), what="a child starts")
        await until(lambda: hf.find(types=["leave"], states=["error"]), what="it is held")
        second = await hf.wait((await hf.enqueue("pid")).id, timeout=30)
    assert second.result == child.pid


async def test_a_child_that_stands_still_after_other_jobs_costs_the_next_job_nothing(
    hf: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with working(hf, lanes=ONE) as worker:
        first = await hf.wait((await hf.enqueue("pid")).id, timeout=30)
        (child,) = children(worker)
        monkeypatch.setattr(worker._execution._processes, "_start_seconds", 0.3)
        os.kill(child.pid, signal.SIGSTOP)
        child.ended.add_done_callback(lambda _: monkeypatch.undo())
        second = await hf.wait((await hf.enqueue("pid")).id, timeout=30)
    assert (second.state, second.attempt, second.failures) == ("success", 1, 0)
    assert second.result != first.result


def test_a_thread_that_is_about_to_end_is_waited_for_and_another_one_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    company, end = Company(), threading.Event()
    company.begin()
    thread = threading.Thread(target=end.wait)
    thread.start()
    assert company.left(set)

    def let_it_end(_seconds: float) -> None:
        end.set()
        thread.join()

    monkeypatch.setattr("holdfast.worker.processes.company.time.sleep", let_it_end)
    company._begun = True
    assert not company.left(set)

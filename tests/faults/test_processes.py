"""Handlers in processes of their own, when their worker is killed or drained."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import asyncpg
import pytest

from holdfast import Holdfast, JobRef
from tests.faults.conftest import NewFleet, started_warm
from tests.harness.deeds import Deeds
from tests.harness.fleet import Fleet, judge
from tests.harness.waiting import until

HOWS = ("call", "expression", "sleep")


@pytest.fixture
def new_fleet(tmp_path: Path, deeds: Deeds) -> Iterator[NewFleet]:
    """Fleets of the app that computes, or of another one."""
    with ExitStack() as stack:

        def new(url: str, module: str = "tests.faults.computing", **settings: object) -> Fleet:
            quick = {"lease_sec_default": 2, "heartbeat_seconds": 0.3, "poll_interval": 0.5, "lanes": "general=4"}
            folder = tmp_path / "history"
            fleet = Fleet(module, url, folder, start=started_warm, **{**quick, **settings})
            return stack.enter_context(deeds.watch(fleet))

        yield new
        deeds.count()


async def test_children_die_with_a_killed_worker_and_another_one_runs_their_jobs(fleet: Fleet, hf: Holdfast) -> None:
    worker = fleet.spawn()
    jobs = [await hf.enqueue("compute", {"how": how, "seconds": 600}) for how in (*HOWS, "program")]
    pids = [await _begun(fleet, job) for job in jobs]
    assert worker.pid not in pids
    programs = await until(lambda: _children(pids[-1]), what="the program runs")
    worker.kill()
    killed = time.monotonic()
    gone = [*pids, *programs]
    await until(lambda: not any(_alive(pid) for pid in gone), seconds=2, what="they and what they started are gone")
    for pid in pids:
        fleet.history.note("killed", process=pid)
    print(f"gone after {time.monotonic() - killed:.2f} s")
    fleet.spawn()
    for job in jobs:
        done = await hf.wait(job.id, timeout=30)
        assert (done.state, done.attempt) == ("success", 2)
    await fleet.drained()
    await judge(hf, fleet.history)


@pytest.mark.usefixtures("warm_children")
@pytest.mark.parametrize("how", ["call", "sleep", "program"])
async def test_a_child_of_a_frozen_worker_is_gone_before_the_next_attempt_of_its_target_begins(
    fleet: Fleet, hf: Holdfast, conn: asyncpg.Connection, how: str
) -> None:
    frozen = fleet.spawn()
    job = await hf.enqueue("compute", {"how": how, "seconds": 600}, target="a target")
    fleet.history.enqueued(job.id, target="a target")
    pid = await _begun(fleet, job)
    pids = [pid, *(await until(lambda: _children(pid), what="the program runs") if how == "program" else [])]
    expiry = "select expires_at from leases where job_id = $1"
    first = await conn.fetchval(expiry, job.id)

    async def renewed_after() -> bool:
        return bool(await conn.fetchval(expiry, job.id) > first)

    await until(renewed_after, what="the lease is renewed")
    assert _alive(pid)
    frozen.freeze()
    fleet.spawn()
    await until(lambda: not any(_alive(p) for p in pids), seconds=10, what="the child is gone")
    assert len(_runs(fleet, job)) == 1, "the next attempt began before"
    fleet.history.note("killed", process=pid)
    assert (await hf.wait(job.id, timeout=60)).attempt == 2
    before = await hf.get(job.id), await hf.attempts(job.id)
    frozen.thaw()
    await until(lambda: frozen.lines("LeaseLost"), what="it learns of it")
    await fleet.drained()
    assert (await hf.get(job.id), await hf.attempts(job.id)) == before
    await judge(hf, fleet.history)


@pytest.mark.usefixtures("warm_children")
async def test_a_child_of_a_frozen_worker_runs_on_without_a_target(fleet: Fleet, hf: Holdfast) -> None:
    """Its lease is fenced, like that of any other handler; nothing is gained by ending it."""
    frozen = fleet.spawn()
    job = await hf.enqueue("compute", {"how": "sleep", "seconds": 600})
    pid = await _begun(fleet, job)
    frozen.freeze()
    fleet.spawn()
    assert (await hf.wait(job.id, timeout=60)).attempt == 2
    assert _alive(pid)


async def test_a_child_whose_worker_died_while_it_started_ends(fleet: Fleet, hf: Holdfast) -> None:
    await hf.enqueue("compute", {"how": "sleep", "seconds": 600})
    worker = fleet.spawn()
    (pid,) = await until(lambda: _children(worker.pid), what="a child is started")
    worker.kill()
    await until(lambda: not _alive(pid), seconds=2)


async def test_a_drain_lets_them_finish_though_all_processes_were_signalled(fleet: Fleet, hf: Holdfast) -> None:
    """As a service manager does."""
    worker = fleet.spawn()
    job = await hf.enqueue("compute", {"how": "sleep", "seconds": 2})
    pid = await _begun(fleet, job)
    os.kill(pid, signal.SIGTERM)
    worker.drain()
    assert await worker.ended() == 0
    done = await hf.get(job.id)
    assert (done.state, done.attempt) == ("success", 1)
    assert not _alive(pid)


@pytest.mark.usefixtures("warm_children")
async def test_after_the_grace_they_are_interrupted_and_no_attempt_is_burned(
    new_fleet: NewFleet, database_url: str, hf: Holdfast
) -> None:
    fleet = new_fleet(database_url, shutdown_grace_period_seconds=0.3, drain_policy="pause")
    worker = fleet.spawn()
    jobs = {
        how: await hf.enqueue("compute", {"how": how, "seconds": 600}, target="a target" if how == "sleep" else None)
        for how in HOWS
    }
    pids = [await _begun(fleet, job) for job in jobs.values()]
    worker.drain()
    assert await worker.ended() == 0
    assert not any(_alive(pid) for pid in pids)
    for how, job in jobs.items():
        back = await hf.get(job.id)
        assert (back.state, back.failures) == ("paused" if how == "sleep" else "queued", 0), how


@pytest.mark.usefixtures("warm_children")
@pytest.mark.parametrize("where", ["inside", "after"])
async def test_a_child_killed_with_its_worker_leaves_line_and_success_or_neither(
    new_fleet: NewFleet, hf: Holdfast, conn: asyncpg.Connection, tmp_path: Path, where: str
) -> None:
    await conn.execute("create table public.ledger (job_id uuid, attempt integer)")
    fleet = new_fleet(hf.config.database_url, "tests.faults.posting")
    worker = fleet.spawn()
    mark = tmp_path / "mark"
    job = await hf.enqueue("post", {"mark": str(mark), "where": where})
    await until(mark.exists, what="the handler waits")
    pids = _children(worker.pid)
    worker.kill()
    await until(lambda: not any(_alive(pid) for pid in pids), seconds=5, what="the child is gone")
    lines = "select array_agg(attempt) from public.ledger"
    left = (await hf.get(job)).state, await conn.fetchval(lines)
    assert left == (("running", None) if where == "inside" else ("success", [1]))
    fleet.spawn()
    done = await hf.wait(job, timeout=30)
    assert [done.attempt] == await conn.fetchval(lines) == ([2] if where == "inside" else [1])
    await fleet.drained()
    await judge(hf, fleet.history)


async def _begun(fleet: Fleet, job: JobRef) -> int:
    """The process in which the job's handler has begun."""

    def process() -> int | None:
        facts = fleet.history.facts()
        return next((f.process for f in facts if f.kind == "started" and f.job_id == job.id), None)

    pid: int = await until(process, what="the handler begins")
    return pid


def _runs(fleet: Fleet, job: JobRef) -> list[int]:
    return [f.process for f in fleet.history.facts() if f.kind == "started" and f.job_id == job.id]


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        found += [int(child) for child in (task / "children").read_text().split()]
    return found

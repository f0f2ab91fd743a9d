"""Everything is stopped under load, and stays stopped whatever crashes, until somebody lets it go on."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from uuid import UUID

import asyncpg
import pytest

from holdfast import DatabaseUnavailable, Holdfast
from holdfast.client.job_ref import JobRef
from holdfast.model.subject import Draining, Kind
from holdfast.store.embedded import EmbeddedPostgres
from tests.faults.conftest import NewFleet, crash, started_warm
from tests.harness.fleet import Fleet, WorkerProcess, judge
from tests.harness.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

ROUNDS = 6


async def test_what_is_drained_begins_nothing_however_busy_the_workers_were(
    new_fleet: NewFleet, database_url: str, hf: Holdfast
) -> None:
    """Claims of several processes are under way whenever a drain is recorded; those of another lane go on."""
    fleet = new_fleet(database_url, heartbeat_seconds=0.5, lanes="fast=2,general=8")
    for _ in range(3):
        fleet.spawn()
    await fleet.ready()
    ops, load = await hf.operations(), asyncio.create_task(_load(hf))
    quick: set[UUID] = set()
    subjects: list[tuple[Kind, str]] = [("type", "work"), ("lane", "general")]
    try:
        await until(lambda: fleet.history.count("ended") > 200, what="much is under way")
        for number in range(ROUNDS):
            kind, name = subjects[number % 2]
            await ops.drain(kind, name, by="ada", reason="maintenance")
            found = await ops.wait_drained(kind, name, timeout=60)
            begun = _begun(fleet, quick)
            assert (found.running, found.drained) == (0, True)
            for job in await hf.enqueue_many([("quick", {})] * 5):
                quick.add(job.id)
                assert (await hf.wait(job.id, timeout=60)).state == "success"
            assert _begun(fleet, quick) == begun
            await ops.resume(kind, name, by="ada")
            await until(lambda: _begun(fleet, quick) > begun, what="work goes on")  # noqa: B023 - used at once
    finally:
        load.cancel()
        await asyncio.gather(load, return_exceptions=True)
    await until(lambda: _idle(hf), seconds=120, what="all jobs end")
    await fleet.drained()
    await judge(hf, fleet.history)


async def test_a_stop_of_everything_survives_crashes_and_is_told_by_workers(
    server: EmbeddedPostgres, new_fleet: NewFleet
) -> None:
    fleet = new_fleet(server.url, heartbeat_seconds=0.3, lease_sec_default=4)
    workers = [fleet.spawn(), fleet.spawn()]
    await fleet.ready()
    async with Holdfast(server.url) as app:
        ops = await app.operations()
        first = await app.enqueue_many([("work", {"seconds": 0.3})] * 40)
        await until(lambda: fleet.history.count("started") > 10, what="much is under way")
        seen: list[Draining] = []
        await ops.drain(by="ada", reason="the disk is full")
        await ops.wait_drained(timeout=60, progress=seen.append)
        assert seen[0].running > 0
        assert seen[-1].drained
        begun = _begun(fleet)

        workers[0].kill()
        await crash(server)
        waiting = await until(lambda: _enqueued(app), what="PostgreSQL takes connections")
        fresh = fleet.spawn()
        await fleet.ready()
        for worker in (workers[1], fresh):
            told = await until(lambda: _told(worker), what="the log says why nothing runs")  # noqa: B023 - used at once
            assert told.startswith("claiming was stopped everywhere by ada at ")
            assert told.endswith('("the disk is full")')
        assert _begun(fleet) == begun
        found = await ops.draining()
        assert (found.drained, found.paused_by, found.paused_note) == (True, "ada", "the disk is full")
        assert (await ops.explain(waiting.id)).code == "everything-paused"

        await ops.resume("everything", by="bob")
        for job in (*first, waiting):
            done = await app.wait(job.id, timeout=60)
            assert (done.state, done.failures) == ("success", 0)
        assert "claims again" in [line["change"] for line in fresh.lines("WorkerChanged")]
        entries = await ops.keys.audit(limit=2)
        done_by = [(entry.action, entry.actor) for entry in entries]
        assert done_by == [("everything.resume", "bob"), ("everything.pause", "ada")]
        await fleet.drained()
        await judge(app, fleet.history)


async def test_a_wait_that_an_outage_ends_says_that_the_drain_holds(server: EmbeddedPostgres, tmp_path: Path) -> None:
    async with Holdfast(server.url) as app:
        await app.enqueue("work", {})
        conn = await asyncpg.connect(server.url)
        assert await conn.fetchval("select count(*) from holdfast.claim('w1', array['work'])") == 1
        await conn.close()
        output = tmp_path / "output"
        environment = {**os.environ, "HOLDFAST_DATABASE_URL": server.url}
        with output.open("wb") as file:
            waiting = started_warm(["-m", "holdfast", "drain", "--type", "work"], environment, file)
        await until(lambda: "1 job still runs" in output.read_text(), what="it waits")
        server.stop()
        await until(lambda: waiting.poll() is not None, what="it ends")
        assert waiting.wait() == 5
        assert "still drained; `holdfast drain --type work --resume` resumes work" in output.read_text()
        server.start()
        assert (await (await app.operations()).draining("type", "work")).paused_at is not None


async def _load(hf: Holdfast) -> None:
    while True:
        await hf.enqueue_many([("work", {})] * 50)
        await asyncio.sleep(0.1)


async def _enqueued(app: Holdfast) -> JobRef | None:
    with suppress(DatabaseUnavailable):
        return await app.enqueue("work", {})
    return None


def _begun(fleet: Fleet, but: Collection[UUID] = ()) -> int:
    """How many handlers have begun, but for those of these jobs."""
    return sum(fact.kind == "started" and fact.job_id not in but for fact in fleet.history.facts())


def _told(worker: WorkerProcess) -> str | None:
    lines = worker.lines("WorkerChanged")
    return next((str(line["detail"]) for line in lines if line["change"] == "claims nothing"), None)


async def _idle(app: Holdfast) -> bool:
    backlog = await app.client.backlog()
    return not any(backlog[part] for part in ("ready", "running", "due", "waiting"))

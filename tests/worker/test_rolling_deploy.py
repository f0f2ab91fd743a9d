"""A deploy under way: workers and producers of two releases, and a payload that has changed between them.

Nothing is refused that somebody could run, and nothing is held that is valid for somebody.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import httpx
import pytest
from pydantic import BaseModel, field_validator

from holdfast import Context, Holdfast, State
from holdfast.telemetry.events import WorkerChanged
from holdfast.web.server import create_app
from holdfast.worker.worker import Worker
from tests.harness.waiting import until
from tests.sql.factories import enqueue

OLD, NEW = {"to": "ada"}, {"recipient": "ada"}


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A database that takes longer than two seconds is not waited for, and nothing is refused meanwhile."""
    monkeypatch.setattr("holdfast.client.acceptance._PATIENCE_SECONDS", 60.0)
    monkeypatch.setattr("holdfast.client.control.PATIENCE_SECONDS", 120.0)


@asynccontextmanager
async def working(app: Holdfast) -> AsyncIterator[Worker]:
    """A worker beside the test, from when it is enlisted until it has drained."""
    workers: list[Worker] = []
    started = asyncio.Event()
    app.on(WorkerChanged)(lambda event: started.set() if event.change == "started" else None)
    lanes = {"general": 2}
    task = asyncio.create_task(app.run_worker(started=workers.append, poll_interval=0.05, lanes=lanes))
    try:
        await asyncio.wait_for(started.wait(), 30)
        yield workers[0]
    finally:
        workers[0].drain()
        await task


def server(hf: Holdfast) -> httpx.AsyncClient:
    """A server of that app."""
    return httpx.AsyncClient(transport=httpx.ASGITransport(create_app(hf)), base_url="http://127.0.0.1")


async def post(client: httpx.AsyncClient, *payloads: dict[str, Any]) -> list[int]:
    return [(await client.post("/jobs", json={"jobType": "mail", "payload": one})).status_code for one in payloads]


@pytest.fixture
def before(database_url: str) -> Holdfast:
    app = Holdfast(database_url)

    @app.job("mail", on_failure="hold")
    async def mail(ctx: Context, to: str) -> str:
        return f"old: {to}"

    return app


@pytest.fixture
def after(database_url: str) -> Holdfast:
    app = Holdfast(database_url)

    @app.job("mail", on_failure="hold", version=2)
    def mail(ctx: Context, recipient: str, copies: int = 1) -> str:
        return f"new: {recipient}"

    return app


async def test_during_a_deploy_no_valid_job_is_refused_or_held(
    hf: Holdfast, before: Holdfast, after: Holdfast, conn: asyncpg.Connection, database_url: str
) -> None:
    async with before, after, server(hf) as http, server(after) as mounted:
        async with working(before):
            assert await post(http, OLD, NEW) == [202, 422]
            async with working(after):
                # As soon as one new worker is there, both payloads are good, also to a server that has the new handler.
                for _ in range(2):
                    assert await post(http, OLD, NEW) == [202, 202]
                    assert await post(mounted, OLD, NEW) == [202, 202]
                    await before.enqueue("mail", OLD)
                    await after.enqueue("mail", NEW)
                assert await post(http, {"cc": "ada"}) == [422]
                jobs = [await hf.wait(job, 60) for job in await hf.find()]
        # The old worker has gone. If its goodbye was late, it is given up, and its entry counts for 15 seconds more.
        async with working(after) as worker:
            alone = "select array_agg(id) = array[$1] from live_workers()"
            await until(lambda: conn.fetchval(alone, worker.id), seconds=60, what="the new one is known, and no other")
            # All servers of an app remember for a second what was accepted; another app has to ask.
            async with Holdfast(database_url) as later, server(later) as http_later:
                assert await post(http_later, OLD, NEW) == [422, 202]
            (newest,) = [job for job in await hf.find() if job.id not in {one.id for one in jobs}]
            jobs.append(await hf.wait(newest, 60))
    assert len(jobs) == 14
    assert {job.state for job in jobs} == {State.SUCCESS}
    assert {(str(job.result), "to" in job.payload) for job in jobs} == {("old: ada", True), ("new: ada", False)}
    attempts = await conn.fetch("select distinct outcome from job_attempts")
    assert {row["outcome"] for row in attempts} <= {"success", "snoozed"}, "none was held, not even for a moment"


class Refusing(BaseModel):
    """What it refuses is not in its shape."""

    to: str

    @field_validator("to")
    @classmethod
    def _never(cls, value: str) -> str:
        raise ValueError(f"{value} is unknown")


@pytest.mark.parametrize("which", ["the same handler", "its own code"])
async def test_a_job_that_no_other_worker_is_known_to_accept_is_held(
    hf: Holdfast, before: Holdfast, after: Holdfast, conn: asyncpg.Connection, which: str
) -> None:
    @hf.job("mail")
    async def mail(ctx: Context, payload: Refusing) -> None: ...

    # Code refuses what the shape does not: were it left to others, it could go to and fro for ever.
    app, other = (after, after) if which == "the same handler" else (hf, before)
    definition = json.dumps([one.published() for one in other.registry])
    await conn.execute("select enlist('other', 'h', 1, '1', '{}', '{mail}', null, null, $1)", definition)
    async with app:
        job = await enqueue(conn, "mail", OLD)
        await app.run_worker(burst=True)
        held = await app.get(job)
    assert held.state is State.ERROR
    assert ("ada is unknown" in (held.last_error or "")) is (which == "its own code")

"""Requests and answers get lost at random, leases lapse, and workers repeat themselves: every item counts once."""

from __future__ import annotations

import asyncio
import json
import random
from contextlib import suppress
from typing import Any
from uuid import uuid4

import asyncpg
import httpx
import pytest

from holdfast import Holdfast
from holdfast.web.server import create_app
from tests.sql.factories import expire, offences, sweep
from tests.web.remote.conftest import Remote

PAGES, PER_PAGE, JOBS, WORKERS = 6, 3, 12, 4


class Lossy(httpx.AsyncBaseTransport):
    """Loses every fifth request before it arrives, and every fifth answer after that."""

    def __init__(self, transport: httpx.AsyncBaseTransport, chance: random.Random) -> None:
        self._transport, self._chance = transport, chance

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Forward, or lose."""
        if self._chance.random() < 0.2:
            raise httpx.ConnectError("lost on the way")
        answer = await self._transport.handle_async_request(request)
        if self._chance.random() < 0.2:
            await answer.aclose()
            raise httpx.ReadError("lost on the way back")
        return answer


async def call(remote: Remote, verb: str, **body: Any) -> httpx.Response:
    """Repeat a call until it is answered."""
    while True:
        with suppress(httpx.TransportError):
            return await remote.call(verb, **body)


async def scrape(remote: Remote, done: set[str], chance: random.Random) -> None:
    """Work until all jobs are done: page by page, each with its items and the next cursor."""
    while len(done) < JOBS:
        pulled = (await call(remote, "pull", types=["work"], request_id=uuid4().hex, max=2, wait_sec=0.05)).json()
        for job in pulled["jobs"]:
            await scrape_one(remote, job, done, chance)


async def scrape_one(remote: Remote, job: dict[str, Any], done: set[str], chance: random.Random) -> None:
    about = {"job_id": job["job_id"], "attempt": job["attempt"]}
    for seq, page in enumerate(range(job["cursor"] or 0, PAGES), 1):
        items = [{"key": f"{job['job_id']}/{page}/{n}", "data": page} for n in range(PER_PAGE)]
        told = await call(remote, "report", **about, seq=seq, items=items, cursor=page + 1)
        if told.status_code == 409:
            return
        assert told.status_code == 200, told.text
        if chance.random() < 0.05:
            return  # it dies
    told = await call(remote, "report", **about, done=True, result=job["attempt"])
    if told.status_code == 200:
        assert told.json()["state"] == "success"
        done.add(job["job_id"])


async def lapse(conn: asyncpg.Connection) -> None:
    """Take leases back, and look whether a cursor is ahead of its items."""
    while True:
        ids = [row[0] for row in await conn.fetch("select job_id from leases order by random() limit 1")]
        await expire(conn, *ids)
        await sweep(conn)
        ahead = await conn.fetch(
            "select p.job_id from job_progress p where (p.cursor::text)::integer * $1 >"
            " (select count(*) from job_items i where i.job_id = p.job_id)",
            PER_PAGE,
        )
        assert ahead == []
        await asyncio.sleep(0.02)


@pytest.mark.parametrize("run", range(3))
async def test_every_item_counts_once_whatever_gets_lost(
    hf: Holdfast, database_url: str, conn: asyncpg.Connection, chance: random.Random, run: int
) -> None:
    refs = [await hf.enqueue("work", {}, max_attempts=1000) for _ in range(JOBS)]
    done: set[str] = set()
    async with Holdfast(database_url) as second:
        apps = [httpx.ASGITransport(create_app(app)) for app in (hf, second)]
        clients = [httpx.AsyncClient(transport=Lossy(app, chance), base_url="http://127.0.0.1") for app in apps]
        disturbing = asyncio.create_task(lapse(conn))
        try:
            async with asyncio.timeout(60), asyncio.TaskGroup() as group:
                for number in range(WORKERS):
                    worker = Remote(clients[number % 2], f"w{number}")
                    group.create_task(scrape(worker, done, chance))
        finally:
            disturbing.cancel()
            with suppress(asyncio.CancelledError):
                await disturbing
    assert done == {str(ref.id) for ref in refs}
    rows = await conn.fetch(
        "select j.state, p.progress_count, p.result_count, p.cursor, (select count(*) from job_items i where"
        " i.job_id = j.id) as stored from jobs j join job_progress p on p.job_id = j.id"
    )
    assert {tuple(row) for row in rows} == {("success", 18, 18, str(PAGES), PAGES * PER_PAGE)}, json.dumps(run)
    assert await offences(conn) == []

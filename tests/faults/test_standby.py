"""A synchronous standby is away, or the wait for it is ended: nothing is acknowledged that a failover would lose."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import asyncpg
import httpx
import pytest

from holdfast import Context, Holdfast
from holdfast.errors import DatabaseUnavailable
from holdfast.web.server import create_app
from tests.faults.clusters import Cluster, clusters
from tests.faults.test_durability import migrated
from tests.harness.inprocess import reached, working
from tests.harness.slowness import Slowness
from tests.harness.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

#: The server tries for 5 s, and then answers.
ANSWER_SECONDS = 5.2

JOB = {"jobType": "work", "payload": {}, "idempotencyKey": "by-http"}


@pytest.fixture
def servers() -> Iterator[list[Cluster]]:
    with clusters(2) as made:
        yield made


@asynccontextmanager
async def served(hf: Holdfast) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(create_app(hf), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", timeout=60) as client:
        yield client


class Administrator:
    """Sets the standbys that commits wait for, and ends such waits."""

    def __init__(self, conn: asyncpg.Connection, url: str) -> None:
        self.conn, self._url = conn, url
        self.ended = 0

    async def expect(self, standbys: str) -> None:
        await self.conn.execute(f"alter system set synchronous_standby_names = '{standbys}'")
        await self.conn.execute("select pg_reload_conf()")
        await until(lambda: self._expects(standbys), what="the setting is in force")

    async def _expects(self, standbys: str) -> bool:
        """Whether commits wait, as they should: the server's processes hear of a setting one after the other."""
        probe = await asyncpg.connect(self._url)
        commit = asyncio.create_task(probe.execute("select pg_logical_emit_message(true, 'probe', '')"))
        try:
            await until(lambda: self._decided(probe, commit), what="the commit waits or is done")
            return commit.done() == (not standbys)
        finally:
            await self.conn.execute("select pg_cancel_backend($1)", probe.get_server_pid())
            await asyncio.wait([commit])
            await probe.close()

    async def _decided(self, probe: asyncpg.Connection, commit: asyncio.Task[str]) -> bool:
        waits = "select wait_event = 'SyncRep' from pg_stat_activity where pid = $1"
        return commit.done() or bool(await self.conn.fetchval(waits, probe.get_server_pid()))

    @asynccontextmanager
    async def ending_waits(self) -> AsyncIterator[None]:
        async def end_them() -> None:
            while True:
                self.ended += await self.conn.fetchval(
                    "select count(*) filter (where pg_cancel_backend(pid)) from pg_stat_activity"
                    " where wait_event = 'SyncRep'"
                )
                await asyncio.sleep(0.02)

        task = asyncio.create_task(end_them())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])


@pytest.fixture
async def administrator(servers: list[Cluster]) -> AsyncIterator[Administrator]:
    primary = await migrated(servers[0])
    conn = await asyncpg.connect(primary.url)
    yield Administrator(conn, primary.url)
    conn.terminate()


async def test_a_commit_whose_wait_was_canceled_is_not_acknowledged(
    servers: list[Cluster], administrator: Administrator, slow: Slowness
) -> None:
    """PostgreSQL answers with success, after a warning."""
    primary, conn = servers[0], administrator.conn
    begun: list[str] = []
    go_on = asyncio.Event()
    async with Holdfast(primary.url) as hf, served(hf) as client:

        @hf.job("settled")
        async def settled(ctx: Context) -> None:
            begun.append(ctx.type)
            await go_on.wait()

        @hf.job("committed")
        async def committed(ctx: Context) -> None:
            async with ctx.transaction():
                begun.append(ctx.type)
                await go_on.wait()

        await administrator.expect("*")
        async with administrator.ending_waits():
            with pytest.raises(DatabaseUnavailable, match="synchronous standby") as refused:
                await hf.enqueue("work", idempotency_key="by-python")
            assert refused.value.reason == "uncertain"
            began = time.monotonic()
            answer = await client.post("/jobs", json=JOB)
            assert answer.status_code == 503, answer.text
            assert "not known whether the job was recorded" in answer.json()["detail"]
            assert time.monotonic() - began < ANSWER_SECONDS * slow.factor
        assert await conn.fetchval("select count(*) from holdfast.jobs") == 2, "both are visible"

        await administrator.expect("")
        assert (await client.post("/jobs", json=JOB)).status_code == 202
        assert (await hf.enqueue("work", idempotency_key="by-python")).outcome == "existing"
        jobs = [await hf.enqueue("settled"), await hf.enqueue("committed")]
        async with working(hf):
            await until(lambda: equal(len(begun), 2), what="both handlers run")
            await administrator.expect("*")
            before = administrator.ended
            async with administrator.ending_waits():
                go_on.set()
                # Each is sent again and again, because none of its commits was confirmed.
                await until(lambda: equal(administrator.ended >= before + 6, True), what="commits are cut short")
                assert "settled" in begun
            await administrator.expect("")
            for job in jobs:
                await reached(hf, job, "success")
        attempts = await conn.fetch("select attempt from holdfast.job_attempts")
        assert [row["attempt"] for row in attempts] == [1, 1]


async def equal(found: object, wanted: object) -> bool:
    return found == wanted


async def test_http_answers_503_while_the_standby_is_away_and_202_when_it_has_the_job(
    servers: list[Cluster], slow: Slowness
) -> None:
    primary = await migrated(servers[0])
    primary.stop()
    standby = servers[1]
    primary.copy_to(standby)
    await primary.start(synchronous_standby_names="*")
    follow = {"primary_conninfo": f"host={primary.socket_folder} port=5432 user=tester application_name=s1"}
    await standby.start(**follow)
    async with Holdfast(primary.url) as hf, served(hf) as client:
        assert (await client.post("/jobs", json={"jobType": "work", "payload": {}})).status_code == 202
        standby.kill()
        for _ in range(2):
            began = time.monotonic()
            answer = await client.post("/jobs", json=JOB)
            assert answer.status_code == 503, answer.text
            assert time.monotonic() - began < ANSWER_SECONDS * slow.factor
            assert answer.headers["retry-after"]
            assert answer.json()["code"] == "unavailable"
            assert "with the same idempotency key" in answer.json()["detail"]
        await standby.start(**follow)

        async def taken() -> bool:
            nonlocal answer
            answer = await client.post("/jobs", json=JOB)
            assert answer.status_code in (202, 503), answer.text
            return answer.status_code == 202

        await until(taken, seconds=60, what="the standby confirms")
        primary.kill()
    conn = await asyncpg.connect(standby.url)
    await conn.execute("select pg_promote()")
    assert await conn.fetchval("select idempotency_key from holdfast.jobs where id = $1", answer.json()["jobId"])
    assert await conn.fetchval("select count(*) from holdfast.jobs") == 2
    await conn.close()

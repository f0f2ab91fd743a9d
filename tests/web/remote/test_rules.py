"""What holds for Python workers holds for remote ones: targets, limits, pauses, lanes, tenants; and they are listed."""

from __future__ import annotations

import asyncio
import gc
import time
import tracemalloc

import asyncpg
import httpx
import pytest

from holdfast import Context, Holdfast
from holdfast.model.subject import Kind
from tests.sql.factories import elect, offences, publish
from tests.web.conftest import KeyMaker
from tests.web.remote.conftest import Remote
from tests.web.remote.test_waits import waits


async def test_jobs_of_a_target_are_given_one_at_a_time(hf: Holdfast, remote: Remote, conn: asyncpg.Connection) -> None:
    refs = [await hf.enqueue("work", {}, target="account 7") for _ in range(3)]
    await elect(conn)
    for ref in refs:
        (job,) = await remote.pull(max=10)
        assert (job["job_id"], job["target"]) == (str(ref.id), "account 7")
        await remote.report(job, done=True)
    assert await offences(conn) == []


async def test_a_limit_holds_over_all_workers(hf: Holdfast, remote: Remote) -> None:
    await (await hf.operations()).limit("type", "work", by="a test", limit=2)
    for _ in range(5):
        await hf.enqueue("work", {})
    first = await remote.pull(max=10)
    assert len(first) == 2
    assert await Remote(remote.client, "w2").pull(max=10) == []
    waiting = asyncio.create_task(Remote(remote.client, "w3").pull(max=10, wait_sec=20))
    await waits(remote)
    await remote.report(first[0], done=True)
    assert len(await waiting) == 1


@pytest.mark.parametrize(("kind", "name"), [("queue", "default"), ("type", "work"), ("tenant", "default")])
async def test_what_is_paused_is_not_given(hf: Holdfast, remote: Remote, kind: Kind, name: str) -> None:
    steering = await hf.operations()
    await steering.pause(kind, name, by="a test")
    await hf.enqueue("work", {})
    assert await remote.pull() == []
    waiting = asyncio.create_task(remote.pull(wait_sec=20))
    await waits(remote)
    began = time.monotonic()
    await steering.resume(kind, name, by="a test")
    assert len(await waiting) == 1
    assert time.monotonic() - began < 1.5


async def test_a_paused_lane_is_not_given(hf: Holdfast, remote: Remote, conn: asyncpg.Connection) -> None:
    await publish(conn, lane="fast")
    await (await hf.operations()).pause("lane", "fast", by="a test")
    await hf.enqueue("work", {})
    assert await remote.pull() == []


async def test_a_key_gives_jobs_and_reports_of_its_own_tenant_only(
    hf: Holdfast, client: httpx.AsyncClient, key: KeyMaker
) -> None:
    mine = Remote(client, headers=await key("work", tenant="mine"))
    theirs = Remote(client, headers=await key("work", tenant="theirs"))
    await hf.enqueue("work", {}, tenant="mine")
    assert await theirs.pull() == []
    job = await mine.one()
    assert (await theirs.refused(job, done=True)).json()["code"] == "lease-lost"
    lease = {"job_id": job["job_id"], "attempt": 1}
    assert (await theirs.good("extend", leases=[lease]))["leases"][0]["owned"] is False
    assert (await theirs.good("release", leases=[lease]))["leases"][0]["owned"] is False
    # Another key of the same tenant is another worker, whatever it calls itself.
    other = Remote(client, headers=await key("work", tenant="mine"))
    assert (await other.refused(job, done=True)).json()["code"] == "lease-lost"
    assert (await mine.report(job, done=True))["state"] == "success"


async def test_a_remote_worker_is_listed_and_lost_when_it_stops_calling(
    hf: Holdfast, remote: Remote, conn: asyncpg.Connection
) -> None:
    await hf.enqueue("work", {})
    await remote.pull(queues=["default"])
    (shown,) = (await remote.client.get("/ops/workers")).json()["items"]
    assert (shown["worker"], shown["kind"], shown["state"]) == ("remote:open:w1", "remote", "live")
    assert (shown["types"], shown["queues"], shown["tenants"]) == (["work"], ["default"], ["default"])
    assert (shown["running"], shown["jobs"][0]["type"], shown["slots"]) == (1, "work", 0)
    await conn.execute("update workers set heartbeat_at = now() - interval '80 seconds'")
    assert (await remote.client.get("/ops/workers")).json()["items"][0]["state"] == "live"
    await conn.execute("update workers set heartbeat_at = now() - interval '95 seconds'")
    assert (await remote.client.get("/ops/workers")).json()["items"][0]["state"] == "lost"


async def test_calls_keep_a_worker_alive(hf: Holdfast, remote: Remote, conn: asyncpg.Connection) -> None:
    await hf.enqueue("work", {})
    job = await remote.one()
    desk = (await hf.remote_work())._desk
    await conn.execute("update workers set heartbeat_at = now() - interval '80 seconds'")
    desk._beaten.clear()
    desk._beat_at = float("-inf")
    await remote.report(job)
    desk._woken.set()
    async with asyncio.timeout(5):
        while not await conn.fetchval("select heartbeat_at > now() - interval '10 seconds' from workers"):
            await asyncio.sleep(0.01)


async def test_explain_knows_remote_workers(hf: Holdfast, remote: Remote, conn: asyncpg.Connection) -> None:
    ref = await hf.enqueue("work", {})

    async def why() -> str:
        return str((await remote.client.get(f"/ops/jobs/{ref.id}/explain")).json()["code"])

    assert await why() == "no-worker"
    await remote.pull("other")
    assert await why() == "type-unserved"
    await (await hf.operations()).pause("type", "work", by="a test")
    await remote.pull("other", "work")
    await (await hf.operations()).resume("type", "work", by="a test")
    assert await why() == "starting"
    await hf.enqueue("other", {})
    await remote.one("other")
    await Remote(remote.client).pull("nothing", "work", queues=["none"])
    assert await why() == "queue-unserved"


async def test_an_answer_is_bounded_in_bytes(hf: Holdfast, remote: Remote, conn: asyncpg.Connection) -> None:
    for number in range(8):
        await hf.enqueue("work", {"text": str(number) + "x" * 999_000})
    given = 0
    while jobs := await remote.pull(max=8):
        assert len(jobs) <= 4
        given += len(jobs)
    assert given == 8
    assert await conn.fetchval("select max(failures) from jobs") == 0


async def test_a_remote_worker_does_not_end_the_check_of_payloads(
    hf: Holdfast, remote: Remote, conn: asyncpg.Connection, database_url: str
) -> None:
    """It publishes no shape; those of Python workers go on counting, as long as one of them lives."""
    async with Holdfast(database_url) as app:

        @app.job("work")
        async def work(_ctx: Context, number: int) -> None:
            """Never called."""

        await (await app.operations()).pause("type", "work", by="a test")
        worker = asyncio.create_task(app.run_worker(maintenance=False))
        async with asyncio.timeout(10):
            while not await conn.fetchval("select count(*) from workers"):
                await asyncio.sleep(0.01)
        await remote.pull()
        wrong = await remote.client.post("/jobs", json={"jobType": "work", "payload": {"number": "x"}})
        assert wrong.json()["code"] == "invalid-payload"
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)
    await conn.execute("delete from workers where kind = 'python'")
    assert await conn.fetchval("select mode from accepted_payloads(array['work'], '{}')") == "off"


def _names(letter: str, worker: int, count: int) -> list[str]:
    """Names of types that only this worker has, of 200 bytes each."""
    return [f"{letter}{worker}.{number}.".ljust(200, "x") for number in range(count)]


async def test_the_names_of_a_pull_are_bounded_in_bytes(remote: Remote) -> None:
    refused = await remote.call("pull", types=_names("t", 1, 20), queues=["é" * 100] * 20 + ["é" * 97])
    assert refused.status_code == 422
    assert "the names of types and queues may have 8192 bytes together" in refused.text
    assert (
        await remote.call("pull", types=_names("t", 1, 20), queues=["é" * 100] * 20 + ["é" * 96])
    ).status_code == 200


async def test_a_server_remembers_no_names_of_workers_that_have_called(client: httpx.AsyncClient) -> None:
    for number in range(20):
        await Remote(client, f"warm{number}").pull(*_names("w", number, 40))
    tracemalloc.start()
    try:
        gc.collect()
        before, _ = tracemalloc.get_traced_memory()
        for number in range(100):
            await Remote(client, f"w{number}").pull(*_names("t", number, 40))
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 100 * 4000

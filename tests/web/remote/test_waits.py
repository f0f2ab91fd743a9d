"""Pulls that wait: woken by work, by news, and by nothing else; and no job is lost with a caller that goes."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import asyncpg
import httpx
import pytest

from holdfast import Holdfast
from holdfast.client.desk import Desk
from tests.sql.factories import publish, request, state_of
from tests.web.conftest import KeyMaker
from tests.web.remote.conftest import Remote


async def waits(remote: Remote, count: int = 1) -> None:
    """Until this many calls wait at the desk, which listens."""
    desk: Desk = (await remote.client._transport.app.state.holdfast.hf.remote_work())._desk  # type: ignore[attr-defined]
    async with asyncio.timeout(5):
        while sum(map(len, desk._waiting.values())) < count or not desk._ear.listens:
            await asyncio.sleep(0.005)


async def test_a_waiting_pull_gets_a_job_at_once(hf: Holdfast, remote: Remote) -> None:
    waiting = asyncio.create_task(remote.one(wait_sec=20))
    await waits(remote)
    began = time.monotonic()
    ref = await hf.enqueue("work", {})
    job = await waiting
    assert job["job_id"] == str(ref.id)
    assert time.monotonic() - began < 0.5, "by a notification, and not by a look"


async def test_a_missed_notification_costs_a_second(
    hf: Holdfast, remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Desk, "_heard", lambda *_: None)
    waiting = asyncio.create_task(remote.one(wait_sec=5))
    await waits(remote)
    began = time.monotonic()
    ref = await hf.enqueue("work", {})
    assert (await waiting)["job_id"] == str(ref.id)
    assert time.monotonic() - began < 2.5


async def test_waiting_pulls_are_served_in_their_order(hf: Holdfast, remote: Remote) -> None:
    waiting = []
    for number in range(5):
        worker = Remote(remote.client, f"w{number}")
        waiting.append(asyncio.create_task(worker.pull(wait_sec=20)))
        await waits(remote, number + 1)
    for task in waiting:
        await hf.enqueue("work", {})
        assert len(await task) == 1
    assert all(task.done() for task in waiting)


async def test_a_pull_waits_for_its_own_types_queues_and_tenant(
    hf: Holdfast, client: httpx.AsyncClient, key: KeyMaker
) -> None:
    mine = Remote(client, headers=await key("work", tenant="mine"))
    theirs = Remote(client, headers=await key("work", tenant="theirs"))
    first = asyncio.create_task(mine.one(queues=["q"], wait_sec=20))
    second = asyncio.create_task(theirs.one("other", wait_sec=20))
    await waits(mine, 2)
    for job_type, queue, tenant in (("work", "p", "mine"), ("other", "q", "mine"), ("work", "q", "theirs")):
        await hf.enqueue(job_type, {}, queue=queue, tenant=tenant)
    ref = await hf.enqueue("work", {}, queue="q", tenant="mine")
    assert (await first)["job_id"] == str(ref.id)
    ref = await hf.enqueue("other", {}, tenant="theirs")
    assert (await second)["job_id"] == str(ref.id)


async def test_a_pull_that_waits_in_vain_is_answered_in_time(remote: Remote) -> None:
    began = time.monotonic()
    assert await remote.pull(wait_sec=0.3) == []
    assert 0.29 < time.monotonic() - began < 2


async def test_no_connection_is_held_while_workers_wait(hf: Holdfast, remote: Remote, conn: asyncpg.Connection) -> None:
    count = "select count(*) from pg_stat_activity where datname = current_database()"
    before = await conn.fetchval(count)
    waiting = [asyncio.create_task(Remote(remote.client, f"w{n}").pull(wait_sec=20)) for n in range(200)]
    await waits(remote, 200)
    assert await conn.fetchval(count) - before <= 5, "four for statements, and one that listens"
    remote.client._transport.app.state.holdfast.drain()  # type: ignore[attr-defined]
    assert await asyncio.gather(*waiting) == [[]] * 200


async def test_the_jobs_of_a_caller_that_has_gone_are_handed_back(
    hf: Holdfast, remote: Remote, conn: asyncpg.Connection
) -> None:
    ref = await hf.enqueue("work", {})
    work = await hf.remote_work()
    reached, go_on, pull = asyncio.Event(), asyncio.Event(), work._pulls._statement

    async def slow(asks: Any) -> Any:
        told = await pull(asks)
        reached.set()
        await go_on.wait()
        return told

    work._pulls._statement = slow
    gone = asyncio.create_task(remote.pull(wait_sec=20))
    await reached.wait()
    assert await state_of(conn, ref.id) == "running"
    gone.cancel()
    await asyncio.wait([gone])
    go_on.set()
    async with asyncio.timeout(5):
        while await state_of(conn, ref.id) != "queued":
            await asyncio.sleep(0.005)
    assert await conn.fetchval("select failures from jobs") == 0


async def test_a_repeat_takes_the_place_of_a_pull_that_waits(hf: Holdfast, remote: Remote) -> None:
    first = asyncio.create_task(remote.pull(request_id="r", wait_sec=20))
    await waits(remote)
    second = asyncio.create_task(remote.pull(request_id="r", wait_sec=20))
    assert await first == []
    await hf.enqueue("work", {})
    (job,) = await second
    assert await remote.pull(request_id="r", wait_sec=20) == [
        job | {"lease_remaining_ms": pytest.approx(29500, abs=600)}
    ]


async def test_a_repeat_is_answered_while_nothing_else_is_expected(hf: Holdfast, remote: Remote) -> None:
    await hf.enqueue("work", {})
    other = asyncio.create_task(Remote(remote.client, "w2").pull("work", wait_sec=20, max=1))
    ((first,),) = await asyncio.gather(other)
    waiting = asyncio.create_task(Remote(remote.client, "w3").pull(wait_sec=20))
    await waits(remote)
    (await hf.remote_work())._desk.group("default", ["work"], None).empty_at = time.monotonic()
    ref = await hf.enqueue("work", {}, delay=0)
    (job,) = await waiting
    assert job["job_id"] == str(ref.id) != first["job_id"]


async def running(hf: Holdfast, remote: Remote) -> dict[str, Any]:
    await hf.enqueue("work", {})
    return await remote.one()


@pytest.mark.parametrize("verb", ["cancel", "pause"])
async def test_whoever_waits_hears_at_once_that_a_job_is_to_stop(
    hf: Holdfast, remote: Remote, conn: asyncpg.Connection, verb: str
) -> None:
    job = await running(hf, remote)
    pulling = asyncio.create_task(remote.good("pull", types=["work"], wait_sec=20))
    lease = {"job_id": job["job_id"], "attempt": 1}
    keeping = asyncio.create_task(remote.good("extend", leases=[lease], wait_sec=10))
    await waits(remote, 2)
    began = time.monotonic()
    await request(conn, verb, job["job_id"])
    told, kept = await asyncio.gather(pulling, keeping)
    assert time.monotonic() - began < 0.5
    assert told["interrupts"] == [lease | {"directive": verb}]
    assert kept["leases"][0]["directive"] == verb
    assert (await remote.report(job))["directive"] == verb
    released = await remote.good("release", leases=[lease])
    assert released["leases"][0]["state"] == {"cancel": "canceled", "pause": "paused"}[verb]


async def test_a_worker_that_was_told_does_not_hear_it_again_and_again(
    hf: Holdfast, remote: Remote, conn: asyncpg.Connection
) -> None:
    job = await running(hf, remote)
    await request(conn, "cancel", job["job_id"])
    lease = {"job_id": job["job_id"], "attempt": 1}
    assert (await remote.good("extend", leases=[lease], wait_sec=10))["leases"][0]["directive"] == "cancel"
    began = time.monotonic()
    assert (await remote.good("extend", leases=[lease], wait_sec=0.3))["leases"][0]["directive"] == "cancel"
    assert time.monotonic() - began > 0.29
    pulling = await remote.good("pull", types=["work"], wait_sec=3)
    assert [one["directive"] for one in pulling["interrupts"]] == ["cancel"]


async def test_a_worker_hears_that_its_lease_was_ended_by_hand(
    hf: Holdfast, remote: Remote, conn: asyncpg.Connection
) -> None:
    job = await running(hf, remote)
    lease = {"job_id": job["job_id"], "attempt": 1}
    keeping = asyncio.create_task(remote.good("extend", leases=[lease], wait_sec=10))
    pulling = asyncio.create_task(remote.good("pull", types=["nothing"], wait_sec=10))
    await waits(remote, 2)
    await conn.execute("select lease_expired($1, 'an operator', null)", job["job_id"])
    kept, told = await asyncio.gather(keeping, pulling)
    assert kept["leases"][0]["owned"] is False
    assert told["interrupts"] == [lease | {"directive": "lost"}]


async def test_a_quiet_worker_is_told_to_drain_and_gets_nothing(
    hf: Holdfast, remote: Remote, conn: asyncpg.Connection
) -> None:
    job = await running(hf, remote)
    waiting = asyncio.create_task(remote.good("pull", types=["work"], wait_sec=20))
    await waits(remote)
    await (await hf.operations()).workers.quiet("remote:open:w1", by="a test", note=None, by_key=None)
    assert (await waiting)["directive"] == "drain"
    await hf.enqueue("work", {})
    began = time.monotonic()
    told = await remote.good("pull", types=["work"], wait_sec=0.3)
    assert (told["jobs"], told["directive"]) == ([], "drain")
    assert time.monotonic() - began > 0.29, "whoever was told, and comes again, waits"
    assert (await remote.report(job))["directive"] == "drain"
    assert (await remote.report(job, done=True))["state"] == "success"
    # Whoever comes back under this name after it was lost is another worker.
    await conn.execute("update workers set heartbeat_at = now() - interval '91 seconds'")
    assert len(await remote.pull()) == 1


async def test_a_lease_is_not_kept_by_a_wait(hf: Holdfast, remote: Remote) -> None:
    await hf.enqueue("work", {})
    job = await remote.one(lease_sec=1)
    began = time.monotonic()
    told = await remote.good("extend", leases=[{"job_id": job["job_id"], "attempt": 1}], wait_sec=30)
    assert 0.3 < time.monotonic() - began < 0.9
    assert told["leases"][0]["owned"]


async def test_a_job_whose_time_is_over_is_to_stop(hf: Holdfast, remote: Remote, conn: asyncpg.Connection) -> None:
    await publish(conn, timeout_seconds=0.5)
    await hf.enqueue("work", {})
    job = await remote.one(lease_sec=60)
    assert job["timeout_sec"] == 0.5
    assert job["lease_remaining_ms"] <= 15_500
    told = await remote.good("extend", leases=[{"job_id": job["job_id"], "attempt": 1}], wait_sec=30)
    assert told["leases"][0]["directive"] == "cancel"
    again = await remote.good("extend", leases=[{"job_id": job["job_id"], "attempt": 1, "lease_sec": 60}])
    assert again["leases"][0]["lease_remaining_ms"] <= 15_500
    assert (await remote.report(job, error="too slow"))["state"] == "retry"
    assert await conn.fetchval("select outcome from job_attempts") == "timeout"

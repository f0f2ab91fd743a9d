"""Failures that remote workers report for a circuit open it, put jobs off, and close it again."""

from __future__ import annotations

import asyncpg
import httpx

from holdfast import Holdfast
from tests.sql.factories import make_due, offences, promote, publish
from tests.web.conftest import KeyMaker
from tests.web.remote.conftest import Remote

CRM = {"message": "no answer", "circuit": "crm", "delay_sec": 0}


async def fails(hf: Holdfast, remote: Remote, conn: asyncpg.Connection, tenant: str = "default") -> str:
    """A job that runs and fails; its state."""
    ref = await hf.enqueue("work", {}, tenant=tenant)
    state = (await remote.report(await remote.one(), error=CRM))["state"]
    await hf.cancel(ref)
    await conn.execute("select execute_requests()")
    return str(state)


async def state(conn: asyncpg.Connection) -> list[tuple[str, str]]:
    return [(row[0], row[1]) for row in await conn.fetch("select tenant, state from circuits where name = 'crm'")]


async def test_failures_open_a_circuit_of_the_tenant_and_then_cost_no_attempt(
    hf: Holdfast, remote: Remote, conn: asyncpg.Connection
) -> None:
    assert [await fails(hf, remote, conn) for _ in range(5)] == ["retry"] * 5
    assert await state(conn) == [("default", "open")]
    ref = await hf.enqueue("work", {})
    told = await remote.report(await remote.one(), error={"message": "no answer", "circuit": "crm"})
    assert told["state"] == "scheduled"
    assert await conn.fetchval("select failures from jobs where id = $1", ref.id) == 0
    wait = await conn.fetchval("select extract(epoch from run_at - now()) from jobs where id = $1", ref.id)
    assert 50 < wait < 80
    # Its time has come: whoever succeeds now closes it.
    await conn.execute("update circuits set next_probe_at = now()")
    await make_due(conn, ref.id)
    await promote(conn)
    job = await remote.one(wait_sec=5)
    await conn.execute("select half_open_circuits()")
    await remote.report(job, done=True)
    assert await state(conn) == [("default", "closed")]
    assert await offences(conn) == []


async def test_a_failed_probe_opens_it_again(hf: Holdfast, remote: Remote, conn: asyncpg.Connection) -> None:
    for _ in range(5):
        await fails(hf, remote, conn)
    await conn.execute("update circuits set next_probe_at = now()")
    assert await fails(hf, remote, conn) == "scheduled"
    assert await state(conn) == [("default", "open")]
    assert await conn.fetchval("select openings from circuits") == 2


async def test_successes_keep_a_circuit_closed(hf: Holdfast, remote: Remote, conn: asyncpg.Connection) -> None:
    for _ in range(7):
        assert await fails(hf, remote, conn) == "retry"
        await hf.enqueue("work", {})
        await hf.enqueue("work", {})
        for job in await remote.pull(max=2):
            await remote.report(job, done=True)
    assert await state(conn) == [("default", "closed")]


async def test_a_circuit_that_a_type_declares_holds_back_pulls_and_is_closed_by_a_probe(
    hf: Holdfast, remote: Remote, conn: asyncpg.Connection
) -> None:
    await publish(conn, circuit="crm", circuit_per_tenant=True, backoff_base=0)
    for _ in range(5):
        await fails(hf, remote, conn)
    for _ in range(3):
        await hf.enqueue("work", {})
    assert await remote.pull(max=3) == []
    await conn.execute("update circuits set next_probe_at = now()")
    await conn.execute("select half_open_circuits()")
    (job,) = await remote.pull(max=3)
    await remote.report(job, done=True)
    assert await state(conn) == [("default", "closed")]
    assert len(await remote.pull(max=3)) == 2


async def test_a_key_of_one_tenant_stops_nobody_elses_work(
    hf: Holdfast, client: httpx.AsyncClient, key: KeyMaker, conn: asyncpg.Connection
) -> None:
    mine = Remote(client, headers=await key("work", tenant="mine"))
    for _ in range(5):
        await fails(hf, mine, conn, tenant="mine")
    assert await state(conn) == [("mine", "open")]


async def test_a_snooze_for_a_circuit_waits_until_it_is_tried(
    hf: Holdfast, remote: Remote, conn: asyncpg.Connection
) -> None:
    for _ in range(5):
        await fails(hf, remote, conn)
    await hf.enqueue("work", {})
    told = await remote.report(await remote.one(), error={"kind": "snooze", "message": "open", "circuit": "crm"})
    assert told["state"] == "scheduled"

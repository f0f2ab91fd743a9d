"""`/ops/workers`: who works, on what, and since when; lost ones are shown, and one can be told to claim no more."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from urllib.parse import quote

import asyncpg
import httpx
import pytest

from holdfast import Context, Holdfast
from tests.harness.inprocess import reached, working
from tests.harness.waiting import until
from tests.sql.factories import claim, enqueue
from tests.web.conftest import KeyMaker
from tests.web.test_jobs import is_problem

FIELDS = {
    "worker", "host", "pid", "version", "kind", "lanes", "slots", "used", "types", "queues", "tenants", "started_at",
    "heartbeat_at", "state", "quiet", "running", "jobs",
}  # fmt: skip


async def _register(conn: asyncpg.Connection, worker: str, *, tenants: list[str] | None = None, **used: int) -> None:
    await conn.execute(
        "select enlist_worker($1, 'host', 1, '0.3.0', $2::jsonb, array['work'], null, $3)",
        worker, json.dumps({"fast": 3, "general": 5}), tenants,
    )  # fmt: skip
    await conn.execute("select beat_with_slots($1, false, $2::jsonb)", worker, json.dumps(used))


async def _show(client: httpx.AsyncClient, worker: str, headers: dict[str, str] | None = None) -> dict[str, Any]:
    found: dict[str, Any] = (await client.get(f"/ops/workers/{quote(worker)}", headers=headers)).json()
    return found


async def test_a_worker_is_shown_with_its_slots_and_jobs(client: httpx.AsyncClient, conn: asyncpg.Connection) -> None:
    await _register(conn, "h:1:a", fast=1, general=1)
    job = await enqueue(conn)
    await claim(conn, worker="h:1:a")
    (found,) = (await client.get("/ops/workers")).json()["items"]
    assert set(found) == FIELDS
    assert found["lanes"] == {"fast": {"slots": 3, "used": 1}, "general": {"slots": 5, "used": 1}}
    assert (found["slots"], found["used"], found["running"]) == (8, 2, 1)
    assert (found["state"], found["kind"], found["queues"], found["types"]) == ("live", "python", None, ["work"])
    (running,) = found["jobs"]
    assert (running["job_id"], running["type"], running["tenant"], running["attempt"]) == (
        str(job),
        "work",
        "default",
        1,
    )
    assert await _show(client, "h:1:a") == found
    assert (await client.get(f"/ops/jobs/{job}")).json()["lease_owner"] == "h:1:a"


async def test_one_that_vanished_is_lost_until_it_is_forgotten(
    client: httpx.AsyncClient, conn: asyncpg.Connection
) -> None:
    await _register(conn, "h:1:a", general=1)
    await conn.execute("update workers set heartbeat_at = now() - interval '20 seconds'")
    lost = await _show(client, "h:1:a")
    assert (lost["state"], lost["used"], lost["lanes"]["general"]["used"]) == ("lost", 0, None)
    await conn.execute("update workers set heartbeat_at = now() - interval '25 hours'")
    await conn.execute("select forget_workers()")
    assert (await client.get("/ops/workers")).json()["items"] == []
    is_problem(await client.get("/ops/workers/h:1:a"), 404, "not-found")


async def test_jobs_that_were_claimed_ahead_and_have_not_begun_do_not_count(
    client: httpx.AsyncClient, conn: asyncpg.Connection
) -> None:
    await _register(conn, "w1")
    for _ in range(3):
        await enqueue(conn)
    await claim(conn, limit=3)
    await conn.execute("update leases set number = 2 + (select count(*) from leases l where l.job_id < leases.job_id)")
    assert (await _show(client, "w1"))["running"] == 0
    await conn.execute("insert into beginnings (worker, lane, number) values ('w1', 0, 3)")
    assert (await _show(client, "w1"))["running"] == 2


async def test_pages_list_every_worker_once(client: httpx.AsyncClient, conn: asyncpg.Connection) -> None:
    names = [f"h:{n}:é/a b" for n in range(7)]
    for name in names:
        await _register(conn, name)
    found, cursor = [], None
    while True:
        page = (await client.get("/ops/workers", params={"limit": 3} | ({"cursor": cursor} if cursor else {}))).json()
        found += [worker["worker"] for worker in page["items"]]
        if (cursor := page["next_cursor"]) is None:
            break
    assert found == names
    assert (await _show(client, names[3]))["worker"] == names[3]


async def test_a_tenant_sees_who_serves_it_and_its_own_jobs_only(
    client: httpx.AsyncClient, conn: asyncpg.Connection, key: KeyMaker
) -> None:
    mine, admin = await key("operate", tenant="mine"), await key("admin")
    await _register(conn, "all", general=2)
    await _register(conn, "both", tenants=["mine", "theirs"])
    await _register(conn, "others", tenants=["theirs"])
    for tenant in ("mine", "theirs"):
        await enqueue(conn, tenant=tenant)
    await claim(conn, worker="all", limit=2)
    await client.post("/ops/workers/all/quiet", json={"note": "secret"}, headers=admin)
    listed = (await client.get("/ops/workers", headers=mine)).json()["items"]
    assert [(w["worker"], w["tenants"]) for w in listed] == [("all", None), ("both", ["mine"])]
    shown = await _show(client, "all", mine)
    assert ([job["tenant"] for job in shown["jobs"]], shown["running"], shown["used"]) == (["mine"], 1, 1)
    assert (shown["lanes"]["general"]["used"], shown["quiet"]["by"], shown["quiet"]["note"]) == (None, None, None)
    assert "theirs" not in json.dumps(listed)
    assert "secret" not in json.dumps(listed)
    is_problem(await client.get("/ops/workers/others", headers=mine), 404, "not-found")
    is_problem(await client.post("/ops/workers/all/quiet", headers=mine), 403, "scope")
    assert len((await client.get("/ops/workers", headers=admin)).json()["items"]) == 3


async def test_quiet_is_told_once_audited_and_refused_for_unknown_workers(
    client: httpx.AsyncClient, conn: asyncpg.Connection
) -> None:
    await _register(conn, "h:1:a")
    for note in ("before the upgrade", "again"):
        told = (await client.post("/ops/workers/h:1:a/quiet", json={"note": note})).json()
        assert (told["state"], told["quiet"]["note"]) == ("draining", "before the upgrade")
    log = (await client.get("/ops/audit")).json()["items"]
    assert [(e["action"], e["subject"], e["detail"]) for e in log] == [
        ("worker.quiet", "h:1:a", {"note": "before the upgrade"})
    ]
    is_problem(await client.post("/ops/workers/h:1:b/quiet"), 404, "not-found")


@pytest.mark.parametrize("busy", [True, False])
async def test_a_quiet_worker_ends_what_it_runs_and_claims_no_more(
    hf: Holdfast, conn: asyncpg.Connection, *, busy: bool
) -> None:
    """Only that very worker: the next one of the app goes on."""
    go_on, begun = asyncio.Event(), asyncio.Event()

    @hf.job("wait")
    async def wait(ctx: Context) -> None:
        begun.set()
        await go_on.wait()

    @hf.job("quick")
    async def quick(ctx: Context) -> None:
        """Very short: such jobs are claimed ahead."""

    workers = (await hf.operations()).workers
    async with working(hf) as worker:
        if busy:
            first = await wait.enqueue()
            await begun.wait()
            await hf.enqueue_many([("quick", {})] * 200)

        async def known() -> bool:
            return bool(await workers.list())

        await until(known, what="the worker is registered")
        told = await workers.quiet(worker.id, by="ada")
        assert told.quiet is not None

        async def draining() -> bool:
            return bool(await conn.fetchval("select draining from workers where id = $1", worker.id))

        await until(draining, what="the worker has heard of it")
        left = await hf.enqueue_many([("quick", {})] * 20)
        await asyncio.sleep(2)  # longer than two polls, and than any look for work
        assert {(await hf.get(job.id)).state.value for job in left} == {"queued"}
        if busy:
            go_on.set()
            await reached(hf, first.id, "success")

        async def idle() -> bool:
            return not await conn.fetchval("select exists (select from leases where worker = $1)", worker.id)

        await until(idle, what="it has handed back what it claimed ahead")
        assert (await workers.get(worker.id)).state == "draining"
    async with working(hf):
        for job in left:
            await reached(hf, job.id, "success")

"""What one tenant searches for costs others nothing: places per tenant, and pages that end in time."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import asyncpg
import httpx
import pytest

from holdfast import Holdfast
from holdfast.client.turns import Turns
from holdfast.errors import DatabaseBusy
from tests.harness.slowness import Slowness
from tests.harness.waiting import WAITED_FOR
from tests.web.conftest import KeyMaker

LOCK = 4712
#: A search for anything that looks at a job of the tenant `greedy` is slow: here, until a lock is free.
SLOW = f"""
create or replace function query_condition(tree jsonb) returns text immutable language sql as $$
  select 'case when j.tenant = ''greedy'' then pg_advisory_xact_lock_shared({LOCK}) is not null else true end'
$$"""
BLOCKED = f"select count(*) from {WAITED_FOR} where locktype = 'advisory' and objid = {LOCK}"


async def test_one_tenants_searches_shut_nobody_out(
    client: httpx.AsyncClient, hf: Holdfast, key: KeyMaker, conn: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.client.turns._TURN_SECONDS", 0.3)
    greedy, modest = await key("operate", tenant="greedy"), await key("operate", tenant="modest")
    admin = await key("admin")
    for tenant in ("greedy", "modest"):
        job = await hf.enqueue("x", {}, tenant=tenant)
    await conn.execute(SLOW)
    async with conn.transaction(), asyncio.timeout(30):
        await conn.execute(f"select pg_advisory_xact_lock({LOCK})")
        searches = [asyncio.create_task(client.get("/ops/jobs", headers=greedy)) for _ in range(6)]
        while await conn.fetchval(BLOCKED) < 1:
            await asyncio.sleep(0.01)
        for who in (modest, admin):
            paths = ("stats", "queues", "types", "lanes", "targets", f"jobs/{job.id}/explain", f"jobs/{job.id}")
            for path in (*paths, *(["tenants"] if who is admin else [])):
                answer = await client.get(f"/ops/{path}", headers=who)
                assert answer.status_code == 200, (path, answer.text)
        answer = await client.get("/ops/jobs", headers=modest)
        assert answer.status_code == 200, answer.text
        assert len(answer.json()["items"]) == 1
        assert (await client.get("/ops/stats", headers=greedy)).status_code == 200
        seen = asyncio.create_task(client.get("/ops/jobs", headers=admin))
        while await conn.fetchval(BLOCKED) < 2:  # the administrator sees the greedy tenant's jobs, too
            await asyncio.sleep(0.01)
        while sum(search.done() for search in searches) < 5:
            await asyncio.sleep(0.01)
        assert await conn.fetchval(BLOCKED) == 2
    assert sorted(answer.status_code for answer in await asyncio.gather(*searches)) == [200, *[503] * 5]
    assert (await seen).status_code == 200


async def test_places_are_handed_out_by_tenant_and_operators_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.client.turns._TURN_SECONDS", 5.0)
    turns, order = Turns(), []
    ends = {name: asyncio.Event() for name in ("a1", "a2", "a3", "b1", "c1", "o1", "o2", "o3")}

    async def search(name: str) -> None:
        async with turns.one(None if name.startswith("o") else name[0]):
            order.append(name)
            await ends[name].wait()

    async def begun(*names: str) -> None:
        for _ in range(20):
            await asyncio.sleep(0)
        assert order == list(names)

    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        for name in ends:
            group.create_task(search(name))
            await asyncio.sleep(0)
        await begun("a1", "b1", "o1")  # two of tenants, one each; the third place is not for a tenant
        ends["o1"].set()
        await begun("a1", "b1", "o1", "o2")
        ends["a1"].set()
        await begun("a1", "b1", "o1", "o2", "o3")
        ends["o2"].set()
        await begun("a1", "b1", "o1", "o2", "o3", "c1")  # not a2: that tenant had its turn
        ends["b1"].set()
        await begun("a1", "b1", "o1", "o2", "o3", "c1", "a2")
        for end in ends.values():
            end.set()
    assert turns._taken.total() == 0


async def test_who_gives_up_waiting_leaves_no_place_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.client.turns._TURN_SECONDS", 0.01)
    turns, end = Turns(), asyncio.Event()

    async def search() -> None:
        async with turns.one("a"):
            await end.wait()

    first = asyncio.create_task(search())
    await asyncio.sleep(0)
    with pytest.raises(DatabaseBusy, match="too many"):
        await search()
    waiting = asyncio.create_task(search())
    await asyncio.sleep(0)
    end.set()
    await asyncio.sleep(0)
    waiting.cancel()  # when its place may have been handed out already
    await asyncio.gather(first, waiting, return_exceptions=True)
    assert (turns._taken.total(), turns._waiting) == (0, [])


async def pages(conn: asyncpg.Connection, tree: str, tenant: str | None = None) -> list[tuple[int, Any]]:
    """How many jobs each page found, until there is nothing older."""
    found, before = [], None
    while True:
        (row,) = await conn.fetch("select * from search_jobs($1, $2, $3, 50, 1000)", tree, tenant, before)
        found.append((len(row["ids"]), row["reached"]))
        if row["reached"] is None:
            return found
        assert before is None or row["reached"] < before
        before = row["reached"]


async def test_a_page_ends_when_it_has_read_enough(conn: asyncpg.Connection, hf: Holdfast) -> None:
    large = {"text": "".join(chr(33 + n * n % 90) for n in range(20_000)), "n": 1}
    for _ in range(12):
        await hf.enqueue("x", large)
    await conn.execute("set search_path = holdfast")
    stored = await conn.fetchval("select min(pg_column_size(payload)) from jobs")
    needle = '{"text": "nowhere"}'
    assert await pages(conn, needle) == [(0, None)]
    await conn.execute(f"set holdfast.search_bytes = {3 * stored - 1}")
    told = await pages(conn, needle)
    assert [count for count, _ in told] == [0] * 4  # three jobs each
    assert sum(count for count, _ in await pages(conn, '{"text": "n"}')) == 12
    assert len(await pages(conn, '{"field": "type", "op": "=", "value": ["x"]}')) == 1  # reads no payload
    await conn.execute("set holdfast.search_bytes = 0")
    assert len(await pages(conn, needle, "default")) == 12  # one job at least


async def test_a_page_ends_in_time(conn: asyncpg.Connection, hf: Holdfast, slow: Slowness) -> None:
    await hf.enqueue_many([("x", {}) for _ in range(20)])
    await conn.execute(
        "create or replace function query_condition(tree jsonb) returns text immutable language sql"
        " as $$ select 'pg_sleep(0.05) is not null and j.payload is not null' $$"
    )
    await conn.execute("set search_path = holdfast; set holdfast.search_seconds = 0.12")
    began = time.monotonic()
    (row,) = await conn.fetch("select * from search_jobs('{}', null, null, 50, 1000)")
    assert time.monotonic() - began < 0.5 * slow.factor
    assert 1 <= len(row["ids"]) <= 4
    assert row["reached"] == row["ids"][-1]
    assert sum(count for count, _ in await pages(conn, "{}")) == 20
    await conn.execute("set holdfast.search_seconds = 0")
    assert [count for count, _ in await pages(conn, "{}")] == [1] * 20  # one job at least


async def test_the_server_itself_ends_a_search(hf: Holdfast) -> None:
    await (await hf.operations()).search("")
    database: Any = (await hf.operations())._found._session
    lent = await database._connections.take()
    assert await lent.fetchval("show statement_timeout") == "9s"
    database._connections.give(lent)

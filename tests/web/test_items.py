"""What jobs report, as clients and operators see it: counters, items, events; and that it goes with the job."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import httpx
import pytest

from holdfast import Context, Holdfast
from holdfast.web import state as web_state
from holdfast.web.problems import Problem
from tests.harness.inprocess import working
from tests.harness.waiting import until
from tests.web.conftest import KeyMaker
from tests.web.test_control import submitted
from tests.web.test_hangups import serving
from tests.web.test_jobs import is_problem

PLAIN = {"jobId", "jobType", "status", "createdAt", "updatedAt"}
REPORTED = {"progressCount", "resultCount", "lastProgressAt"}


class Steps:
    """A handler's next steps, one by one."""

    def __init__(self, hf: Holdfast) -> None:
        self._allowed, self._done = asyncio.Semaphore(0), asyncio.Semaphore(0)

        @hf.job("crawl")
        async def crawl(ctx: Context, steps: int) -> None:
            for step in range(steps):
                await self._allowed.acquire()
                items = [{"key": f"{step}-{n}", "data": {"step": step, "n": n}} for n in range(3)]
                await ctx.items([*items, items[0]], cursor={"step": step + 1})
                self._done.release()

    async def allow(self) -> None:
        """Let the handler take one, and wait until it has."""
        self._allowed.release()
        await self._done.acquire()


@pytest.fixture
def steps(hf: Holdfast) -> Steps:
    return Steps(hf)


async def test_pages_are_stable_while_items_are_added(client: httpx.AsyncClient, hf: Holdfast, steps: Steps) -> None:
    job = await submitted(client, jobType="crawl", payload={"steps": 3})
    address = f"/jobs/{job}/items"
    assert (await client.get(address)).json() == {"items": [], "nextCursor": None}
    keys: list[str] = []
    cursor: str | None = None
    async with working(hf):
        await steps.allow()
        for more in range(5):
            query: dict[str, Any] = {"limit": 2} if cursor is None else {"limit": 2, "cursor": cursor}
            page = (await client.get(address, params=query)).json()
            keys += [item["key"] for item in page["items"]]
            cursor = page["nextCursor"]
            if more < 2:
                await steps.allow()
        await hf.wait(job, timeout=20)
    assert keys == [f"{step}-{n}" for step in range(3) for n in range(3)]
    assert cursor is None
    (item,) = (await client.get(address, params={"limit": 1})).json()["items"]
    assert (item["data"], item["collection"], set(item)) == (
        {"step": 0, "n": 0}, job, {"key", "data", "collection", "createdAt"})  # fmt: skip


async def test_counters_are_shown_where_the_job_reports_them(
    client: httpx.AsyncClient, hf: Holdfast, steps: Steps
) -> None:
    plain = await submitted(client, jobType="other", targetCount=5)
    job = await submitted(client, jobType="crawl", payload={"steps": 2}, targetCount=6)
    for unreported in (plain, job):
        assert set((await client.get(f"/jobs/{unreported}")).json()) == PLAIN
    async with working(hf):
        await steps.allow()
        told = (await client.get(f"/jobs/{job}")).json()
        assert set(told) == PLAIN | REPORTED | {"targetCount"}
        assert [told[name] for name in ("status", "progressCount", "resultCount", "targetCount")] == [
            "RUNNING",
            4,
            3,
            6,
        ]
        assert told["updatedAt"] == told["lastProgressAt"] > told["createdAt"]
        detail = (await client.get(f"/ops/jobs/{job}")).json()
        assert (detail["cursor"], detail["progress_count"], detail["done_reason"]) == ({"step": 1}, 4, None)
        await steps.allow()
        await hf.wait(job, timeout=20)
    told = (await client.get(f"/jobs/{job}")).json()
    assert [told[name] for name in ("status", "resultCount", "doneReason")] == ["COMPLETED", 6, "target_reached"]
    (listed,) = (await client.get("/ops/jobs", params={"q": "type:crawl"})).json()["items"]
    assert (listed["result_count"], listed["done_reason"], "cursor" in listed) == (6, "target_reached", False)


async def test_events_tell_of_every_report(client: httpx.AsyncClient, hf: Holdfast, steps: Steps) -> None:
    job = await submitted(client, jobType="crawl", payload={"steps": 3})
    control = await hf.control()
    async with working(hf), asyncio.timeout(30):
        await steps.allow()
        stream = asyncio.create_task(client.get(f"/jobs/{job}/events"))
        await until(lambda: bool(control._watcher._waiting), what="the stream has begun")
        (standing,) = await control._store.jobs([("default", UUID(job))])
        seen = asyncio.create_task(control.changed(standing, 20))
        await steps.allow()
        assert (await seen).progress_count == 8  # and the stream has seen it in the same look
        await steps.allow()
        whole = (await stream).text
    blocks = [block for block in whole.split("\n\n") if block.startswith("id: ")]
    told = [json.loads(block.split("data: ")[1]) for block in blocks]
    assert [(t["status"], t["progressCount"]) for t in told][:2] == [("RUNNING", 4), ("RUNNING", 8)]
    assert (told[-1]["status"], told[-1]["progressCount"], told[-1]["doneReason"]) == ("COMPLETED", 12, "worker_done")
    assert len({block.split("\n")[0] for block in blocks}) == len(blocks)


async def test_items_of_another_tenant_do_not_exist_and_of_a_deleted_job_neither(
    client: httpx.AsyncClient, hf: Holdfast, steps: Steps, key: KeyMaker
) -> None:
    mine, theirs = await key("submit", "read", tenant="mine"), await key("submit", "read", tenant="theirs")
    body = {"jobType": "crawl", "payload": {"steps": 1}}
    job = (await client.post("/jobs", json=body, headers=mine)).json()["jobId"]
    async with working(hf):
        await steps.allow()
        await hf.wait(job, timeout=20)
        address = f"/jobs/{job}/items"
        assert len((await client.get(address, headers=mine)).json()["items"]) == 3
        is_problem(await client.get(address, headers=theirs), 404, "not-found")
        is_problem(await client.get(f"/jobs/{uuid4()}/items", headers=mine), 404, "not-found")
        assert (await client.delete(f"/jobs/{job}", headers=mine)).status_code == 202

        async def erased() -> bool:
            return any(event.event == "erased" for event in await hf.history(job))

        await until(erased, what="the job is erased")
        assert (await client.get(address, headers=mine)).json() == {"items": [], "nextCursor": None}
        assert set((await client.get(f"/jobs/{job}", headers=mine)).json()) == PLAIN
        assert (await hf.get(job)).cursor is None


async def test_a_cursor_that_was_not_given_out_is_refused(client: httpx.AsyncClient) -> None:
    job = await submitted(client, jobType="x")
    for query in ({"cursor": "nonsense"}, {"cursor": "é"}, {"cursor": "A" * 22}, {"limit": 0}, {"limit": 1001}):
        is_problem(await client.get(f"/jobs/{job}/items", params=query), 422, "invalid")


async def stored(hf: Holdfast, conn: asyncpg.Connection, count: int, size: int = 10) -> str:
    """A job with items."""
    ref = await hf.enqueue("x", {})
    await conn.execute(
        """
        insert into job_items (job_id, id, tenant, collection, key, data)
        select j.id, n, j.tenant, j.id::text, n::text, to_jsonb(repeat('x', $2)) from jobs j, generate_series(1, $3) n
        where j.id = $1
        """,
        *(ref.id, size, count),
    )
    return str(ref.id)


NDJSON = {"format": "ndjson"}


async def test_an_export_has_every_item_line_by_line_as_pages_have_them(
    client: httpx.AsyncClient, hf: Holdfast, conn: asyncpg.Connection
) -> None:
    address = f"/jobs/{await stored(hf, conn, 2500)}/items"
    export = await client.get(address, params=NDJSON)
    assert export.headers["content-type"].startswith("application/x-ndjson")
    lines = [json.loads(line) for line in export.text.splitlines()]
    assert [line["key"] for line in lines] == [str(n) for n in range(1, 2501)]
    page = (await client.get(address, params={"limit": 10})).json()
    assert lines[:10] == page["items"]
    rest = await client.get(address, params={"cursor": page["nextCursor"], "limit": 995} | NDJSON)
    assert [json.loads(line) for line in rest.text.splitlines()] == lines[10:1005]
    nothing = await client.get(f"/jobs/{await submitted(client, jobType='x')}/items", params=NDJSON)
    assert (nothing.status_code, nothing.text) == (200, "")
    state = client._transport.app.state.holdfast  # type: ignore[attr-defined]
    assert not state._waiting_of_tenant
    assert not state.answers._held
    is_problem(await client.get(f"/jobs/{uuid4()}/items", params=NDJSON), 404, "not-found")


async def test_an_export_ends_when_its_key_does(
    client: httpx.AsyncClient, hf: Holdfast, conn: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was sent by then is not taken for the whole: its end does not come."""
    job = await stored(hf, conn, 2500)
    state = client._transport.app.state.holdfast  # type: ignore[attr-defined]

    async def refused(request: object) -> None:
        raise Problem(401, "bad-key", "revoked")

    monkeypatch.setattr(state.auth, "look_again", refused)
    transport = httpx.ASGITransport(client._transport.app)  # type: ignore[attr-defined]
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as other:
        with pytest.raises(RuntimeError, match="response already started"):
            await other.get(f"/jobs/{job}/items", params=NDJSON)
    assert not state._waiting_of_tenant
    assert not state.answers._held


async def test_an_export_that_cannot_be_completed_is_cut(
    hf: Holdfast, conn: asyncpg.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    job = await stored(hf, conn, 50_000)
    async with serving(hf) as (state, (host, port)), httpx.AsyncClient(base_url=f"http://{host}:{port}") as caller:
        async with caller.stream("GET", f"/jobs/{job}/items", params=NDJSON) as answer:
            assert answer.status_code == 200
            lines = answer.aiter_lines()
            assert json.loads(await anext(lines))["key"] == "1"
            state.drain()
            with pytest.raises(httpx.TransportError):
                async for _ in lines:
                    pass
    assert not state._waiting_of_tenant
    assert "Exception" not in caplog.text


async def test_exports_count_as_streams(
    client: httpx.AsyncClient, hf: Holdfast, conn: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"/jobs/{await stored(hf, conn, 1)}/items"
    monkeypatch.setattr(web_state, "_WAITING", 0)
    is_problem(await client.get(address, params=NDJSON), 503, "unavailable")
    assert (await client.get(address)).status_code == 200

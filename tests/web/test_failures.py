"""`/ops/failures`: causes by tenant, page by page, and the way from a cause to its jobs."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import asyncpg
import httpx
import pytest

from holdfast import Context, Fatal, Holdfast, RetryPolicy
from holdfast.errors import InvalidInput
from holdfast.maintenance.duties import DUTIES
from holdfast.maintenance.duties.fingerprints import Fingerprints
from tests.sql.factories import run_one, settle
from tests.web.conftest import KeyMaker
from tests.web.test_jobs import is_problem

FIELDS = {
    "fingerprint", "tenant", "type", "error_type", "message", "count", "open_count", "open_more", "first_seen",
    "last_seen", "sample_job_id",
}  # fmt: skip


async def failed(conn: asyncpg.Connection, message: str, *, tenant: str = "default", job_type: str = "mail") -> UUID:
    lease = await run_one(conn, job_type, tenant=tenant)
    await settle(conn, "fail", [lease], kinds=["fatal"], error_types=["Fault"], error_messages=[message])
    return lease.job_id


async def listed(client: httpx.AsyncClient, headers: dict[str, str] | None = None, **words: Any) -> list[Any]:
    """All pages."""
    found: list[Any] = []
    while True:
        answer = await client.get("/ops/failures", params=words, headers=headers)
        assert answer.status_code == 200, answer.text
        body = answer.json()
        found += body["items"]
        if body["next_cursor"] is None:
            return found
        words["cursor"] = body["next_cursor"]


async def test_what_handlers_raise_is_grouped_and_leads_to_its_jobs(
    hf: Holdfast, client: httpx.AsyncClient, conn: asyncpg.Connection
) -> None:
    @hf.job("report", retry=RetryPolicy(max_attempts=1))
    async def report(ctx: Context, n: int) -> None:
        raise Fatal(f"page {n} of 'annual' isn't there") if n else KeyError("index")

    jobs = [await hf.enqueue("report", {"n": n}) for n in range(4)]
    await hf.run_worker(burst=True)
    for _ in range(2):
        groups = {group["message"]: group for group in await listed(client)}
        assert set(groups) == {"page ? of ? isn't there", "?"}
        pages = groups["page ? of ? isn't there"]
        assert pages.keys() == FIELDS
        assert (pages["type"], pages["error_type"], pages["count"], pages["open_count"]) == ("report", "Fatal", 3, 3)
        assert groups["?"]["error_type"] == "KeyError"
        words = {"q": f"fingerprint:{pages['fingerprint']}"}
        found = (await client.get("/ops/jobs", params=words)).json()["items"]
        assert {job["id"] for job in found} == {str(job.id) for job in jobs[1:]}
        assert pages["sample_job_id"] in {job["id"] for job in found}
        await conn.execute("select add_failures()")


async def test_pages_follow_one_another(client: httpx.AsyncClient, conn: asyncpg.Connection) -> None:
    for n in range(5):
        await failed(conn, f"{'abcde'[n]} broke", job_type="mail" if n else "report")
    newest = [f"{letter} broke" for letter in "edcba"]
    assert [group["message"] for group in await listed(client, limit=2)] == newest
    await conn.execute("select add_failures()")
    assert [group["message"] for group in await listed(client, limit=2)] == newest
    assert [group["message"] for group in await listed(client, limit=1, type="report")] == ["a broke"]
    assert await listed(client, type="none") == []


async def test_a_key_sees_its_tenant_and_admin_sees_all(
    client: httpx.AsyncClient, conn: asyncpg.Connection, key: KeyMaker
) -> None:
    for tenant in ("acme", "globex"):
        await failed(conn, "disk full", tenant=tenant)
    mine, admin, reader = await key("operate", tenant="acme"), await key("admin"), await key("read", tenant="acme")
    assert [group["tenant"] for group in await listed(client, mine)] == ["acme"]
    assert [group["tenant"] for group in await listed(client, admin)] == ["globex", "acme"]
    is_problem(await client.get("/ops/failures", headers=reader), 403, "scope")
    is_problem(await client.get("/ops/failures"), 401, "no-key")
    # A cursor of somebody else's page leads to one's own things.
    cursor = (await client.get("/ops/failures", params={"limit": 1}, headers=admin)).json()["next_cursor"]
    assert all(group["tenant"] == "acme" for group in await listed(client, mine, cursor=cursor))


@pytest.mark.parametrize("cursor", ["x", "W10", "WyJhIiwiYiIsImMiXQ", "WyIyMDI2LTAxLTAxIiwiYiIsImMiXQ"])
async def test_other_cursors_are_refused(client: httpx.AsyncClient, cursor: str) -> None:
    is_problem(await client.get("/ops/failures", params={"cursor": cursor}), 422, "invalid")


async def test_operations_answer_page_by_page(hf: Holdfast, conn: asyncpg.Connection) -> None:
    for letter in "abc":
        await failed(conn, f"{letter} broke")
    ops = await hf.operations()
    page = await ops.failures(limit=2)
    assert [group.message for group in page.groups] == ["c broke", "b broke"]
    rest = await ops.failures(limit=2, before=page.reached)
    assert [group.message for group in rest.groups] == ["a broke"]
    assert rest.reached is None
    assert (await ops.failures(tenant="acme")).groups == []
    with pytest.raises(InvalidInput, match="limit"):
        await ops.failures(limit=0)


def test_the_leader_adds_failures_up() -> None:
    assert Fingerprints in DUTIES
    assert Fingerprints.name == "fingerprints"

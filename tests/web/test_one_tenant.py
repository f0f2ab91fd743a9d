"""`?tenant=` on lists of what each tenant has of its own: for administrators, and for nobody else."""

from __future__ import annotations

import asyncpg
import httpx

from holdfast import Holdfast
from tests.web.conftest import KeyMaker
from tests.web.test_failures import failed
from tests.web.test_jobs import is_problem


async def test_administrators_look_at_one_tenant(
    client: httpx.AsyncClient, hf: Holdfast, conn: asyncpg.Connection, key: KeyMaker
) -> None:
    admin, own = await key("admin"), await key("operate", tenant="acme")
    for tenant in ("acme", "globex"):
        await failed(conn, "timed out", tenant=tenant)
        await hf.enqueue("order", {}, tenant=tenant, correlation_id="c")
    for path in ("/ops/failures", "/ops/correlations/c"):
        both = (await client.get(path, headers=admin)).json()["items"]
        assert {item["tenant"] for item in both} == {"acme", "globex"}
        one = (await client.get(path, params={"tenant": "acme"}, headers=admin)).json()["items"]
        assert [item["tenant"] for item in one] == ["acme"]
        assert (await client.get(path, params={"tenant": "acme"}, headers=own)).json()["items"] == one
        is_problem(await client.get(path, params={"tenant": "globex"}, headers=own), 403, "scope")

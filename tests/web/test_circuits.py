"""`/ops/circuits`: what operators of the installation see and set."""

from __future__ import annotations

import asyncpg
import httpx

from tests.sql.test_circuits import report
from tests.web.conftest import KeyMaker
from tests.web.test_jobs import is_problem
from tests.web.test_steering import pages

CIRCUITS = "/ops/circuits"


async def test_circuits_are_listed_opened_and_reset(
    client: httpx.AsyncClient, conn: asyncpg.Connection, key: KeyMaker
) -> None:
    admin = await key("admin")
    await report(conn, 2, 5)
    (found,) = (await client.get(CIRCUITS, headers=admin)).json()["items"]
    assert {name: found[name] for name in ("name", "tenant", "state", "last_error", "forced_by")} == {
        "name": "mail", "tenant": None, "state": "open", "last_error": "Down: no answer", "forced_by": None,
    }  # fmt: skip
    assert found["next_probe_at"] > found["opened_at"]
    closed = await client.post(f"{CIRCUITS}/mail/reset", json={"reason": "it is back"}, headers=admin)
    assert (closed.status_code, closed.json()["state"], closed.json()["failure_count"]) == (200, "closed", 0)
    forced = await client.post(f"{CIRCUITS}/a/b/open", json={"reason": "maintenance", "seconds": 60}, headers=admin)
    assert (forced.json()["state"], forced.json()["forced_by"], forced.json()["name"]) == ("open", "a key", "a/b")
    forever = (await client.post(f"{CIRCUITS}/mail/open?tenant=acme", headers=admin)).json()
    assert (forever["tenant"], forever["next_probe_at"]) == ("acme", None)
    names = [(each["name"], each["tenant"]) for each in await pages(client, CIRCUITS, admin, limit=1)]
    assert names == [("a/b", None), ("mail", None), ("mail", "acme")]
    own = (await client.get(f"{CIRCUITS}?tenant=acme", headers=admin)).json()["items"]
    assert [each["tenant"] for each in own] == ["acme"]


async def test_what_is_not_a_circuit_is_refused(client: httpx.AsyncClient, key: KeyMaker) -> None:
    admin = await key("admin")
    made = await client.post(f"{CIRCUITS}/unknown/reset", headers=admin)
    assert (made.status_code, made.json()["state"]) == (200, "closed")
    is_problem(await client.post(f"{CIRCUITS}/mail/open", json={"seconds": 0}, headers=admin), 422, "invalid")
    is_problem(await client.post(f"{CIRCUITS}/mail/open", json={"minutes": 1}, headers=admin), 422, "invalid")
    is_problem(await client.post(f"{CIRCUITS}/{'x' * 201}/open", headers=admin), 422, "invalid")
    is_problem(await client.get(CIRCUITS, headers=await key("operate")), 403, "scope")

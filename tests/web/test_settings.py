"""`/ops/settings`: looked at and changed while everything runs, by administrators."""

from __future__ import annotations

import asyncpg
import httpx
import pytest

from holdfast import Holdfast
from tests.sql.factories import claim, enqueue
from tests.web.conftest import KeyMaker
from tests.web.test_jobs import is_problem

LEASE = "/ops/settings/LEASE_SEC_DEFAULT"


async def test_a_setting_holds_at_once_until_it_is_reset(client: httpx.AsyncClient, conn: asyncpg.Connection) -> None:
    changed = (await client.put(LEASE, json={"value": "2m", "note": "slow uploads"})).json()
    assert (changed["value"], changed["origin"], changed["default_value"]) == ("120", "database", "30")
    await enqueue(conn)
    await claim(conn)
    assert await conn.fetchval("select lease_seconds from leases") == 120
    back = (await client.request("DELETE", LEASE, json={"note": "they are quick again"})).json()
    assert (back["value"], back["origin"]) == ("30", "default")
    log = (await client.get("/ops/audit")).json()["items"]
    assert [(entry["action"], entry["subject"], entry["detail"]) for entry in log] == [
        ("setting.reset", "LEASE_SEC_DEFAULT", {"from": "120", "note": "they are quick again"}),
        ("setting.set", "LEASE_SEC_DEFAULT", {"to": "120", "note": "slow uploads"}),
    ]


async def test_pages_list_every_setting_once(client: httpx.AsyncClient, conn: asyncpg.Connection) -> None:
    names, cursor = [], None
    while True:
        page = (await client.get("/ops/settings", params={"limit": 3} | ({"cursor": cursor} if cursor else {}))).json()
        names += [setting["name"] for setting in page["items"]]
        if (cursor := page["next_cursor"]) is None:
            break
    assert names == [row["name"] for row in await conn.fetch("select name from settings order by name")]


@pytest.mark.parametrize("value", ["30s later", "-1", 0, 1e300, "", "1e4000", True, None, ["30"], "x" * 2000])
async def test_what_the_engine_cannot_use_is_refused_and_nothing_changes(
    client: httpx.AsyncClient, conn: asyncpg.Connection, value: object
) -> None:
    refused = await client.put(LEASE, json={"value": value})
    is_problem(refused, 422, "invalid")
    assert {error["pointer"] for error in refused.json().get("errors", [])} <= {"/value"}
    assert await conn.fetchval("select count(*) from settings where value is not null") == 0
    assert await conn.fetchval("select count(*) from audit_log") == 0


async def test_unknown_settings_are_not_found_and_those_of_processes_say_where_they_are_set(
    client: httpx.AsyncClient,
) -> None:
    unknown = await client.put("/ops/settings/LEASE_SEC_DEFAULTS", json={"value": 30})
    is_problem(unknown, 404, "not-found")
    assert "LEASE_SEC_DEFAULT?" in unknown.json()["detail"]
    own = await client.put("/ops/settings/POLL_INTERVAL", json={"value": 30})
    is_problem(own, 404, "not-found")
    assert "HOLDFAST_POLL_INTERVAL" in own.json()["detail"]


async def test_a_change_names_the_key_and_the_same_value_again_is_no_change(
    client: httpx.AsyncClient, hf: Holdfast, key: KeyMaker
) -> None:
    admin = await key("admin")
    for _ in range(2):
        await client.put(LEASE, json={"value": 60}, headers=admin)
    log = await (await hf.operations()).keys.audit(before=None, limit=50)
    (entry,) = [entry for entry in log if entry.action == "setting.set"]
    assert (entry.actor, entry.key_id is not None) == ("a key", True)


async def test_the_environment_of_the_process_that_answers_is_an_origin(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_RETENTION_DAYS", "3")
    async with Holdfast(database_url) as hf:
        settings = (await hf.operations()).settings
        found = await settings.get("retention_days")
        assert (found.value, found.origin) == ("3.0", "environment")
        assert (await settings.set("RETENTION_DAYS", 5, by="ada")).origin == "database"
        assert (await settings.reset("HOLDFAST_RETENTION_DAYS", by="ada")).origin == "environment"

"""Bulk operations over HTTP: dry run, start, progress, stop, and who may."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import asyncpg
import httpx

from tests.sql.factories import enqueue, state_of
from tests.sql.test_bulk import finish
from tests.sql.test_letters import died, letter
from tests.web.conftest import KeyMaker
from tests.web.test_jobs import is_problem
from tests.web.test_steering import pages

BULK = "/ops/bulk"


async def test_a_dry_run_changes_nothing_and_the_run_does_what_it_said(
    client: httpx.AsyncClient, conn: asyncpg.Connection, key: KeyMaker
) -> None:
    operate = await key("operate")
    ids = [await died(conn) for _ in range(3)]
    asked: dict[str, Any] = {"action": "requeue", "q": "type:work", "note": "mended"}
    asked["args"] = {"options": {"priority": 7}}
    dry = await client.post(BULK, json=asked | {"dry_run": True}, headers=operate)
    assert (dry.status_code, dry.json()["matches"], dry.json()["exact"]) == (200, 3, True)
    assert dry.json()["sample"][0] == {"id": str(ids[2]), "tenant": "default", "type": "work", "state": "dead"}
    assert await pages(client, BULK, operate) == []

    started = await client.post(BULK, json=asked, headers=operate)
    assert started.status_code == 202
    place = f"{BULK}/{started.json()['bulk_id']}"
    begun = (await client.get(place, headers=operate)).json()
    assert (begun["state"], begun["matched"], begun["finished_at"], begun["by"]) == ("fixing", 0, None, "a key")
    await finish(conn)
    ended = (await client.get(place, headers=operate)).json()
    assert {name: ended[name] for name in ("state", "matched", "done", "skipped", "failed", "q", "note", "tenant")} == {
        "state": "done", "matched": 3, "done": 3, "skipped": 0, "failed": 0, "q": "type:work", "note": "mended",
        "tenant": "default",
    }  # fmt: skip
    assert ended["finished_at"] is not None
    assert await conn.fetchval("select array_agg(distinct priority) from jobs where retry_of is not null") == [7]
    assert (await letter(conn, ids[0]))["note"] == "mended"
    assert "done" in is_problem(await client.post(f"{place}/stop", headers=operate), 409, "conflict")["detail"]


async def test_waiting_jobs_get_another_priority(
    client: httpx.AsyncClient, conn: asyncpg.Connection, key: KeyMaker
) -> None:
    operate = await key("operate")
    ids = [await enqueue(conn), await enqueue(conn, delay=60)]
    await enqueue(conn, "other")
    asked: dict[str, Any] = {"action": "reprioritize", "q": "type:work"}
    for args in ({}, {"priority": -1}, {"priority": 10, "options": {}}):
        is_problem(await client.post(BULK, json=asked | {"args": args}, headers=operate), 422, "invalid")
    started = await client.post(BULK, json=asked | {"args": {"priority": 10}}, headers=operate)
    assert started.status_code == 202
    await finish(conn)
    ended = (await client.get(f"{BULK}/{started.json()['bulk_id']}", headers=operate)).json()
    assert (ended["state"], ended["done"]) == ("done", 2)
    changed = await conn.fetch("select id from jobs where priority = 10")
    assert {row["id"] for row in changed} == set(ids)


async def test_one_can_be_stopped_and_all_are_listed_in_pages(
    client: httpx.AsyncClient, conn: asyncpg.Connection, key: KeyMaker
) -> None:
    operate, job_id = await key("operate"), await enqueue(conn)
    asked = {"action": "cancel", "q": "state:queued"}
    made = [(await client.post(BULK, json=asked, headers=operate)).json()["bulk_id"] for _ in range(3)]
    for bulk_id in made:
        stopped = await client.post(f"{BULK}/{bulk_id}/stop", json={"note": "a mistake"}, headers=operate)
        assert (stopped.status_code, stopped.json()["state"]) == (202, "stopping")
    await finish(conn)
    assert [(item["id"], item["state"]) for item in await pages(client, BULK, operate)] == [
        (bulk_id, "stopped") for bulk_id in reversed(made)
    ]
    assert await state_of(conn, job_id) == "queued"


async def test_operators_act_within_their_tenant_and_administrators_on_all(
    client: httpx.AsyncClient, conn: asyncpg.Connection, key: KeyMaker
) -> None:
    operate, admin = await key("operate"), await key("admin")
    mine, other = await died(conn), await died(conn, tenant="other")
    asked = {"action": "ack", "q": "state:dead"}
    counted = [
        (await client.post(BULK, json=asked | {"dry_run": True}, headers=headers)).json()["matches"]
        for headers in (operate, admin)
    ]
    assert counted == [1, 2]
    await client.post(BULK, json=asked, headers=operate)
    await finish(conn)
    assert [(await letter(conn, job))["acknowledged"] for job in (mine, other)] == [True, False]
    over_all = (await client.post(BULK, json=asked, headers=admin)).json()["bulk_id"]
    await finish(conn)
    assert (await letter(conn, other))["acknowledged"]
    for call, place in ((client.get, f"{BULK}/{over_all}"), (client.post, f"{BULK}/{over_all}/stop")):
        is_problem(await call(place, headers=operate), 404, "not-found")
    assert len(await pages(client, BULK, operate)) == 1
    assert len(await pages(client, BULK, admin)) == 2
    is_problem(await client.post(BULK, json=asked, headers=await key("submit", "read")), 403, "scope")


async def test_bad_questions_are_told(client: httpx.AsyncClient, key: KeyMaker) -> None:
    operate = await key("operate")
    bodies: list[dict[str, Any]] = [
        {"action": "explode", "q": "state:dead"}, {"action": "cancel"}, {"action": "cancel", "q": ""},
        {"action": "cancel", "q": "colour:red"}, {"action": "cancel", "q": "state:queued", "args": {"colour": 1}},
        {"action": "cancel", "q": "state:queued", "args": {"priority": 1}}, {"action": "ack", "q": "\x00"},
        {"action": "requeue", "q": "", "args": {"options": {"parent_id": "x"}}}, {"action": "ack", "q": "", "note": ""},
        {"action": "reprioritize", "q": "state:queued", "args": {"priority": -1}},
        {"action": "reprioritize", "q": "state:queued", "args": {"priority": 1.5}},
        {"action": "reprioritize", "q": "state:queued"},
    ]  # fmt: skip
    for body in bodies:
        for dry_run in (True, False):
            is_problem(await client.post(BULK, json=body | {"dry_run": dry_run}, headers=operate), 422, "invalid")
    for unknown in (uuid4(), "nonsense"):
        is_problem(await client.get(f"{BULK}/{unknown}", headers=operate), 404, "not-found")
        is_problem(await client.post(f"{BULK}/{unknown}/stop", headers=operate), 404, "not-found")
    is_problem(await client.get(BULK, params={"cursor": "x"}, headers=operate), 422, "invalid")

"""Steering over HTTP: lists in pages, pauses with who and why, limits, drain, targets, and why a job does not run."""

from __future__ import annotations

from typing import Any

import asyncpg
import httpx

from holdfast import Holdfast
from tests.sql.factories import elect, execute
from tests.web.conftest import KeyMaker
from tests.web.test_jobs import is_problem


async def pages(client: httpx.AsyncClient, path: str, headers: dict[str, str], **query: Any) -> list[dict[str, Any]]:
    """Everything, two at a time."""
    found: list[dict[str, Any]] = []
    cursor: dict[str, str] = {}
    while True:
        answer = await client.get(path, params={"limit": 2, **query, **cursor}, headers=headers)
        assert answer.status_code == 200, answer.text
        body = answer.json()
        assert len(body["items"]) <= 2
        found += body["items"]
        if body["next_cursor"] is None:
            return found
        cursor = {"cursor": body["next_cursor"]}


async def test_what_is_paused_says_who_why_and_since(client: httpx.AsyncClient, hf: Holdfast, key: KeyMaker) -> None:
    admin = await key("admin")
    await hf.enqueue("mail", {}, queue="a/b")
    for path, name in (("queues", "a/b"), ("types", "mail"), ("lanes", "general"), ("tenants", "default")):
        paused = await client.post(f"/ops/{path}/{name}/pause", json={"reason": "a leak"}, headers=admin)
        assert paused.status_code == 200, paused.text
        assert (paused.json()["name"], paused.json()["waiting"]) == (name, 1)
        (found,) = [item for item in await pages(client, f"/ops/{path}", admin) if item["name"] == name]
        assert found == paused.json()
        assert (found["paused"]["by"], found["paused"]["reason"]) == ("a key", "a leak")
        assert (await client.post(f"/ops/{path}/{name}/resume", headers=admin)).json()["paused"] is None
    log = (await client.get("/ops/audit", headers=admin)).json()["items"]
    assert [entry["action"] for entry in log][:2] == ["tenant.resume", "tenant.pause"]
    is_problem(await client.post("/ops/lanes/slow/pause", headers=admin), 422, "invalid")
    is_problem(await client.get("/ops/queues", params={"cursor": "x"}, headers=admin), 422, "invalid")

    drained = (await client.post("/ops/drain", json={"reason": "upgrade"}, headers=admin)).json()
    assert (drained["paused"]["reason"], drained["running"]) == ("upgrade", 0)
    seen = (await client.get("/ops/drain", headers=await key("operate"))).json()
    assert seen == drained | {"paused": drained["paused"] | {"by": None, "reason": None}}
    assert (await client.post("/ops/resume", headers=admin)).json()["paused"] is None


async def test_limits_are_put_as_a_whole(client: httpx.AsyncClient, hf: Holdfast, key: KeyMaker) -> None:
    admin = await key("admin")
    for path in ("queues", "types", "tenants"):
        body: dict[str, Any] = {"limit": 3, "rate": "100/min"}
        body |= {"weight": 2.5} if path == "tenants" else {}
        set_to = (await client.put(f"/ops/{path}/x/limits", json=body, headers=admin)).json()
        assert {name: set_to[name] for name in body} == body
        as_before = body | {"rate": {"count": 100, "seconds": 60}}
        assert (await client.put(f"/ops/{path}/x/limits", json=as_before, headers=admin)).json() == set_to
        cleared = (await client.put(f"/ops/{path}/x/limits", json={}, headers=admin)).json()
        assert {name: cleared[name] for name in body} == dict.fromkeys(body)
        for wrong in (
            {"limit": -1},
            {"limit": True},
            {"limit": "5"},
            {"colour": 1},
            {"rate": "often"},
            {"rate": "0/s"},
            {"rate": 5},
            {"rate": {"count": 1}},
            {"rate": {"count": "1", "seconds": 1}},
            {"rate": {"count": 1, "seconds": True}},
            {"rate": {"count": 1, "seconds": 0}},
            {"rate": {"count": 1, "seconds": 2_678_401}},
        ):
            is_problem(await client.put(f"/ops/{path}/x/limits", json=wrong, headers=admin), 422, "invalid")
    assert await (await hf.operations()).decisions() == []


async def test_a_tenants_operators_steer_their_own_tenant_alone(
    client: httpx.AsyncClient, hf: Holdfast, key: KeyMaker
) -> None:
    mine, admin = await key("operate", tenant="mine"), await key("admin")
    await hf.enqueue("mail", {}, tenant="theirs", queue="secret", target="t")
    await hf.enqueue("mail", {}, tenant="mine", target="t")
    for path, name in (("queues", "default"), ("types", "mail"), ("lanes", "fast"), ("tenants", "theirs")):
        for verb in ("pause", "resume"):
            is_problem(await client.post(f"/ops/{path}/{name}/{verb}", headers=mine), 403, "scope")
    is_problem(await client.put("/ops/tenants/mine/limits", json={}, headers=mine), 403, "scope")
    is_problem(await client.post("/ops/drain", headers=mine), 403, "scope")

    assert (await client.post("/ops/tenants/mine/pause", headers=mine)).json()["paused"]["by"] == "mine/a key"
    assert (await client.post("/ops/tenants/mine/resume", headers=mine)).json()["paused"] is None
    # What an administrator paused is not theirs to resume.
    await client.post("/ops/tenants/mine/pause", headers=admin)
    is_problem(await client.post("/ops/tenants/mine/resume", headers=mine), 403, "scope")
    assert (await client.post("/ops/tenants/mine/resume", headers=admin)).json()["paused"] is None
    # Nor if they had paused it before.
    await client.post("/ops/tenants/mine/pause", headers=mine)
    assert (await client.post("/ops/tenants/mine/pause", headers=admin)).json()["paused"]["by"] == "a key"
    is_problem(await client.post("/ops/tenants/mine/resume", headers=mine), 403, "scope")
    assert (await client.post("/ops/tenants/mine/resume", headers=admin)).json()["paused"] is None

    assert [item["name"] for item in await pages(client, "/ops/tenants", mine)] == ["mine"]
    assert {item["name"] for item in await pages(client, "/ops/tenants", admin)} == {"default", "mine", "theirs"}
    assert [item["name"] for item in await pages(client, "/ops/queues", mine)] == ["default"]


async def test_a_tenant_learns_that_it_is_paused_and_why_only_if_that_is_public(
    client: httpx.AsyncClient, hf: Holdfast, key: KeyMaker
) -> None:
    mine, admin = await key("operate", tenant="mine"), await key("admin", tenant="mine")
    job = await hf.enqueue("mail", {}, tenant="mine")
    paths = {"queues/default": "queues", "types/mail": "types", "lanes/general": "lanes", "tenants/mine": "tenants"}
    for public in (False, True):
        why = "a secret" if public else None
        for path, listed in paths.items():
            body = {"reason": "a secret", "public": public}
            own = (await client.post(f"/ops/{path}/pause", json=body, headers=admin)).json()
            assert (own["paused"]["by"], own["paused"]["reason"]) == ("a key", "a secret")
            (found,) = [item for item in await pages(client, f"/ops/{listed}", mine) if item["name"] in path]
            assert found["paused"] == own["paused"] | {"by": None, "reason": why}
            told = await client.get(f"/ops/jobs/{job.id}/explain", headers=mine)
            assert ("a secret" in told.text, "a key" in told.text) == (public, False)
            if listed == "tenants":
                again = await client.post(f"/ops/{path}/pause", json={"reason": "mine"}, headers=mine)
                assert again.json()["paused"] == found["paused"]
                refused = await client.post(f"/ops/{path}/resume", headers=mine)
                is_problem(refused, 403, "scope")
                assert "a secret" not in refused.text
                assert "a key" not in refused.text
            await client.post(f"/ops/{path}/resume", headers=admin)
    is_problem(await client.post("/ops/tenants/mine/resume", json={"public": True}, headers=mine), 422, "invalid")
    is_problem(await client.post("/ops/tenants/mine/pause", json={"public": 1}, headers=mine), 422, "invalid")


async def test_a_key_named_like_a_tenant_makes_no_pause_that_the_tenant_can_lift(
    client: httpx.AsyncClient, hf: Holdfast, key: KeyMaker
) -> None:
    _, secret = await (await hf.operations()).keys.create("acme/ops", scopes=["admin"], by="a test")
    admin, theirs = {"Authorization": f"Bearer {secret}"}, await key("operate", tenant="acme")
    assert (await client.post("/ops/tenants/acme/pause", headers=admin)).json()["paused"]["by"] == "acme/ops"
    is_problem(await client.post("/ops/tenants/acme/resume", headers=theirs), 403, "scope")
    (acme,) = await pages(client, "/ops/tenants", theirs)
    assert acme["paused"]["by"] is None


async def test_a_closed_type_takes_no_jobs_and_says_who_and_why(
    client: httpx.AsyncClient, hf: Holdfast, key: KeyMaker
) -> None:
    admin, mine = await key("admin"), await key("submit", "read", tenant="mine")
    bound = await client.post("/jobs", json={"jobType": "mail/x", "idempotencyKey": "k"}, headers=mine)
    closed = await client.post("/ops/types/mail/x/close", json={"reason": "a leak"}, headers=admin)
    assert (closed.json()["closed"]["by"], closed.json()["closed"]["reason"]) == ("a key", "a leak")
    assert [item for item in await pages(client, "/ops/types", admin) if item["name"] == "mail/x"] == [closed.json()]
    refused = await client.post("/jobs", json={"jobType": "mail/x"}, headers=mine)
    is_problem(refused, 409, "type-closed")
    assert "by a key at " in refused.json()["detail"]
    assert '("a leak")' in refused.json()["detail"]
    jobs = [{"jobType": "mail/x"}, {"jobType": "other"}, {"jobType": "mail/x", "idempotencyKey": "k"}]
    results = (await client.post("/jobs/batch", json={"jobs": jobs}, headers=mine)).json()["results"]
    assert [result.get("problem", {}).get("code") for result in results] == ["type-closed", None, None]
    again = await client.post("/jobs", json={"jobType": "mail/x", "idempotencyKey": "k"}, headers=mine)
    assert (again.status_code, again.json()) == (202, bound.json())
    assert (await client.post("/ops/types/mail/x/open", headers=admin)).json()["closed"] is None
    assert (await client.post("/jobs", json={"jobType": "mail/x"}, headers=mine)).status_code == 202
    log = (await client.get("/ops/audit", headers=admin)).json()["items"][:2]
    assert [(entry["action"], entry["subject"], entry["detail"].get("note")) for entry in log] == [
        ("type.open", "mail/x", None), ("type.close", "mail/x", "a leak")]  # fmt: skip


async def test_clients_read_what_operators_wrote_only_if_it_is_public(
    client: httpx.AsyncClient, hf: Holdfast, key: KeyMaker, conn: asyncpg.Connection
) -> None:
    admin, mine = await key("admin"), await key("submit", "read", tenant="mine")
    for verb, status in (("pause", "PAUSED"), ("cancel", "CANCELED"), ("resolve", "CANCELED")):
        for public in (False, True):
            job = (await hf.enqueue("mail", {}, tenant="mine")).id
            body = {"reason": "a leak", "public": public}
            asked = await client.post(f"/ops/jobs/{job}/{verb}", json=body, headers=admin)
            assert (asked.status_code, asked.json()) == (202, {"job_id": str(job), "state": "queued"})
            await conn.execute("select execute_requests()")
            seen = (await client.get(f"/jobs/{job}", headers=mine)).json()
            assert (seen["status"], seen.get("message")) == (status, "a leak" if public else None)
            assert ("message" in seen) == public
            detail = (await client.get("/ops/audit?limit=1", headers=admin)).json()["items"][0]["detail"]
            assert detail == {"note": "a leak"} | ({"public": True} if public else {})
            if verb == "pause":
                assert (await client.post(f"/ops/jobs/{job}/resume", headers=admin)).status_code == 202
                await conn.execute("select execute_requests()")
                assert "message" not in (await client.get(f"/jobs/{job}", headers=mine)).json()


async def test_blocked_targets_name_the_culprit_and_can_be_resolved(
    client: httpx.AsyncClient, hf: Holdfast, key: KeyMaker, conn: asyncpg.Connection
) -> None:
    mine, theirs = await key("operate", tenant="mine"), await key("operate", tenant="theirs")
    heads, others = {}, {}
    for name in ("a", "b/c", "d", "free"):
        heads[name] = (await hf.enqueue("mail", {}, tenant="mine", target=name)).id
        await elect(conn)
        others[name] = (await hf.enqueue("mail", {}, tenant="mine", target=name)).id
        await elect(conn)
        if name != "free":
            await execute(conn, "pause", heads[name])
    blocked = await pages(client, "/ops/targets", mine, blocked=True)
    assert [(item["target"], item["job_id"]) for item in blocked] == [(n, str(heads[n])) for n in ("a", "b/c", "d")]
    assert [item["target"] for item in await pages(client, "/ops/targets", mine)] == ["a", "b/c", "d", "free"]
    assert await pages(client, "/ops/targets", theirs) == []

    shown = (await client.get("/ops/targets/b/c", headers=mine)).json()
    assert (shown["blocked"], shown["state"], shown["waiting"]) == (True, "paused", 1)
    assert shown["line"] == [str(others["b/c"])]
    for query in ({}, {"tenant": "mine"}):
        is_problem(await client.get("/ops/targets/a", params=query, headers=theirs), 404, "not-found")
    admin = await key("admin")
    assert (await client.get("/ops/targets/a", params={"tenant": "mine"}, headers=admin)).status_code == 200

    told = (await client.get(f"/ops/jobs/{others['a']}/explain", headers=mine)).json()
    assert (told["code"], told["culprit"]["id"]) == ("target", str(heads["a"]))
    assert told["sentence"].startswith(f'The job waits behind job {heads["a"]} of its target "a", which was paused')
    answer = await client.post(f"/ops/jobs/{heads['a']}/resolve", json={"reason": "by hand"}, headers=mine)
    assert (answer.status_code, answer.json()["state"]) == (202, "paused")
    await conn.execute("select execute_requests()")
    is_problem(await client.post(f"/ops/jobs/{heads['a']}/resolve", headers=mine), 409, "already-final")
    told = (await client.get(f"/ops/jobs/{heads['a']}/explain", headers=mine)).json()
    assert "by a key" in told["sentence"]
    assert told["sentence"].startswith("The job was resolved by a key at ")
    assert told["sentence"].endswith('("by hand").')
    assert (await client.get("/ops/targets/a", headers=mine)).json()["job_id"] == str(others["a"])


async def test_one_queue_type_lane_or_tenant_is_drained(
    client: httpx.AsyncClient, hf: Holdfast, conn: asyncpg.Connection, key: KeyMaker
) -> None:
    admin, looks, mine = await key("admin"), await key("operate"), await key("operate", tenant="acme")
    job = await hf.enqueue("mail", {}, queue="a/b", tenant="acme")
    assert await conn.fetchval("select count(*) from claim('w1', array['mail'])") == 1
    subjects = (("queues", "a/b"), ("types", "mail"), ("lanes", "general"), ("tenants", "acme"))
    for path, name in subjects:
        assert (await client.get(f"/ops/{path}/{name}/drain", headers=admin)).json() == {
            "paused": None, "running": 1, "drained": False,
        }  # fmt: skip
        told = (await client.post(f"/ops/{path}/{name}/drain", json={"reason": "a move"}, headers=admin)).json()
        assert (told["paused"]["by"], told["paused"]["reason"]) == ("a key", "a move")
        assert (told["running"], told["drained"]) == (1, False)
        if path != "tenants":
            is_problem(await client.post(f"/ops/{path}/{name}/drain", headers=mine), 403, "scope")
            others = (await client.get(f"/ops/{path}/{name}/drain", headers=looks)).json()
            assert (others["running"], others["paused"]["by"], others["paused"]["reason"]) == (0, None, None)
        assert (await client.get(f"/ops/{path}/{name}/drain", headers=mine)).json()["running"] == 1
    is_problem(await client.get("/ops/tenants/acme/drain", headers=looks), 403, "scope")
    is_problem(await client.post("/ops/tenants/acme/drain", headers=looks), 403, "scope")
    is_problem(await client.get("/ops/lanes/slow/drain", headers=admin), 422, "invalid")
    is_problem(await client.post("/ops/queues/x/drain", json={"reason": 1}, headers=admin), 422, "invalid")
    await conn.execute("select complete('w1', array[$1::uuid], array[1])", job.id)
    for path, name in subjects:
        assert (await client.get(f"/ops/{path}/{name}/drain", headers=admin)).json()["drained"]
        await client.post(f"/ops/{path}/{name}/resume", headers=admin)
        assert not (await client.get(f"/ops/{path}/{name}/drain", headers=admin)).json()["drained"]
    # A tenant drains itself, and is told nothing of others.
    assert (await client.post("/ops/tenants/acme/drain", headers=mine)).json()["drained"]
    audit = (await client.get("/ops/audit", headers=admin)).json()["items"]
    assert (audit[0]["action"], audit[0]["actor"]) == ("tenant.pause", "acme/a key")

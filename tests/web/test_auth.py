"""Who may do what: every route of the description, with every scope, and for jobs of another tenant."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import httpx
import pytest
from starlette.datastructures import QueryParams

from holdfast import Holdfast
from holdfast.client import keyring
from holdfast.model.key import SCOPES
from holdfast.web import bodies
from holdfast.web.routes import create_app
from tests.sql.factories import claim_by_id
from tests.sql.test_letters import died
from tests.web.conftest import KeyMaker
from tests.web.document import DOCUMENT
from tests.web.test_jobs import is_problem

#: Whom the scope of a route lets in.
ALLOWED = {
    "submit": {"submit", "operate", "admin"},
    "read": {"read", "operate", "admin"},
    "work": {"work", "admin"},
    "operate": {"operate", "admin"},
    "metrics": {"metrics", "admin"},
    "admin": {"admin"},
}
#: Routes for everybody: they tell nothing of anybody's jobs.
OPEN = {("get", "/livez"), ("get", "/readyz"), ("get", "/problems/{code}")}
#: What routes with a body are sent.
BODIES: dict[tuple[str, str], Any] = {
    ("post", "/jobs"): {"jobType": "x"},
    ("post", "/jobs/batch"): {"jobs": [{"jobType": "x"}]},
    ("post", "/worker/pull"): {"worker_id": "w", "types": ["nothing"]},
    ("post", "/worker/report"): {"worker_id": "w", "job_id": str(uuid4()), "attempt": 1},
    ("post", "/worker/extend"): {"worker_id": "w", "leases": [{"job_id": str(uuid4()), "attempt": 1}]},
    ("post", "/worker/release"): {"worker_id": "w", "leases": [{"job_id": str(uuid4()), "attempt": 1}]},
    ("post", "/ops/bulk"): {"action": "cancel", "q": "state:queued type:nothing"},
    ("post", "/ops/schedules"): {"name": "a schedule", "every": 3600, "job": "x"},
    ("put", "/ops/schedules/{name}"): {"cron": "0 2 * * *", "job": "x"},
    ("post", "/ops/keys"): {"name": "n", "scopes": ["read"]},
    ("post", "/ops/keys/{key_id}/rotate"): {},
    ("post", "/ops/jobs/{job_id}/reprioritize"): {"priority": 5},
    ("put", "/ops/queues/{name}/limits"): {"limit": 1},
    ("put", "/ops/types/{name}/limits"): {"rate": {"count": 1, "seconds": 1}},
    ("put", "/ops/tenants/{name}/limits"): {"weight": 2},
    ("put", "/ops/settings/{name}"): {"value": 30},
}
ROUTES = [
    (method, path, operation.get("x-scope"))
    for path, operations in DOCUMENT["paths"].items()
    for method, operation in operations.items()
]
SECURED = [(method, path, scope) for method, path, scope in ROUTES if scope]


def test_every_route_names_its_scope_or_is_open() -> None:
    assert {(method, path) for method, path, scope in ROUTES if scope is None} == OPEN
    assert {scope for _, _, scope in SECURED} <= set(SCOPES)


def test_every_route_that_takes_a_body_has_a_case() -> None:
    needed = {
        (method, path)
        for path, operations in DOCUMENT["paths"].items()
        for method, operation in operations.items()
        if operation.get("requestBody", {}).get("required")
    }
    assert needed == set(BODIES)


async def call(client: httpx.AsyncClient, method: str, path: str, job: Any, headers: dict[str, str]) -> httpx.Response:
    address = path.replace("{job_id}", str(job)).replace("{key_id}", str(job)).replace("{target}", "t")
    address = address.replace("{bulk_id}", str(job)).replace("{worker}", "host:1:abcd")
    names = {"/lanes/": "general", "/settings/": "LEASE_SEC_DEFAULT"}
    address = address.replace("{name}", next((name for part, name in names.items() if part in path), "default"))
    return await client.request(method, address, json=BODIES.get((method, path)), headers=headers)


async def test_only_the_right_scopes_pass(client: httpx.AsyncClient, hf: Holdfast, key: KeyMaker) -> None:
    keys = {scope: await key(scope) for scope in SCOPES}
    client._transport.app.state.holdfast.drain()  # type: ignore[attr-defined]
    for method, path, scope in SECURED:
        job = await hf.enqueue("x", {}, hold=True, target="t")
        # What the administrator paused is not for a tenant's operator to resume.
        await (await hf.operations()).resume("tenant", "default", by="a test")
        for own, headers in keys.items():
            answer = await call(client, method, path, job.id, headers)
            if own in ALLOWED[scope]:
                assert answer.status_code not in (401, 403), (method, path, own, answer.text)
            else:
                is_problem(answer, 403, "scope")
                assert scope in answer.json()["detail"]


async def test_nobody_passes_without_a_good_key(client: httpx.AsyncClient, hf: Holdfast, key: KeyMaker) -> None:
    keys = (await hf.operations()).keys
    gone, secret = await keys.create("gone", scopes=["admin"], by="a test")
    await keys.revoke(gone.id, by="a test")
    good = await key("admin")
    job = await hf.enqueue("x", {}, hold=True)
    for method, path, _ in SECURED:
        for header in (None, "", "Bearer", "Bearer ", f"Basic {good['Authorization'][7:]}", "Bearer hf_wrong", secret):
            answer = await call(client, method, path, job.id, {} if header is None else {"Authorization": header})
            is_problem(answer, 401, "no-key" if "hf_wrong" not in (header or "") else "bad-key")
            assert answer.headers["www-authenticate"] == "Bearer"
        is_problem(await call(client, method, path, job.id, {"Authorization": f"Bearer {secret}"}), 401, "bad-key")
    assert (await hf.get(job)).state == "created"


async def test_figures_of_all_tenants_are_not_for_one_tenants_operators(
    client: httpx.AsyncClient, key: KeyMaker
) -> None:
    mine, scraper = await key("operate", "submit", "read", "work", tenant="mine"), await key("metrics")
    refused = await client.get("/metrics", headers=mine)
    is_problem(refused, 403, "scope")
    assert "http_requests_total" not in refused.text
    assert "http_requests_total" in (await client.get("/metrics", headers=scraper)).text
    # Whoever measures sees and moves nothing else.
    for method, path, scope in SECURED:
        if scope != "metrics":
            is_problem(await call(client, method, path, uuid4(), scraper), 403, "scope")


async def test_jobs_of_another_tenant_do_not_exist(client: httpx.AsyncClient, hf: Holdfast, key: KeyMaker) -> None:
    foreign = await hf.enqueue("x", {"secret": 1}, tenant="theirs", hold=True, target="t")
    about_jobs = [route for route in SECURED if "{job_id}" in route[1]]
    assert about_jobs
    for method, path, scope in about_jobs:
        mine = await key(scope, tenant="mine")
        unknown = await call(client, method, path, uuid4(), mine)
        theirs = await call(client, method, path, foreign.id, mine)
        is_problem(theirs, 404, "not-found")
        assert theirs.json().keys() == unknown.json().keys()
    assert (await hf.get(foreign)).state == "created"


async def test_tenants_see_and_change_their_own(client: httpx.AsyncClient, hf: Holdfast, key: KeyMaker) -> None:
    mine, theirs = await key("submit", "read", tenant="mine"), await key("operate", tenant="theirs")
    body = {"jobType": "x", "idempotencyKey": "the-same"}
    answers = [await client.post("/jobs", json=body, headers=who) for who in (mine, theirs)]
    jobs = [answer.json().get("jobId", answer.text) for answer in answers]
    assert jobs[0] != jobs[1]
    stored = [await hf.get(job) for job in jobs]
    assert [(job.tenant, job.created_by) for job in stored] == [("mine", "a key"), ("theirs", "a key")]
    assert (await client.get(f"/jobs/{jobs[0]}", headers=mine)).status_code == 200
    found = (await client.get("/ops/jobs", headers=theirs)).json()["items"]
    assert [job["id"] for job in found] == [jobs[1]]
    found = (await client.get("/ops/jobs", params={"q": "tenant:mine"}, headers=theirs)).json()["items"]
    assert found == []
    everybody = (await client.get("/ops/jobs", headers=await key("admin"))).json()["items"]
    assert {job["id"] for job in everybody} == set(jobs)


async def test_without_keys_this_machine_is_open_and_with_one_it_is_not(
    client: httpx.AsyncClient, hf: Holdfast, key: KeyMaker
) -> None:
    assert (await client.post("/jobs", json={"jobType": "x"})).status_code == 202
    foreign = {"Host": "evil.example"}
    is_problem(await client.post("/jobs", json={"jobType": "x"}, headers=foreign), 403, "host")
    keys = (await hf.operations()).keys
    only, _ = await keys.create("only", scopes=["read"], by="a test")
    await keys.revoke(only.id, by="a test")
    async with asyncio.timeout(5):
        while (answer := await client.post("/jobs", json={"jobType": "x"})).status_code == 202:
            await asyncio.sleep(0.05)
    is_problem(answer, 401, "no-key")
    assert (await client.post("/jobs", json={"jobType": "x"}, headers=foreign | await key("submit"))).status_code == 202


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"X-Forwarded-For": "203.0.113.9"}, "host"),
        ({"True-Client-IP": "203.0.113.9"}, "host"),
        ({"X-Forwarded-Port": "80"}, "host"),
        ({"Forwarded": "for=203.0.113.9"}, "host"),
        ({"Origin": "https://evil.example"}, "origin"),
        ({"Host": "evil.example"}, "host"),
        ({"Host": "127.0.0.1{"}, "host"),
        ({"Host": ""}, "host"),
        ({"Host": "127.0.0.1.evil.example:80"}, "host"),
    ],
)
async def test_without_keys_only_this_machine_is_let_in(
    client: httpx.AsyncClient, headers: dict[str, str], code: str
) -> None:
    assert (await client.post("/jobs", json={"jobType": "x"}, headers={"Host": "[::1]:8080"})).status_code == 202
    is_problem(await client.post("/jobs", json={"jobType": "x"}, headers=headers), 403, code)


async def test_where_only_keys_count_nobody_is_let_in_without(hf: Holdfast) -> None:
    transport = httpx.ASGITransport(create_app(hf, keys_only=True))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as caller:
        is_problem(await caller.post("/jobs", json={"jobType": "x"}), 401, "no-key")


async def test_an_expired_key_is_refused(client: httpx.AsyncClient, hf: Holdfast, key: KeyMaker) -> None:
    short = await key("read", lifetime=timedelta(seconds=3))
    job = await hf.enqueue("x", {})
    assert (await client.get(f"/jobs/{job.id}", headers=short)).status_code == 200
    async with asyncio.timeout(15):
        while (answer := await client.get(f"/jobs/{job.id}", headers=short)).status_code == 200:
            await asyncio.sleep(0.05)
    is_problem(answer, 401, "bad-key")


async def test_keys_are_rotated_without_locking_anybody_out(client: httpx.AsyncClient, hf: Holdfast) -> None:
    keys = (await hf.operations()).keys
    root, root_secret = await keys.create("root", scopes=["admin"], by="a test")
    admin = {"Authorization": f"Bearer {root_secret}"}
    made = (await client.post("/ops/keys", json={"name": "n", "scopes": ["submit"]}, headers=admin)).json()
    turned = await client.post(f"/ops/keys/{made['id']}/rotate", json={"overlap_seconds": 60}, headers=admin)
    assert turned.status_code == 201, turned.text
    for secret in (made["secret"], turned.json()["secret"]):
        who = {"Authorization": f"Bearer {secret}"}
        assert (await client.post("/jobs", json={"jobType": "x"}, headers=who)).status_code == 202
    listed = {k["id"]: k for k in (await client.get("/ops/keys", headers=admin)).json()["items"]}
    assert listed[made["id"]]["replaced_by"] == turned.json()["id"]
    assert listed[made["id"]]["last_used_at"]
    assert "secret" not in listed[made["id"]]
    assert (await client.post(f"/ops/keys/{made['id']}/revoke", headers=admin)).status_code == 200
    is_problem(await client.post(f"/ops/keys/{made['id']}/revoke", headers=admin), 404, "not-found")
    log = (await client.get("/ops/audit", headers=admin)).json()["items"]
    assert [entry["action"] for entry in log][:4] == ["key.revoke", "key.rotate", "key.create", "key.create"]
    assert {entry["actor"] for entry in log} == {"a test", "root"}
    assert root.name == "root"


async def test_a_key_that_is_revoked_while_a_body_is_sent_records_nothing(
    client: httpx.AsyncClient, hf: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bodies, "_SLOW_SECONDS", 0.0)
    monkeypatch.setattr(keyring, "_REMEMBER_SECONDS", 0.0)
    keys = (await hf.operations()).keys
    for path, rest in (("/jobs", b'"jobType": "x"}'), ("/jobs/batch", b'"jobs": [{"jobType": "x"}]}')):
        made, secret = await keys.create("slow", scopes=["submit"], by="a test")
        who = {"Authorization": f"Bearer {secret}", "Content-Type": "application/json"}

        async def slowly(key_id: UUID = made.id, rest: bytes = rest) -> AsyncIterator[bytes]:
            yield b"{"
            await keys.revoke(key_id, by="a test")
            yield rest

        is_problem(await client.post(path, content=slowly(), headers=who), 401, "bad-key")


async def test_a_key_has_its_limits(client: httpx.AsyncClient, hf: Holdfast, key: KeyMaker) -> None:
    slow = await key("read", requests_per_second=0.05)
    job = await hf.enqueue("x", {})
    assert (await client.get(f"/jobs/{job.id}", headers=slow)).status_code == 200
    refused = await client.get(f"/jobs/{job.id}", headers=slow)
    is_problem(refused, 429, "rate-limit")
    assert int(refused.headers["retry-after"]) >= 1
    full = await key("submit", max_waiting=1)
    is_problem(await client.post("/jobs", json={"jobType": "x"}, headers=full), 429, "waiting-limit")
    other = await key("submit", max_waiting=2, tenant="empty")
    assert (await client.post("/jobs", json={"jobType": "x", "target": "t"}, headers=other)).status_code == 202
    two = {"jobs": [{"jobType": "x"}, {"jobType": "x"}]}
    is_problem(await client.post("/jobs/batch", json=two, headers=other), 429, "waiting-limit")


async def test_keys_of_one_tenant_have_limits_of_their_own(client: httpx.AsyncClient, key: KeyMaker) -> None:
    narrow, wide = await key("submit", max_waiting=1), await key("submit", max_waiting=3)
    slow, fast = await key("submit", requests_per_second=0.05), await key("submit", requests_per_second=1000)
    body = {"jobType": "x", "delay": 3600}  # does not count among those that wait
    answers = [(await client.post("/jobs", json=body, headers=who)).status_code for who in (slow, fast, slow, fast)]
    assert answers == [202, 202, 429, 202]
    body = {"jobType": "x"}
    answers = [(await client.post("/jobs", json=body, headers=who)).status_code for who in (narrow, narrow, wide)]
    assert answers == [202, 429, 202]


async def test_a_repeat_is_answered_while_as_many_jobs_wait_as_the_key_allows(
    client: httpx.AsyncClient, key: KeyMaker
) -> None:
    """A caller that got no answer asks again: it adds no job."""
    who = await key("submit", max_waiting=2)
    keyed, other = {"jobType": "x", "idempotencyKey": "k"}, {"jobType": "x", "dedupKey": "d"}
    first = [(await client.post("/jobs", json=job, headers=who)).json()["jobId"] for job in (keyed, other)]
    is_problem(await client.post("/jobs", json={"jobType": "x"}, headers=who), 429, "waiting-limit")
    is_problem(
        await client.post("/jobs", json={"jobType": "x", "idempotencyKey": "l"}, headers=who), 429, "waiting-limit"
    )
    for job, job_id in zip((keyed, other), first, strict=True):
        again = await client.post("/jobs", json=job, headers=who)
        assert (again.status_code, again.json()["jobId"]) == (202, job_id)
    is_problem(await client.post("/jobs", json={**keyed, "payload": {"a": 1}}, headers=who), 422, "idempotency-key")
    batch = await client.post("/jobs/batch", json={"jobs": [keyed, other, keyed]}, headers=who)
    assert [answer["jobId"] for answer in batch.json()["results"]] == [first[0], first[1], first[0]]
    mixed = {"jobs": [keyed, {"jobType": "x"}, {"jobType": 1}]}
    is_problem(await client.post("/jobs/batch", json=mixed, headers=who), 429, "waiting-limit")


async def test_submissions_at_the_same_moment_do_not_add_more_jobs_than_the_key_allows(
    client: httpx.AsyncClient, key: KeyMaker
) -> None:
    who = await key("submit", max_waiting=5)
    answers = await asyncio.gather(*(client.post("/jobs", json={"jobType": "x"}, headers=who) for _ in range(20)))
    assert sorted(answer.status_code for answer in answers) == [202] * 5 + [429] * 15


async def test_only_so_many_streams_and_waits_with_one_key(
    client: httpx.AsyncClient, hf: Holdfast, key: KeyMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.web.state._WAITING_PER_KEY", 1)
    state = client._transport.app.state.holdfast  # type: ignore[attr-defined]
    mine, theirs = await key("read"), await key("read")
    job = await hf.enqueue("x", {}, delay=3600)
    streams = [asyncio.create_task(client.get(f"/jobs/{job.id}/events", headers=who)) for who in (mine, theirs)]
    async with asyncio.timeout(10):
        while state._waiting.total() < 2:
            await asyncio.sleep(0.01)
    for path, headers in ((f"/jobs/{job.id}/events", {}), (f"/jobs/{job.id}", {"Prefer": "wait=1"})):
        refused = await client.get(path, headers=mine | headers)
        is_problem(refused, 429, "streams-limit")
        assert int(refused.headers["retry-after"]) > 0
    assert (await client.get(f"/jobs/{job.id}", headers=mine)).status_code == 200
    state.drain()
    assert [answer.status_code for answer in await asyncio.gather(*streams)] == [200, 200]
    assert state._waiting.total() == 0
    assert (await client.get(f"/jobs/{job.id}/events", headers=mine)).status_code == 200


async def test_what_is_asked_for_is_written_down(client: httpx.AsyncClient, hf: Holdfast, key: KeyMaker) -> None:
    admin = await key("admin")
    job = await hf.enqueue("x", {}, delay=3600)
    await client.post(f"/jobs/{job.id}/cancel", json={"reason": "a mistake"}, headers=admin)
    (entry, *_) = (await client.get("/ops/audit", headers=admin)).json()["items"]
    (mine,) = (await client.get("/ops/keys", headers=admin)).json()["items"]
    assert entry["key_id"] == mine["id"]
    assert (entry["action"], entry["subject"], entry["actor"], entry["detail"]) == (
        "job.cancel", str(job.id), "a key", {"note": "a mistake"})  # fmt: skip


async def test_every_change_is_written_down_with_its_origin(
    client: httpx.AsyncClient, hf: Holdfast, conn: asyncpg.Connection, key: KeyMaker
) -> None:
    admin = await key("admin")
    # The last one changes nothing.
    kept = {"/ops/drain", "/ops/resume", "/jobs", "/jobs/batch", "/jobs/{job_id}/events/token"}
    # What workers do is in the history of their jobs.
    changes = [
        (method, path) for method, path, scope in SECURED if method != "get" and path not in kept and scope != "work"
    ]
    other, _ = await (await hf.operations()).keys.create("other", scopes=["read"], by="a test")
    dead = {path: await died(conn) for _, path in changes if "/dead-letters/" in path}
    await conn.execute("select register_worker('host:1:abcd', 'host', 1, '0.3.0', '{}', '{}', null)")
    for number, (method, path) in enumerate(changes):
        if "/drain" not in path:
            await (await hf.operations()).pause("tenant" if "tenants" in path else "queue", "default", by="a test")
        job = await hf.enqueue("x", {}, target="t", hold="/release" in path)
        if path.rpartition("/")[2] in ("fail", "kill", "expire-lease"):
            job = await hf.enqueue("x", {})
            await conn.execute("delete from controls")
            assert await claim_by_id(conn, job.id) is not None
        if "/resume" in path and "/jobs/" in path:
            async with hf.maintaining():
                await hf.pause(job)
                await until_paused(hf, job)
        subject = other.id if "{key_id}" in path else dead.get(path, job.id)
        if "{bulk_id}" in path:
            subject = await (await hf.operations()).bulk.start("cancel", "type:nothing", by="a test")
        if "/ops/schedules/{name}" in path:
            schedules = (await hf.operations()).schedules
            await schedules.put("default", every=3600, job="x", by="a test")
            if "/resume" in path:
                await schedules.pause("default", by="a test")
        named = {"X-Request-Id": f"change-{number}"}
        before = len((await client.get("/ops/audit?limit=500", headers=admin)).json()["items"])
        answer = await call(client, method, path, subject, admin | named)
        assert answer.status_code < 300, (method, path, answer.text)
        assert answer.headers["x-request-id"] == f"change-{number}"
        log = (await client.get("/ops/audit?limit=500", headers=admin)).json()["items"]
        made = log[: len(log) - before]
        assert made or "/pause" in path, (method, path)  # which had been paused
        assert {(entry["request_id"], entry["address"]) for entry in made} <= {(f"change-{number}", "127.0.0.1")}
        if path == "/ops/keys/{key_id}/rotate":
            other, _ = await (await hf.operations()).keys.create("other", scopes=["read"], by="a test")


async def until_paused(hf: Holdfast, job: Any) -> None:
    async with asyncio.timeout(10):
        while (await hf.get(job)).state != "paused":
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("name", ["", "two words", "a" * 129, "<script>", "line\x1b[2J"])
async def test_a_request_id_that_does_not_fit_is_replaced(client: httpx.AsyncClient, name: str) -> None:
    answers = [await client.get("/livez", headers={"X-Request-Id": name}) for _ in range(2)]
    ids = {answer.headers["x-request-id"] for answer in answers}
    assert len(ids) == 2
    assert all(re.fullmatch("[0-9a-f]{32}", given) for given in ids)


async def test_pages_of_other_sites_are_let_in_only_where_that_is_configured(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    origin = "https://app.example.com"
    asked = {"Origin": origin, "Access-Control-Request-Method": "POST"}

    async def allowed() -> str | None:
        async with Holdfast(database_url) as hf:
            transport = httpx.ASGITransport(create_app(hf))
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as caller:
                answer = await caller.options("/jobs", headers=asked)
                told: str | None = answer.headers.get("access-control-allow-origin")
                return told

    assert await allowed() is None
    monkeypatch.setenv("HOLDFAST_CORS_ORIGINS", f"http://localhost:3000, {origin}")
    assert await allowed() == origin


async def test_an_address_of_very_many_fields_is_refused_before_they_are_read(
    client: httpx.AsyncClient, gatekeeper: httpx.AsyncClient, key: KeyMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await key("read")
    read: list[object] = []

    def reads(*given: Any) -> QueryParams:
        read.append(given)
        return QueryParams(*given)

    monkeypatch.setattr("starlette.requests.QueryParams", reads)
    assert (await client.get("/ops/jobs?" + "&a" * 99)).status_code == 401
    assert read, "which is why they are counted before"
    read.clear()
    for who in (client, gatekeeper):
        for path in ("/ops/jobs", "/nowhere", f"/jobs/{uuid4()}/events"):
            refused = await who.get(f"{path}?" + "&a" * 100)
            assert "100 fields" in is_problem(refused, 400, "bad-request")["detail"]
            assert "x-request-id" in refused.headers
    assert read == []

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import asyncpg
import httpx
import pytest

from holdfast import Context, Holdfast, State
from holdfast.web.bodies import BODY_LIMIT
from tests.sql.factories import dump, job_in
from tests.web.conftest import KeyMaker

JSON = {"content-type": "application/json"}


def is_problem(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """The problem that was answered."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    problem: dict[str, Any] = answer.json()
    assert (problem["type"], problem["code"], problem["status"]) == (f"/problems/{code}", code, status)
    assert "Traceback" not in answer.text
    return problem


async def test_a_job_is_recorded_with_all_its_options(client: httpx.AsyncClient, hf: Holdfast) -> None:
    parent = await hf.enqueue("parent", {})
    body = {
        "jobType": "image.resize", "payload": {"width": 100}, "idempotencyKey": "k", "priority": 5,
        "runAt": "2099-01-01T00:00:00Z", "dedupKey": "d", "correlationId": "c", "maxAttempts": 7, "target": "t",
        "queue": "q", "hold": True, "parentId": str(parent.id), "targetCount": 3,
    }  # fmt: skip
    answer = await client.post("/jobs", json=body)
    assert answer.status_code == 202
    assert answer.json() == {"jobId": answer.json()["jobId"], "status": "PENDING"}
    assert answer.headers["location"] == f"/jobs/{answer.json()['jobId']}"
    job = await hf.get(answer.json()["jobId"])
    assert (job.type, job.payload, job.state, job.tenant) == ("image.resize", {"width": 100}, State.CREATED, "default")
    assert (job.idempotency_key, job.priority, job.dedup_key, job.correlation_id) == ("k", 5, "d", "c")
    assert (job.max_attempts, job.target, job.queue, job.parent_id) == (7, "t", "q", parent.id)
    assert (job.run_at.year, job.target_count) == (2099, 3)


async def test_a_job_has_five_public_fields(client: httpx.AsyncClient) -> None:
    created = (await client.post("/jobs", json={"jobType": "x", "delay": 60})).json()
    found = await client.get(f"/jobs/{created['jobId']}")
    assert found.status_code == 200
    job = found.json()
    assert set(job) == {"jobId", "jobType", "status", "createdAt", "updatedAt"}
    assert (job["jobId"], job["jobType"], job["status"]) == (created["jobId"], "x", "PENDING")


@pytest.mark.parametrize("state", State)
async def test_in_every_state_only_public_fields_are_shown(
    client: httpx.AsyncClient, conn: asyncpg.Connection, state: State
) -> None:
    job = await job_in(conn, state, payload={"password": "hidden"})
    found = await client.get(f"/jobs/{job}")
    fields = set(found.json())
    if state in (State.PAUSED, State.ERROR, State.CANCELED):
        fields.discard("message")
    assert fields == {"jobId", "jobType", "status", "createdAt", "updatedAt"}
    # The payload, the worker and the text of an exception; what `Hold` said is meant for clients.
    inside = {"hidden", "w1", "boom"} - ({"boom"} if state == State.ERROR else set())
    assert not [word for word in inside if word in found.text]


async def test_reading_a_job_changes_nothing_and_is_answered_alike_every_time(
    client: httpx.AsyncClient, conn: asyncpg.Connection
) -> None:
    jobs = [await job_in(conn, state, str(state)) for state in State]
    before = await dump(conn)
    for job in jobs:
        answers = [await client.get(f"/jobs/{job}") for _ in range(3)]
        assert [answer.status_code for answer in answers] == [200] * 3
        assert len({answer.text for answer in answers}) == 1
    is_problem(await client.get(f"/jobs/{uuid4()}"), 404, "not-found")
    assert await dump(conn) == before


async def test_neither_a_submission_nor_a_read_executes_the_job(client: httpx.AsyncClient, hf: Holdfast) -> None:
    """Even though the server's own process has the handler."""
    ran: list[str] = []

    @hf.job("x")
    async def handle(ctx: Context) -> None:
        ran.append(str(ctx.job_id))

    created = await client.post("/jobs", json={"jobType": "x"})
    assert (created.status_code, created.json()["status"]) == (202, "PENDING")
    assert (await client.get(created.headers["location"])).json()["status"] == "PENDING"
    assert (await hf.get(created.json()["jobId"])).attempt == 0
    assert ran == []
    await hf.run_worker(burst=True, poll_interval=0.05)
    assert ran == [created.json()["jobId"]]
    assert (await client.get(created.headers["location"])).json()["status"] == "COMPLETED"


async def test_servers_share_nothing_but_the_database(
    client: httpx.AsyncClient, elsewhere: httpx.AsyncClient, hf: Holdfast
) -> None:
    body = {"jobType": "x", "payload": {"a": 1}, "idempotencyKey": "k"}
    answers = await asyncio.gather(*(server.post("/jobs", json=body) for server in (client, elsewhere) * 10))
    assert {answer.status_code for answer in answers} == {202}
    (job,) = {answer.json()["jobId"] for answer in answers}
    assert [str(found.id) for found in await hf.find(types=["x"])] == [job]
    here, there = [await server.get(f"/jobs/{job}") for server in (client, elsewhere)]
    assert (here.status_code, here.json()) == (200, there.json())


async def test_a_repeat_of_the_key_differs_by_the_jobs_status_alone(client: httpx.AsyncClient, hf: Holdfast) -> None:
    body = {"jobType": "x", "payload": {"a": [1, 2.5, None]}, "idempotencyKey": "k"}
    first = await client.post("/jobs", json=body)
    hf_worker = Holdfast(hf.config.database_url)

    @hf_worker.job("x")
    async def handle(ctx: Context, a: list[float | None]) -> None: ...

    await hf_worker.run_worker(burst=True, poll_interval=0.05)
    assert (await client.get(first.headers["location"])).json()["status"] == "COMPLETED"
    again = await client.post("/jobs", json=body)
    assert again.json() == first.json() | {"status": "COMPLETED"}
    own = {"content-length", "x-request-id"}  # every request has an id of its own
    told = {name: value for name, value in again.headers.items() if name not in own}
    assert again.status_code == first.status_code
    assert told == {name: value for name, value in first.headers.items() if name not in own}
    batch = await client.post("/jobs/batch", json={"jobs": [body]})
    assert batch.json() == {"results": [again.json()]}


@pytest.mark.parametrize("change", [{"payload": {"a": 2}}, {"jobType": "y"}])
async def test_the_key_of_another_intent_is_refused(client: httpx.AsyncClient, change: dict[str, Any]) -> None:
    body = {"jobType": "x", "payload": {"a": 1}, "idempotencyKey": "k"}
    await client.post("/jobs", json=body)
    is_problem(await client.post("/jobs", json=body | change), 422, "idempotency-key")


@pytest.mark.parametrize(
    ("wrong", "pointer"),
    [
        ({}, "/jobType"),
        ({"jobType": ""}, "/jobType"),
        ({"jobType": "x" * 201}, "/jobType"),
        ({"jobType": "a\x00b"}, "/jobType"),
        ({"job_type": "x"}, "/job_type"),
        ({"jobType": "x", "tenant": "other"}, "/tenant"),
        ({"jobType": "x", "createdBy": "me"}, "/createdBy"),
        ({"jobType": "x", "payload": [1]}, "/payload"),
        ({"jobType": "x", "payload": None}, "/payload"),
        ({"jobType": "x", "idempotencyKey": ""}, "/idempotencyKey"),
        ({"jobType": "x", "idempotencyKey": "a b"}, "/idempotencyKey"),
        ({"jobType": "x", "idempotencyKey": "a\n"}, "/idempotencyKey"),
        ({"jobType": "x", "idempotencyKey": "k" * 256}, "/idempotencyKey"),
        ({"jobType": "x", "priority": -1}, "/priority"),
        ({"jobType": "x", "priority": "1"}, "/priority"),
        ({"jobType": "x", "priority": True}, "/priority"),
        ({"jobType": "x", "priority": 10**12}, "/priority"),
        ({"jobType": "x", "maxAttempts": 0}, "/maxAttempts"),
        ({"jobType": "x", "delay": -1}, "/delay"),
        ({"jobType": "x", "delay": 1e300}, "/delay"),
        ({"jobType": "x", "runAt": "tomorrow"}, "/runAt"),
        ({"jobType": "x", "runAt": "2030-01-01T00:00:00"}, "/runAt"),
        ({"jobType": "x", "runAt": "2030-01-01T00:00:00Z", "delay": 1}, ""),
        ({"jobType": "x", "parentId": "p"}, "/parentId"),
        ({"jobType": "x", "hold": "yes"}, "/hold"),
    ],
)
async def test_what_does_not_fit_is_pointed_at(
    gatekeeper: httpx.AsyncClient, wrong: dict[str, Any], pointer: str
) -> None:
    problem = is_problem(await gatekeeper.post("/jobs", json=wrong), 422, "invalid")
    assert pointer in [error["pointer"] for error in problem["errors"]]


@pytest.mark.parametrize("number", ["1e309", "-1e309"])
async def test_a_number_that_is_too_large_is_named(client: httpx.AsyncClient, number: str) -> None:
    job = f'{{"jobType": "x", "payload": {{"said": "Infinity", "a": [1, {{"b": {number}}}]}}}}'
    problem = is_problem(await client.post("/jobs", content=job, headers=JSON), 422, "invalid")
    batch = await client.post("/jobs/batch", content=f'{{"jobs": [{job}]}}', headers=JSON)
    for told, within in ((problem, ""), (batch.json()["results"][0]["problem"], "/jobs/0")):
        (error,) = told["errors"]
        assert error["pointer"] == f"{within}/payload"
        assert "the number at /a/1/b of the payload is too large" in error["detail"]
    fine = {"jobType": "x", "payload": {"said": "Infinity", "a": 1.7e308}}
    assert (await client.post("/jobs", json=fine)).status_code == 202


async def test_of_the_callers_words_little_is_repeated(client: httpx.AsyncClient, hf: Holdfast) -> None:
    @hf.job("strict")
    async def strict(ctx: Context, number: int) -> None: ...

    name = "n" * 100_000
    problem = is_problem(await client.post("/jobs", json={"jobType": "x", name: 1}), 422, "invalid")
    (error,) = problem["errors"]
    assert error["pointer"].startswith("/nnn")
    assert len(error["pointer"]) == 200
    fault = {"jobType": "strict", "payload": {name[:10_000]: 1}}
    batch = (await client.post("/jobs/batch", json={"jobs": [fault, {"jobType": "x", name: 1}]})).json()["results"]
    pointer = batch[1]["problem"]["errors"][0]["pointer"]
    assert pointer.startswith("/jobs/1/nnn")
    assert len(pointer) == 200
    for problem in (is_problem(await client.post("/jobs", json=fault), 422, "invalid-payload"), batch[0]["problem"]):
        assert 200 < len(problem["detail"]) <= 400  # the other fault is said whole, and what is wrong with this one
        assert "number: Field required; nnn" in problem["detail"]
        assert problem["detail"].endswith("n: Extra inputs are not permitted")
    large = {"jobType": "strict", "payload": {name: 1}}  # the first fault is enough
    problem = is_problem(await client.post("/jobs", json=large), 422, "invalid-payload")
    assert problem["detail"] == "strict: number: Field required"
    for path in (f"/jobs/{'p' * 60_000}", f"/ops/targets/{'p' * 60_000}", f"/ops/queues/{'p' * 60_000}"):
        problem = is_problem(await client.get(path), 404, "not-found")
        assert len(problem.get("detail", "")) <= 200


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"jobType": "holdfast.cancel"}, "invalid"),
        ({"jobType": "x", "queue": "holdfast"}, "invalid"),
        ({"jobType": "x", "payload": {"a": "\x00"}}, "invalid-payload"),
    ],
)
async def test_what_the_engine_refuses_is_said(client: httpx.AsyncClient, body: dict[str, Any], code: str) -> None:
    assert is_problem(await client.post("/jobs", json=body), 422, code)["detail"]


@pytest.mark.parametrize(
    "body", ["", "{", "nonsense", '{"jobType": "x", "payload": {"a": NaN}}', '{"a":' * 5000, '{"a": "\\ud800"}', "\xff"]
)
async def test_what_is_not_json_is_malformed(gatekeeper: httpx.AsyncClient, body: str) -> None:
    is_problem(await gatekeeper.post("/jobs", content=body.encode("latin-1"), headers=JSON), 400, "malformed-json")


@pytest.mark.parametrize("media_type", ["text/plain", "application/x-www-form-urlencoded", "", "application/jsonx"])
async def test_another_media_type_is_refused(gatekeeper: httpx.AsyncClient, media_type: str) -> None:
    answer = await gatekeeper.post("/jobs", content=b'{"jobType": "x"}', headers={"content-type": media_type})
    is_problem(answer, 415, "media-type")


async def test_a_charset_does_no_harm(client: httpx.AsyncClient) -> None:
    headers = {"content-type": "Application/JSON; charset=utf-8"}
    assert (await client.post("/jobs", content=b'{"jobType": "x"}', headers=headers)).status_code == 202


async def test_a_body_may_have_one_mebibyte(client: httpx.AsyncClient) -> None:
    def body(size: int) -> bytes:
        frame = len(json.dumps({"jobType": "x", "payload": {"a": ""}}))
        return json.dumps({"jobType": "x", "payload": {"a": "y" * (size - frame)}}).encode()

    async def pieces(content: bytes) -> AsyncIterator[bytes]:
        for start in range(0, len(content), 65536):
            yield content[start : start + 65536]

    assert (await client.post("/jobs", content=body(BODY_LIMIT), headers=JSON)).status_code == 202
    is_problem(await client.post("/jobs", content=body(BODY_LIMIT + 1), headers=JSON), 413, "too-large")
    unannounced = await client.post("/jobs", content=pieces(body(BODY_LIMIT + 1)), headers=JSON)
    is_problem(unannounced, 413, "too-large")


async def test_unknown_jobs_are_not_found_and_those_of_others_are_unknown(
    client: httpx.AsyncClient, hf: Holdfast
) -> None:
    job = await hf.enqueue("x", {}, tenant="other")
    mine = await hf.enqueue("x", {})
    await hf.pause(mine)
    (request,) = await hf.find(types=["holdfast.pause"])
    for name in ("no-id", str(uuid4()), str(job.id), str(request.id)):
        is_problem(await client.get(f"/jobs/{name}"), 404, "not-found")


async def test_unknown_routes_and_methods_are_problems_too(gatekeeper: httpx.AsyncClient) -> None:
    is_problem(await gatekeeper.get("/nothing"), 404, "not-found")
    problem = is_problem(await gatekeeper.delete("/jobs"), 405, "method-not-allowed")
    assert problem["detail"] == "DELETE is not allowed here; use POST."


async def test_a_field_that_is_written_in_another_way_is_told_as_it_should_be(client: httpx.AsyncClient) -> None:
    wish = {"jobType": "x", "idempotency_key": "k", "max-attempts": 3, "colour": "red"}
    problem = is_problem(await client.post("/jobs", json=wish), 422, "invalid")
    batch = (await client.post("/jobs/batch", json={"jobs": [wish]})).json()["results"][0]["problem"]
    for errors in (problem["errors"], batch["errors"]):
        assert {error["pointer"].removeprefix("/jobs/0"): error["detail"] for error in errors} == {
            "/idempotency_key": "Extra inputs are not permitted; did you mean idempotencyKey?",
            "/max-attempts": "Extra inputs are not permitted; did you mean maxAttempts?",
            "/colour": "Extra inputs are not permitted",
        }


async def test_too_many_queues_of_a_tenant_are_refused_and_hold_up_nobody_else(
    client: httpx.AsyncClient, key: KeyMaker, conn: asyncpg.Connection
) -> None:
    mine, theirs = await key("submit", tenant="mine"), await key("submit", tenant="theirs")
    await conn.execute("update settings set value = '2' where name = 'STREAMS_PER_TENANT'")
    for queue in ("a", "b"):
        assert (await client.post("/jobs", json={"jobType": "x", "queue": queue}, headers=mine)).status_code == 202
    # All at once, so that they are recorded together.
    wishes = [(mine, "a"), (mine, "c"), (theirs, "a"), (mine, "d"), (theirs, "a")]
    answers = await asyncio.gather(
        *(client.post("/jobs", json={"jobType": "x", "queue": queue}, headers=who) for who, queue in wishes)
    )
    assert [answer.status_code for answer in answers] == [202, 409, 202, 409, 202]
    problem = is_problem(answers[1], 409, "queues-limit")
    assert "tenant mine has 2 combinations" in problem["detail"]
    assert "retry-after" not in answers[1].headers

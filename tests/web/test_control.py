"""The rest of the control plane: results, batches, requests, waiting, events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import asyncpg
import httpx
import pytest

from holdfast import Context, Fatal, Holdfast, State
from tests.sql.factories import job_in, state_of
from tests.web.test_jobs import is_problem


@pytest.fixture
def handlers(hf: Holdfast) -> None:
    """What the jobs of these tests do."""

    @hf.job("double")
    async def double(ctx: Context, n: int) -> dict[str, int]:
        return {"doubled": 2 * n}

    @hf.job("burst")
    async def burst(ctx: Context) -> None:
        raise Fatal("it burst")


async def submitted(client: httpx.AsyncClient, **body: Any) -> str:
    answer = await client.post("/jobs", json=body)
    assert answer.status_code == 202, answer.text
    return str(answer.json()["jobId"])


@pytest.mark.usefixtures("handlers")
async def test_a_result_comes_when_the_job_has_ended(client: httpx.AsyncClient, hf: Holdfast) -> None:
    job = await submitted(client, jobType="double", payload={"n": 21})
    early = await client.get(f"/jobs/{job}/result")
    assert (early.status_code, early.json(), early.headers["retry-after"]) == (
        202, {"jobId": job, "status": "PENDING"}, "1")  # fmt: skip
    await hf.run_worker(burst=True)
    ended = await client.get(f"/jobs/{job}/result")
    assert ended.json() == {"jobId": job, "status": "COMPLETED", "result": {"doubled": 42}, "error": None}


@pytest.mark.usefixtures("handlers")
async def test_a_failure_is_told_without_its_stack(client: httpx.AsyncClient, hf: Holdfast) -> None:
    job = await submitted(client, jobType="burst")
    await hf.run_worker(burst=True)
    ended = await client.get(f"/jobs/{job}/result")
    assert ended.json() == {
        "jobId": job, "status": "FAILED", "result": None,
        "error": {"type": "Fatal", "message": "it burst"},
    }  # fmt: skip


async def test_each_of_a_batch_has_its_own_answer(client: httpx.AsyncClient, hf: Holdfast) -> None:
    await submitted(client, jobType="x", payload={"a": 1}, idempotencyKey="taken")
    jobs = [
        {"jobType": "a"},
        {"jobType": ""},
        {"jobType": "b", "idempotencyKey": "once"},
        {"jobType": "b", "idempotencyKey": "once"},
        {"jobType": "x", "payload": {"a": 2}, "idempotencyKey": "taken"},
        {"jobType": "c", "queue": "holdfast"},
        {"jobType": "d", "payload": {"nul": "\x00"}},
        {"jobType": "e", "tenant": "other"},
    ]
    answer = await client.post("/jobs/batch", json={"jobs": jobs})
    assert answer.status_code == 202, answer.text
    results = answer.json()["results"]
    codes = [result.get("problem", {}).get("code") for result in results]
    assert codes == [None, "invalid", None, None, "idempotency-key", "invalid", "invalid-payload", "invalid"]
    assert results[2] == results[3]
    assert len(await hf.find(types=["a", "b", "c", "d", "e"])) == 2


@pytest.mark.parametrize("jobs", [[], [{"jobType": "x"}] * 1001, {"jobType": "x"}, ["x"]])
async def test_a_batch_has_up_to_a_thousand_jobs(gatekeeper: httpx.AsyncClient, jobs: Any) -> None:
    is_problem(await gatekeeper.post("/jobs/batch", json={"jobs": jobs}), 422, "invalid")


async def test_requests_are_recorded_and_carried_out(client: httpx.AsyncClient, hf: Holdfast) -> None:
    job = await submitted(client, jobType="x", delay=3600)
    held = await submitted(client, jobType="x", hold=True, delay=3600)
    async with hf.maintaining():
        assert (await client.post(f"/jobs/{job}/pause", json={"reason": "wait"})).status_code == 202
        await until(client, job, "PAUSED")
        assert (await client.get(f"/jobs/{job}")).json()["message"] == "wait"
        assert (await client.post(f"/jobs/{job}/resume")).status_code == 202
        await until(client, job, "PENDING")
        assert "message" not in (await client.get(f"/jobs/{job}")).json()
        assert (await client.post(f"/jobs/{held}/release")).status_code == 202
        is_problem(await client.post(f"/jobs/{held}/release"), 409, "conflict")
        assert (await client.post(f"/jobs/{job}/cancel")).status_code == 202
        await until(client, job, "CANCELED")
        is_problem(await client.post(f"/jobs/{job}/cancel"), 409, "already-final")
        assert (await client.delete(f"/jobs/{held}")).status_code == 202
        await until(client, held, "CANCELED")
    events = await hf.history(job)
    assert [(event.event, event.by, event.note) for event in events] == [
        ("paused", "local", "wait"), ("resumed", "local", None), ("canceled", "local", None)]  # fmt: skip


async def until(client: httpx.AsyncClient, job: str, status: str) -> None:
    async with asyncio.timeout(10):
        while (await client.get(f"/jobs/{job}")).json()["status"] != status:
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("slash", ["", "/"])
@pytest.mark.parametrize(
    ("target", "path"),
    [("plain", "plain"), ("a/b", "a/b"), ("a/b", "a%2Fb"), ("/a//b/", "/a//b/"), ("a/jobs/b", "a/jobs/b")],
)
async def test_a_job_is_resumed_by_its_target(
    client: httpx.AsyncClient, hf: Holdfast, slash: str, target: str, path: str
) -> None:
    job = await submitted(client, jobType="x", target=target, delay=3600)
    await hf.pause(job)
    async with hf.maintaining():
        await until(client, job, "PAUSED")
        is_problem(await client.post(f"/targets/other/jobs/{job}/resume{slash}"), 404, "not-found")
        assert (await client.post(f"/targets/{path}/jobs/{job}/resume{slash}")).status_code == 202
        await until(client, job, "PENDING")


@pytest.mark.parametrize("state", State)
async def test_only_paused_and_failed_jobs_are_resumed_by_their_target(
    client: httpx.AsyncClient, conn: asyncpg.Connection, state: State
) -> None:
    job = await job_in(conn, state, target="t")
    answer = await client.post(f"/targets/t/jobs/{job}/resume/")
    await conn.execute("select execute_requests()")
    if state in (State.PAUSED, State.ERROR):
        assert answer.status_code == 202
        assert await state_of(conn, job) == "queued"
    else:
        is_problem(answer, 409, "already-final" if state.terminal else "conflict")
        assert await state_of(conn, job) == state


@pytest.mark.parametrize("verb", ["cancel", "pause", "resume", "release"])
async def test_what_is_unknown_or_of_others_cannot_be_asked_for(
    client: httpx.AsyncClient, hf: Holdfast, verb: str
) -> None:
    foreign = await hf.enqueue("x", {}, tenant="other", hold=True)
    for job in (foreign.id, uuid4(), "no-id"):
        is_problem(await client.post(f"/jobs/{job}/{verb}"), 404, "not-found")
    is_problem(await client.delete(f"/jobs/{foreign.id}"), 404, "not-found")
    assert (await hf.get(foreign)).state == "created"


@pytest.mark.usefixtures("handlers")
async def test_who_prefers_to_wait_gets_the_end(client: httpx.AsyncClient, hf: Holdfast) -> None:
    slow = await submitted(client, jobType="x", delay=3600)
    waited = await client.get(f"/jobs/{slow}", headers={"Prefer": "respond-async, wait=1"})
    assert (waited.status_code, waited.json()["status"]) == (200, "PENDING")
    assert waited.headers["preference-applied"] == "wait=1"

    worker = asyncio.create_task(hf.run_worker(poll_interval=0.05))
    body = {"jobType": "double", "payload": {"n": 1}}
    done = await client.post("/jobs", json=body, headers={"Prefer": "wait=20"})
    assert (done.status_code, done.json()["status"]) == (200, "COMPLETED")
    assert done.headers["preference-applied"] == "wait=20"
    job = await submitted(client, jobType="double", payload={"n": 3}, delay=0.3)
    result = await client.get(f"/jobs/{job}/result", headers={"Prefer": "wait=20"})
    assert (result.status_code, result.json()["result"]) == (200, {"doubled": 6})
    worker.cancel()
    await asyncio.gather(worker, return_exceptions=True)


@pytest.mark.parametrize("wish", ["wait", "wait=-1", "wait=x", "waits=5", "wait=1e9", ""])
async def test_a_wish_that_is_none_is_not_applied(client: httpx.AsyncClient, wish: str) -> None:
    job = await submitted(client, jobType="x", delay=3600)
    answer = await client.get(f"/jobs/{job}", headers={"Prefer": wish})
    assert "preference-applied" not in answer.headers


@pytest.mark.usefixtures("handlers")
async def test_events_tell_every_change_until_the_end(client: httpx.AsyncClient, hf: Holdfast) -> None:
    job = await submitted(client, jobType="double", payload={"n": 1}, delay=0.2)
    worker = asyncio.create_task(hf.run_worker(poll_interval=0.05))
    async with asyncio.timeout(20):
        whole = (await client.get(f"/jobs/{job}/events")).text
    worker.cancel()
    await asyncio.gather(worker, return_exceptions=True)
    blocks = [block for block in whole.split("\n\n") if block.startswith("id: ")]
    told = [json.loads(block.split("data: ")[1]) for block in blocks]
    assert (told[0]["status"], told[-1]["status"]) == ("PENDING", "COMPLETED")
    assert set(told[0]) == {"jobId", "jobType", "status", "createdAt", "updatedAt"}
    last = blocks[-1].split("\n")[0].removeprefix("id: ")
    resumed = await client.get(f"/jobs/{job}/events", headers={"Last-Event-ID": last})
    assert (resumed.status_code, resumed.text) == (204, "")


async def test_events_of_nothing_are_not_found(client: httpx.AsyncClient) -> None:
    is_problem(await client.get(f"/jobs/{uuid4()}/events"), 404, "not-found")


async def test_a_trace_is_kept_with_the_job(client: httpx.AsyncClient, hf: Holdfast) -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    for header, kept in ((trace, trace), ("nonsense", None), (trace.upper(), None)):
        answer = await client.post("/jobs", json={"jobType": "x"}, headers={"traceparent": header})
        assert (await hf.get(answer.json()["jobId"])).traceparent == kept


async def test_a_compressed_body_is_refused(gatekeeper: httpx.AsyncClient) -> None:
    headers = {"content-type": "application/json", "content-encoding": "gzip"}
    is_problem(await gatekeeper.post("/jobs", content=b"\x1f\x8b", headers=headers), 415, "media-type")


async def test_the_last_of_two_names_counts(client: httpx.AsyncClient, hf: Holdfast) -> None:
    body = b'{"jobType": "a", "jobType": "b", "payload": {"n": 1, "n": 2}}'
    answer = await client.post("/jobs", content=body, headers={"content-type": "application/json"})
    job = await hf.get(answer.json()["jobId"])
    assert (job.type, job.payload) == ("b", {"n": 2})


@pytest.mark.parametrize(
    "payload",
    [{"é": "日本語 🎉"}, {"big": 2**200, "neg": -(2**70), "exp": 1.5}, {"deep": [[[[[1]]]]]}, {"": None}],
)
async def test_what_json_can_say_is_kept(client: httpx.AsyncClient, hf: Holdfast, payload: dict[str, Any]) -> None:
    job = await submitted(client, jobType="x", payload=payload)
    assert (await hf.get(job)).payload == payload


async def test_every_problem_has_a_page(client: httpx.AsyncClient) -> None:
    problem = is_problem(await client.get("/jobs/none"), 404, "not-found")
    page = await client.get(problem["type"])
    assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert "not-found" in page.text
    is_problem(await client.get("/problems/none"), 404, "not-found")


async def test_figures_have_the_names_that_others_rely_on(client: httpx.AsyncClient) -> None:
    job = await submitted(client, jobType="x")
    await client.get(f"/jobs/{job}")
    text = (await client.get("/metrics")).text
    for line in (
        'http_requests_total{method="POST",route="/jobs",status_code="202"} 1.0',
        'http_request_duration_seconds_bucket{le="10.0",method="GET",route="/jobs/{job_id}",status_code="200"} 1.0',
        'db_query_duration_seconds_count{operation="insert",table="jobs"} 1.0',
        'upload_size_bytes_bucket{le="1024.0",mime_type="application/json"} 1.0',
    ):
        assert line in text, text
    for name in ("db_query_error_total", "external_duration_seconds", "external_error_total"):
        assert f"# TYPE {name.removesuffix('_total')}" in text


async def test_a_server_about_to_stop_says_so(client: httpx.AsyncClient) -> None:
    assert (await client.get("/readyz")).status_code == 200
    client._transport.app.state.holdfast.drain()  # type: ignore[attr-defined]
    is_problem(await client.get("/readyz"), 503, "unavailable")
    assert (await client.get("/livez")).status_code == 200
    job = await submitted(client, jobType="x", delay=3600)
    async with asyncio.timeout(5):
        assert (await client.get(f"/jobs/{job}", headers={"Prefer": "wait=60"})).status_code == 200
        assert (await client.get(f"/jobs/{job}/events")).status_code == 200


async def test_a_body_that_does_not_arrive_is_not_waited_for(
    gatekeeper: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.web.bodies._SLOWEST_SECONDS", 0.05)

    async def dripping() -> AsyncIterator[bytes]:
        yield b'{"jobType":'
        await asyncio.sleep(30)
        yield b'"x"}'

    answer = await gatekeeper.post("/jobs", content=dripping(), headers={"content-type": "application/json"})
    is_problem(answer, 408, "too-slow")


async def test_only_so_many_may_wait_and_a_recorded_job_is_told_all_the_same(
    client: httpx.AsyncClient, hf: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.web.state._WAITING", 0)
    answer = await client.post("/jobs", json={"jobType": "x"}, headers={"Prefer": "wait=5"})
    assert answer.status_code == 202
    assert "preference-applied" not in answer.headers  # nobody waited
    job = answer.json()["jobId"]
    is_problem(await client.get(f"/jobs/{job}/events"), 503, "unavailable")
    is_problem(await client.get(f"/jobs/{job}", headers={"Prefer": "wait=5"}), 503, "unavailable")
    assert len(await hf.find(types=["x"])) == 1

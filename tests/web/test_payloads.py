"""Payloads over HTTP: refused if no worker would take them, and else let in as they were sent."""

from __future__ import annotations

import json
from typing import Annotated, Any

import asyncpg
import httpx
import pytest
from pydantic import AfterValidator

from holdfast import Context, Holdfast
from holdfast.app.handler import Handler
from holdfast.client import acceptance
from holdfast.telemetry.events import PayloadMisfit
from tests.web.conftest import KeyMaker
from tests.web.test_control import submitted
from tests.web.test_jobs import is_problem


async def live(conn: asyncpg.Connection, *handlers: Handler[Any, Any], worker: str = "w1") -> None:
    """A worker with these handlers is there."""
    types = [handler.job_type for handler in handlers]
    await conn.execute(
        "select enlist($1, 'h', 1, '1', '{}', $2, null, null, $3)",
        worker,
        [one.name for one in types],
        json.dumps([one.published() for one in types]),
    )


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is judged only if the database answers in time is judged on a slow machine, too."""
    monkeypatch.setattr(acceptance, "_PATIENCE_SECONDS", 30.0)
    monkeypatch.setattr("holdfast.client.control.PATIENCE_SECONDS", 60.0)


@pytest.fixture
def mail() -> Handler[Any, Any]:
    """A handler that the server knows only by what its worker publishes."""

    @Holdfast().job("mail")
    async def mail(ctx: Context, to: str, count: int = 1, tags: list[int] | None = None) -> None: ...

    return mail


async def test_what_no_worker_takes_is_refused_with_pointers(
    client: httpx.AsyncClient, hf: Holdfast, conn: asyncpg.Connection, mail: Handler[Any, Any]
) -> None:
    misfit = {"jobType": "mail", "payload": {"count": "many", "tags": [1, "x"], "a/b": 1}}
    await live(conn, mail)
    problem = is_problem(await client.post("/jobs", json=misfit), 422, "invalid-payload")
    number = "Input should be a valid integer, unable to parse string as an integer"
    assert {error["pointer"]: error["detail"] for error in problem["errors"]} == {
        "/payload/to": "Field required",
        "/payload/count": number,
        "/payload/tags/1": number,
        "/payload/a~1b": "Extra inputs are not permitted",
    }
    assert problem["detail"].startswith("mail: to: Field required; ")
    assert problem["detail"].endswith("; a/b: Extra inputs are not permitted")
    # What the handler would coerce is let in, and stored as it was sent.
    job = await submitted(client, jobType="mail", payload={"to": "ada", "count": "5", "tags": [1.0]})
    assert (await hf.get(job)).payload == {"to": "ada", "count": "5", "tags": [1.0]}
    # With no worker alive, the last one counts.
    await conn.execute("select unregister_worker('w1')")
    is_problem(await client.post("/jobs", json=misfit), 422, "invalid-payload")
    assert len(await hf.find()) == 1


async def test_of_a_batch_only_misfits_are_refused_and_their_place_is_told(
    client: httpx.AsyncClient, conn: asyncpg.Connection, mail: Handler[Any, Any]
) -> None:
    await live(conn, mail)
    jobs = [{"jobType": "mail", "payload": {"to": "ada"}}, {"jobType": "mail"}, {"jobType": "other"}]
    results = (await client.post("/jobs/batch", json={"jobs": jobs})).json()["results"]
    assert [result.get("problem", {}).get("code") for result in results] == [None, "invalid-payload", None]
    assert results[1]["problem"]["errors"] == [{"pointer": "/jobs/1/payload/to", "detail": "Field required"}]


async def test_a_key_that_has_a_job_is_answered_before_the_payload_is_judged(
    client: httpx.AsyncClient, hf: Holdfast, conn: asyncpg.Connection, mail: Handler[Any, Any], key: KeyMaker
) -> None:
    job = await hf.enqueue("mail", {"from": "ada"}, idempotency_key="k")
    await live(conn, mail)
    body = {"jobType": "mail", "payload": {"from": "ada"}, "idempotencyKey": "k"}
    ours, theirs = await key("submit"), await key("submit", tenant="theirs")
    again = await client.post("/jobs", json=body, headers=ours)
    assert (again.status_code, again.json()) == (202, {"jobId": str(job.id), "status": "PENDING"})
    other = {**body, "payload": {"from": "bob"}}
    is_problem(await client.post("/jobs", json=other, headers=ours), 422, "idempotency-key")
    is_problem(await client.post("/jobs", json=body, headers=theirs), 422, "invalid-payload")
    is_problem(await client.post("/jobs", json={**body, "idempotencyKey": "new"}, headers=ours), 422, "invalid-payload")


async def test_a_worker_that_has_just_started_counts_at_once(
    client: httpx.AsyncClient, conn: asyncpg.Connection, mail: Handler[Any, Any]
) -> None:
    @Holdfast().job("mail")
    async def newer(ctx: Context, recipient: str) -> None: ...

    await live(conn, mail)
    body = {"jobType": "mail", "payload": {"recipient": "ada"}}
    is_problem(await client.post("/jobs", json=body), 422, "invalid-payload")
    await live(conn, newer, worker="w2")
    await submitted(client, **body)
    await submitted(client, jobType="mail", payload={"to": "ada"})


async def test_the_setting_lets_misfits_in(
    client: httpx.AsyncClient, hf: Holdfast, conn: asyncpg.Connection, mail: Handler[Any, Any]
) -> None:
    told: list[PayloadMisfit] = []
    hf.on(PayloadMisfit)(told.append)
    await live(conn, mail)
    await conn.execute("update settings set value = 'warn' where name = 'VALIDATE_PAYLOADS'")
    await submitted(client, jobType="mail", payload={"to": 1})
    assert told == [PayloadMisfit(type="mail", tenant="default", fault="mail: to: Input should be a valid string")]
    await conn.execute("update settings set value = 'off' where name = 'VALIDATE_PAYLOADS'")
    await client.post("/jobs", json={"jobType": "mail", "payload": {"to": 2}})
    await submitted(client, jobType="mail", payload={"to": 3})
    assert len(told) == 1, "what is remembered for a second warns nobody without being asked for anew"


def _even(value: int) -> int:
    if value % 2:
        raise ValueError("must be even")
    return value


async def test_a_handler_in_the_servers_own_process_judges_by_itself(
    client: httpx.AsyncClient, hf: Holdfast, conn: asyncpg.Connection
) -> None:
    @hf.job("even")
    async def even(ctx: Context, n: Annotated[int, AfterValidator(_even)], more: int = 7) -> None: ...

    @Holdfast().job("even")
    async def odd(ctx: Context, n: str) -> None: ...

    body = {"jobType": "even", "payload": {"n": 3}}
    for _ in ("nothing was published", "its own worker is there"):
        problem = is_problem(await client.post("/jobs", json=body), 422, "invalid-payload")
        assert problem["errors"] == [{"pointer": "/payload/n", "detail": "must be even"}]
        await live(conn, even)
    job = await submitted(client, jobType="even", payload={"n": "2"})
    assert (await hf.get(job)).payload == {"n": "2"}, "a worker of another release need not know the other argument"
    await live(conn, odd, worker="w2")
    await submitted(client, jobType="even", payload={"n": "three"})


async def test_a_payload_that_would_take_long_to_judge_is_left_to_the_handler(
    client: httpx.AsyncClient, conn: asyncpg.Connection, mail: Handler[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    @Holdfast().job("mail")
    async def newer(ctx: Context, recipient: str) -> None: ...

    monkeypatch.setattr(acceptance, "_WORK", 100)
    await live(conn, mail)
    await live(conn, newer, worker="w2")
    for size, code in ((40, 422), (60, 202)):  # twice as much is looked at, by two shapes
        body = {"jobType": "mail", "payload": {"to": 1, "a": "x" * (size - len('{"to":1,"a":""}'))}}
        assert (await client.post("/jobs", json=body)).status_code == code

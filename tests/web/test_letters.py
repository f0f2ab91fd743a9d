"""Dead letters over HTTP: the list in pages, the letter with its job, acknowledgement, requeue."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import asyncpg
import httpx
import pytest

from holdfast import Context, Holdfast
from holdfast.app.handler import Handler
from holdfast.model.states import State
from tests.sql.factories import enqueue, job_in, job_row
from tests.sql.test_letters import died
from tests.web.conftest import KeyMaker
from tests.web.test_jobs import is_problem
from tests.web.test_payloads import live
from tests.web.test_steering import pages

LETTERS = "/ops/dead-letters"


async def test_letters_are_listed_in_pages_and_shown_with_their_jobs(
    client: httpx.AsyncClient, conn: asyncpg.Connection, key: KeyMaker
) -> None:
    operate = await key("operate")
    ids = [await died(conn, payload={"n": n, "large": 2**70}) for n in range(5)]
    await died(conn, tenant="other")
    found = await pages(client, LETTERS, operate)
    assert [item["job_id"] for item in found] == [str(job) for job in reversed(ids)]
    assert found[0] == {
        "job_id": str(ids[4]), "tenant": "default", "type": "work", "queue": "default", "error_type": "Boom",
        "error_message": "boom", "fingerprint": found[0]["fingerprint"], "attempts": 1, "died_at": found[0]["died_at"],
        "acknowledged": False, "acknowledged_by": None, "acknowledged_at": None, "note": None, "requeued_as": None,
    }  # fmt: skip
    assert [item["job_id"] for item in await pages(client, LETTERS, operate, q="payload.n=3")] == [str(ids[3])]
    assert len(await pages(client, LETTERS, await key("admin"))) == 6
    shown = await client.get(f"{LETTERS}/{ids[4]}", headers=operate)
    assert str(2**70) in shown.text
    details = shown.json()
    assert {name: details[name] for name in found[0]} == found[0]
    assert details["original_job"] == (await client.get(f"/ops/jobs/{ids[4]}", headers=operate)).json()
    attempts = (await client.get(f"/ops/jobs/{ids[4]}/attempts", headers=operate)).json()["items"]
    assert details["error_details"] == attempts[-1]


async def test_bad_questions_are_told(client: httpx.AsyncClient, conn: asyncpg.Connection, key: KeyMaker) -> None:
    operate, waiting = await key("operate"), await enqueue(conn)
    for query in ({"acknowledged": "maybe"}, {"q": "colour:red"}, {"cursor": "x"}, {"cursor": "WyIxIiwgIjIiXQ"}):
        is_problem(await client.get(LETTERS, params=query, headers=operate), 422, "invalid")
    for naive in ("WyIyMDI2LTAxLTAxVDAwOjAwOjAwIiwgIjAxOWEwMDAwLTAwMDAtNzAwMC04MDAwLTAwMDAwMDAwMDAwMCJd",):
        is_problem(await client.get(LETTERS, params={"cursor": naive}, headers=operate), 422, "invalid")
    for unknown in (uuid4(), "nonsense"):
        for verb in ("", "/ack", "/requeue"):
            call = client.post if verb else client.get
            is_problem(await call(f"{LETTERS}/{unknown}{verb}", headers=operate), 404, "not-found")
    told = is_problem(await client.get(f"{LETTERS}/{waiting}", headers=operate), 404, "not-found")
    assert "is queued" in told["detail"]
    job_id = await died(conn)
    bodies: list[dict[str, Any]] = [
        {"options": {"priority": -1}}, {"options": {"colour": 1}}, {"payload": []}, {"note": ""}, {"colour": 1},
        {"options": {"correlation_id": "x"}}, {"options": {"delay": 1, "run_at": "2030-01-01T00:00:00Z"}},
        {"options": {"queue": "holdfast"}},
    ]  # fmt: skip
    for body in bodies:
        is_problem(await client.post(f"{LETTERS}/{job_id}/requeue", json=body, headers=operate), 422, "invalid")
    is_problem(await client.post(f"{LETTERS}/{job_id}/ack", json={"reason": "x"}, headers=operate), 422, "invalid")


async def test_an_acknowledgement_says_who_and_whether_it_was_the_first(
    client: httpx.AsyncClient, conn: asyncpg.Connection, key: KeyMaker
) -> None:
    operate, job_id = await key("operate"), await died(conn)
    first = (await client.post(f"{LETTERS}/{job_id}/ack", json={"note": "a known bug"}, headers=operate)).json()
    assert (first["changed"], first["acknowledged"], first["acknowledged_by"]) == (True, True, "a key")
    again = (await client.post(f"{LETTERS}/{job_id}/ack", json={"note": "me too"}, headers=operate)).json()
    assert again == first | {"changed": False}
    assert first["note"] == "a known bug"
    expected: list[tuple[dict[str, str], int]] = [
        ({}, 0),
        ({"acknowledged": "true"}, 1),
        ({"acknowledged": "all"}, 1),
        ({"q": "acknowledged:true"}, 1),
        ({"acknowledged": "false", "q": "acknowledged:true"}, 0),
    ]
    for query, count in expected:
        assert len(await pages(client, LETTERS, operate, **query)) == count, query
    log = (await client.get("/ops/audit", headers=await key("admin"))).json()["items"]
    (entry,) = [entry for entry in log if entry["action"] == "letter.ack"]
    assert (entry["actor"], entry["subject"], entry["detail"]) == ("a key", str(job_id), {"note": "a known bug"})
    assert entry["key_id"] is not None


async def test_a_requeue_answers_the_same_new_job_however_often_it_is_asked_for(
    client: httpx.AsyncClient, hf: Holdfast, conn: asyncpg.Connection, key: KeyMaker
) -> None:
    operate, job_id = await key("operate"), await died(conn, payload={"to": "adda"}, correlation_id="order-1")
    body: dict[str, Any] = {"payload": {"to": "ada", "n": 2**70}, "options": {"priority": 5}, "note": "repaired"}
    first = await client.post(f"{LETTERS}/{job_id}/requeue", json=body, headers=operate)
    assert first.status_code == 202
    created = first.json()["job_id"]
    assert set(first.json()) == {"job_id"}
    assert (await client.post(f"{LETTERS}/{job_id}/requeue", headers=operate)).json() == first.json()
    assert str(await hf.retry(job_id)) == created
    job = await hf.get(created)
    assert (job.payload, job.priority, job.correlation_id) == (body["payload"], 5, "order-1")
    assert (job.retry_of, job.created_by) == (job_id, "a key")
    letter = (await client.get(f"{LETTERS}/{job_id}", headers=operate)).json()
    assert (letter["requeued_as"], letter["acknowledged_by"], letter["note"]) == (created, "a key", "repaired")


async def test_a_payload_that_no_worker_takes_is_refused(
    client: httpx.AsyncClient, hf: Holdfast, conn: asyncpg.Connection
) -> None:
    @Holdfast().job("mail")
    async def mail(ctx: Context, to: str) -> None: ...

    handler: Handler[Any, Any] = mail
    await live(conn, handler)
    job_id = await died(conn, "mail", payload={"too": "ada"})
    refused = await client.post(f"{LETTERS}/{job_id}/requeue", json={"payload": {"to": 1}})
    assert is_problem(refused, 422, "invalid-payload")["errors"][0]["pointer"] == "/payload/to"
    assert (await client.post(f"{LETTERS}/{job_id}/requeue", json={"payload": {"to": "ada"}})).status_code == 202


@pytest.mark.parametrize("state", [state for state in State if state is not State.DEAD])
async def test_a_job_that_is_not_dead_is_refused_with_advice(
    client: httpx.AsyncClient, conn: asyncpg.Connection, state: State
) -> None:
    job_id = await job_in(conn, state)
    for verb, said in (("requeue", "requeued"), ("ack", "acknowledged")):
        told = is_problem(await client.post(f"{LETTERS}/{job_id}/{verb}"), 409, "conflict")
        assert f"is {state}, and only dead jobs can be {said}: " in told["detail"]
        assert len(told["detail"].rpartition(": ")[2]) > 8, "it says what to do instead"


async def test_a_closed_type_and_an_erased_job_are_not_run_again(
    client: httpx.AsyncClient, hf: Holdfast, conn: asyncpg.Connection
) -> None:
    closed, erased = await died(conn, "mail"), await died(conn)
    await (await hf.operations()).close_type("mail", by="ada", reason="the provider moves")
    told = is_problem(await client.post(f"{LETTERS}/{closed}/requeue"), 409, "type-closed")
    assert "the provider moves" in told["detail"]
    await hf.delete(erased)
    await conn.execute("select execute_requests()")
    told = is_problem(await client.post(f"{LETTERS}/{erased}/requeue"), 409, "conflict")
    assert "enqueue a new job instead" in told["detail"]
    assert (await client.get(f"{LETTERS}/{erased}")).json()["original_job"]["payload"] == {}


async def test_other_tenants_letters_do_not_exist(
    client: httpx.AsyncClient, conn: asyncpg.Connection, key: KeyMaker
) -> None:
    mine, admin = await key("operate", tenant="mine"), await key("admin")
    theirs = await died(conn, tenant="theirs")
    assert await pages(client, LETTERS, mine, acknowledged="all") == []
    is_problem(await client.get(f"{LETTERS}/{theirs}", headers=mine), 404, "not-found")
    for verb in ("ack", "requeue"):
        is_problem(await client.post(f"{LETTERS}/{theirs}/{verb}", json={}, headers=mine), 404, "not-found")
    changed = {"payload": {"a": 1}}
    is_problem(await client.post(f"{LETTERS}/{theirs}/requeue", json=changed, headers=mine), 404, "not-found")
    assert await conn.fetchval("select count(*) from jobs") == 1
    answer = await client.post(f"{LETTERS}/{theirs}/requeue", headers=admin)
    assert (await job_row(conn, UUID(answer.json()["job_id"])))["tenant"] == "theirs"


async def test_letters_that_wait_for_somebody_are_counted(client: httpx.AsyncClient, conn: asyncpg.Connection) -> None:
    first, _ = await died(conn), await died(conn)
    assert (await client.get("/ops/stats")).json()["dead"] == 2
    await client.post(f"{LETTERS}/{first}/ack")
    assert (await client.get("/ops/stats")).json()["dead"] == 1

"""What operators decide about one job, over HTTP: answers, refusals with advice, the audit log, and tenants."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import asyncpg
import httpx

from holdfast import Holdfast
from tests.sql.factories import Lease, job_in, settle, state_of
from tests.web.conftest import KeyMaker
from tests.web.test_jobs import is_problem


async def post(
    client: httpx.AsyncClient, verb: str, job_id: UUID, headers: dict[str, str], body: dict[str, Any] | None = None
) -> httpx.Response:
    return await client.post(f"/ops/jobs/{job_id}/{verb}", json=body, headers=headers)


async def maintained(conn: asyncpg.Connection) -> None:
    await conn.execute("select execute_requests(100)")


#: What is sent, what becomes of the job, and the error of its attempt.
VERDICTS: list[tuple[str, dict[str, Any] | None, str, tuple[str, str]]] = [
    ("fail", {"message": "an outage", "will_retry": True}, "retry", ("FailedByOperator", "an outage")),
    ("fail", {"message": "an outage", "will_retry": False}, "dead", ("FailedByOperator", "an outage")),
    ("fail", None, "retry", ("FailedByOperator", "failed by a key")),
    ("kill", {"reason": "enough"}, "dead", ("KilledByOperator", "enough")),
    ("kill", None, "dead", ("KilledByOperator", "killed by a key")),
]


async def test_a_running_job_is_failed_or_killed(
    client: httpx.AsyncClient, conn: asyncpg.Connection, key: KeyMaker
) -> None:
    for verdict in VERDICTS:
        await judged(client, conn, await key("admin"), *verdict)


async def judged(  # noqa: PLR0917 - a row of the table
    client: httpx.AsyncClient,
    conn: asyncpg.Connection,
    admin: dict[str, str],
    verb: str,
    body: dict[str, Any] | None,
    state: str,
    error: tuple[str, str],
) -> None:
    job_id = await job_in(conn, "running")
    answer = await post(client, verb, job_id, admin, body)
    assert (answer.status_code, answer.json()) == (202, {"job_id": str(job_id), "state": "running"})
    await maintained(conn)
    assert await settle(conn, "stop", [Lease(job_id, 1)], outcomes=["canceled"]) == [state]
    (attempt,) = (await client.get(f"/ops/jobs/{job_id}/attempts", headers=admin)).json()["items"]
    assert (attempt["outcome"], attempt["error_type"], attempt["error_message"]) == ("failed", *error)
    if state == "dead":
        told = (await client.get(f"/jobs/{job_id}/result", headers=admin)).json()["error"]
        assert told == {"type": error[0], "message": "an operator ended the job"}
    (event,) = (await client.get(f"/ops/jobs/{job_id}/events", headers=admin)).json()["items"]
    assert (event["event"], event["by"]) == ("killed" if verb == "kill" else "failed", "a key")
    (entry, *_) = (await client.get("/ops/audit", headers=admin)).json()["items"]
    assert (entry["action"], entry["subject"], entry["actor"]) == (f"job.{verb}", str(job_id), "a key")


async def test_a_lease_is_ended_and_a_priority_changed(
    client: httpx.AsyncClient, conn: asyncpg.Connection, key: KeyMaker
) -> None:
    admin = await key("admin")
    job_id = await job_in(conn, "running")
    assert (await post(client, "expire-lease", job_id, admin)).status_code == 202
    await maintained(conn)
    assert await state_of(conn, job_id) == "queued"
    answer = await post(client, "reprioritize", job_id, admin, {"priority": 7, "reason": "urgent"})
    assert (answer.status_code, answer.json()["state"]) == (202, "queued")
    await maintained(conn)
    assert (await client.get(f"/ops/jobs/{job_id}", headers=admin)).json()["priority"] == 7
    (entry, *_) = (await client.get("/ops/audit", headers=admin)).json()["items"]
    assert entry["detail"] == {"note": "urgent", "priority": 7, "priority_before": 100}


async def test_a_retry_answers_the_job_that_runs(
    client: httpx.AsyncClient, hf: Holdfast, conn: asyncpg.Connection, key: KeyMaker
) -> None:
    admin = await key("admin")
    waiting, ended = await job_in(conn, "retry"), await job_in(conn, "canceled")
    answer = await post(client, "retry", waiting, admin, {"reason": "repaired"})
    assert (answer.status_code, answer.json()) == (202, {"job_id": str(waiting), "state": "retry"})
    await maintained(conn)
    assert await state_of(conn, waiting) == "queued"
    answer = await post(client, "retry", ended, admin)
    new = await hf.get(answer.json()["job_id"])
    assert (answer.status_code, answer.json()["state"], new.retry_of) == (202, "queued", ended)


REFUSED = [
    ("kill", "queued", "conflict", "cancel it instead"),
    ("kill", "scheduled", "conflict", "cancel it instead"),
    ("kill", "created", "conflict", "cancel it instead"),
    ("kill", "paused", "conflict", "cancel it instead, or resume it"),
    ("kill", "success", "already-final", "retry it if it is to run again, as a new job"),
    ("kill", "dead", "already-final", "requeue it if it is to run again, as a new job"),
    ("fail", "retry", "conflict", "it has failed and will be retried already"),
    ("fail", "error", "conflict", "resume it to run it again, or fail it without a retry"),
    ("fail", "canceled", "already-final", "retry it if it is to run again, as a new job"),
    ("expire-lease", "created", "conflict", "release it to let it run"),
    ("expire-lease", "scheduled", "conflict", "retry it to run it now"),
    ("expire-lease", "queued", "conflict", "only a running job has a lease; it runs as soon as a worker is free"),
    ("expire-lease", "retry", "conflict", "retry it to run it now"),
    ("expire-lease", "paused", "conflict", "resume it to let it run"),
    ("expire-lease", "error", "conflict", "resume it to run it again"),
    ("expire-lease", "success", "already-final", "retry it if it is to run again, as a new job"),
    ("resolve", "dead", "already-final", "retry it if it is to run again, as a new job"),
    ("cancel", "success", "already-final", "retry it if it is to run again, as a new job"),
    ("reprioritize", "dead", "already-final", "retry it and reprioritize the new job"),
    ("retry", "running", "conflict", "if it runs, wait for its end, or let an operator fail it"),
]


async def test_what_is_forbidden_says_what_to_do_instead(
    client: httpx.AsyncClient, conn: asyncpg.Connection, key: KeyMaker
) -> None:
    admin = await key("admin")
    for verb, state, code, advice in REFUSED:
        job_id = await job_in(conn, state)
        answer = await post(client, verb, job_id, admin, {"priority": 1} if verb == "reprioritize" else None)
        is_problem(answer, 409, code)
        assert advice in answer.json()["detail"], answer.json()
        assert await state_of(conn, job_id) == state
    log = (await client.get("/ops/audit", headers=admin)).json()["items"]
    assert [entry for entry in log if entry["action"].startswith("job.")] == []
    running = await job_in(conn, "running")
    await post(client, "kill", running, admin)
    late = await post(client, "fail", running, admin)
    is_problem(late, 409, "conflict")
    assert "was killed by a key before; that takes effect when its handler has ended" in late.json()["detail"]


async def test_bad_input_is_refused(client: httpx.AsyncClient, conn: asyncpg.Connection, key: KeyMaker) -> None:
    admin = await key("admin")
    job_id = await job_in(conn, "queued")
    wrong: list[tuple[str, Any]] = [
        ("fail", {"will_retry": "yes"}),
        ("fail", {"willRetry": True}),
        ("fail", {"message": "x" * 1001}),
        ("fail", {"reason": "another verb's"}),
        ("kill", {"message": "another verb's"}),
        ("kill", {"reason": 5}),
        ("expire-lease", {"reason": "\x00"}),
        *(("reprioritize", body) for body in ({}, {"priority": -1}, {"priority": 1.5}, {"priority": 10**9 + 1})),
        ("reprioritize", {"priority": True}),
        ("reprioritize", {"priority": None}),
    ]
    for verb, body in wrong:
        is_problem(await post(client, verb, job_id, admin, body), 422, "invalid")
    for verb in ("fail", "kill", "expire-lease", "reprioritize", "retry"):
        body = {"priority": 5} if verb == "reprioritize" else None
        is_problem(await post(client, verb, uuid4(), admin, body), 404, "not-found")


async def test_a_tenants_operators_decide_about_their_own_jobs_alone(
    client: httpx.AsyncClient, conn: asyncpg.Connection, key: KeyMaker
) -> None:
    mine, reader = await key("operate", tenant="mine"), await key("read", "submit", tenant="mine")
    own, foreign = await job_in(conn, "running", tenant="mine"), await job_in(conn, "running", tenant="theirs")
    for verb in ("reprioritize", "fail", "kill", "expire-lease"):
        body = {"priority": 5} if verb == "reprioritize" else None
        is_problem(await post(client, verb, foreign, mine, body), 404, "not-found")
        is_problem(await post(client, verb, own, reader, body), 403, "scope")
        assert (await post(client, verb, own, mine, body)).status_code == 202
    assert await conn.fetchval("select verdict from leases where job_id = $1", foreign) is None
    actors = await conn.fetch("select distinct actor, tenant from audit_log where action like 'job.%'")
    assert [tuple(row) for row in actors] == [("a key", "mine")]

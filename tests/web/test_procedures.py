"""What operators of a plain job table do by hand, on the surfaces that are there for it: HTTP, psql, the command line.

The procedures are those of seed 002: fail-job!, move-to-dead-letter!, acknowledge, requeue, correlation and stuck jobs.
"""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import asyncpg
import httpx
import pytest

from holdfast import Holdfast
from tests.cli.conftest import Cli, cli
from tests.sql.factories import Lease, claim_by_id, job_in, settle
from tests.sql.test_views import LETTERS_BY_TYPE, RELATED, STUCK, TRACE, psql

__all__ = ["cli", "psql"]


async def ended(conn: asyncpg.Connection, job_id: UUID) -> None:
    """Maintenance carries out what was asked for, and the worker stops its handler."""
    await conn.execute("select execute_requests(100)")
    await settle(conn, "stop", [Lease(job_id, 1)], outcomes=["canceled"])


async def shown(psql: asyncpg.Connection, job_id: UUID) -> tuple[Any, ...]:
    row = await psql.fetchrow("select status, attempts, error_message from jobs where id = $1", job_id)
    assert row is not None
    return tuple(row)


@pytest.mark.parametrize("face", ["http", "cli"])
async def test_a_job_is_failed_by_hand_and_retried(
    face: str, client: httpx.AsyncClient, cli: Cli, conn: asyncpg.Connection, psql: asyncpg.Connection
) -> None:
    """`(jobs/fail-job! db job-id "External service unavailable" {:will-retry? true})`"""
    job = await job_in(conn, "running", "email")
    if face == "http":
        body = {"message": "External service unavailable", "will_retry": True}
        assert (await client.post(f"/ops/jobs/{job}/fail", json=body)).status_code == 202
    else:
        await cli("jobs", "fail", job, "--message", "External service unavailable")
    await ended(conn, job)
    assert await shown(psql, job) == ("failed", 1, "External service unavailable")
    assert await conn.fetchval("select run_at > now() from due where job_id = $1", job)


@pytest.mark.parametrize("face", ["http", "cli"])
async def test_a_job_is_moved_to_the_dead_letters_acknowledged_and_requeued(
    face: str, client: httpx.AsyncClient, cli: Cli, conn: asyncpg.Connection, psql: asyncpg.Connection
) -> None:
    """`move-to-dead-letter!`, `acknowledge-dead-letter!`, and the requeue from `original_job`."""
    job = await job_in(conn, "running", "email", payload={"to": "user@example.com"}, correlation_id="user-action-123")
    if face == "http":
        await client.post(f"/ops/jobs/{job}/kill", json={"reason": "Permanent validation error"})
    else:
        await cli("jobs", "kill", job, "--reason", "Permanent validation error", "--yes")
    await ended(conn, job)
    (letter,) = await psql.fetch(LETTERS_BY_TYPE)
    assert tuple(letter)[:3] == (job, "email", "Permanent validation error")

    if face == "http":
        answer = await client.post(f"/ops/dead-letters/{job}/ack", json={"note": "seen"})
        assert answer.status_code == 200
    else:
        await cli("dead", "ack", job, "--note", "seen")
    assert await psql.fetch(LETTERS_BY_TYPE) == []
    (row,) = await psql.fetch("select * from dead_letter_jobs where id = $1", job)
    assert row["acknowledged"]
    assert row["acknowledged_by"]
    assert row["acknowledged_at"] is not None

    if face == "http":
        answer = await client.post(f"/ops/dead-letters/{job}/requeue", json={})
        assert answer.status_code == 202
        created = UUID(answer.json()["job_id"])
    else:
        await cli("dead", "requeue", job)
        created = await conn.fetchval("select requeued_as from dead_letters where job_id = $1", job)
    original = json.loads(row["original_job"])
    (again,) = await psql.fetch("select * from jobs where id = $1", created)
    assert (again["type"], json.loads(again["payload"]), again["correlation_id"], again["status"]) == (
        original["type"], original["payload"], original["correlation_id"], "pending",
    )  # fmt: skip
    assert [(row["id"], row["status"]) for row in await psql.fetch(TRACE)] == [(job, "dead"), (created, "pending")]


async def test_a_user_action_is_traced_across_its_jobs(
    hf: Holdfast, client: httpx.AsyncClient, cli: Cli, psql: asyncpg.Connection
) -> None:
    """`(jobs/get-jobs-by-correlation db "user-action-123")`"""
    first = await hf.enqueue("analysis", {"lipas-id": 12345}, correlation_id="user-action-123", priority=50)
    second = await hf.enqueue("email", {}, parent=first.id)
    await hf.enqueue("email", {})
    family = [first.id, second.id]
    over_http = (await client.get("/ops/correlations/user-action-123")).json()["items"]
    assert [UUID(job["id"]) for job in over_http] == family
    told = json.loads((await cli("correlation", "user-action-123", "-o", "json")).stdout)
    assert [UUID(job["id"]) for job in told] == family
    assert [row["id"] for row in await psql.fetch(TRACE)] == family
    assert [tuple(row) for row in await psql.fetch(RELATED)] == [(first.id, "analysis", second.id, "email")]


@pytest.mark.parametrize("face", ["http", "cli"])
async def test_a_stuck_job_goes_back_to_pending_and_its_worker_cannot_end_it(
    face: str, client: httpx.AsyncClient, cli: Cli, conn: asyncpg.Connection, psql: asyncpg.Connection
) -> None:
    """What is done in place of `UPDATE jobs SET status = 'pending' … WHERE status = 'processing' AND started_at < …`"""
    fresh, stuck = await job_in(conn, "running", "email"), await job_in(conn, "running", "elevation")
    await conn.execute("set session_replication_role = replica")
    await conn.execute("update holdfast.jobs set started_at = now() - interval '2 hours' where id = $1", stuck)
    await conn.execute("set session_replication_role = default")
    (found,) = await psql.fetch(STUCK)
    assert (found["id"], found["attempts"]) == (stuck, 1)
    with pytest.raises(asyncpg.PostgresError):
        await psql.execute("UPDATE jobs SET status = 'pending', started_at = null WHERE status = 'processing'")

    if face == "http":
        assert (await client.post(f"/ops/jobs/{stuck}/expire-lease", json={"reason": "hangs"})).status_code == 202
    else:
        await cli("jobs", "expire-lease", stuck, "--reason", "hangs")
    await conn.execute("select execute_requests(100)")
    assert (await shown(psql, stuck))[0] == "pending"
    assert (await shown(psql, fresh))[0] == "processing"
    assert await psql.fetch(STUCK) == []
    again = await claim_by_id(conn, stuck, worker="w2")
    assert again == Lease(stuck, 2)
    assert await settle(conn, "complete", [Lease(stuck, 1)]) == ["lease-lost"]

"""The document of the pull-based fleet, example by example (seed 003)."""

from __future__ import annotations

import asyncpg
import httpx
import pytest

from holdfast import Holdfast
from tests.sql.factories import expire, job_row, make_due, promote, sweep
from tests.web.remote.conftest import Remote

#: Its table: the attempts that failed before, and the delay.
BACKOFF = [(0, 30), (1, 60), (2, 120), (3, 240), (4, 480), (7, 3600), (20, 3600)]


async def set_to(client: httpx.AsyncClient, name: str, value: float) -> None:
    assert (await client.put(f"/ops/settings/{name}", json={"value": value})).status_code == 200


async def delay(hf: Holdfast, remote: Remote, conn: asyncpg.Connection, attempts: int) -> float:
    """How long a job that failed so often waits after one more failure."""
    ref = await hf.enqueue("work", {}, max_attempts=1000)
    await conn.execute("update jobs set failures = $2 where id = $1", ref.id, attempts)
    await remote.report(await remote.one(), error="no")
    row = await job_row(conn, ref.id)
    return float((row["run_at"] - row["last_error_at"]).total_seconds())


@pytest.mark.parametrize(("attempts", "seconds"), BACKOFF)
async def test_the_table_of_backoffs(
    hf: Holdfast, remote: Remote, conn: asyncpg.Connection, attempts: int, seconds: int
) -> None:
    assert seconds <= await delay(hf, remote, conn, attempts) <= seconds * 1.2


async def test_the_knobs_are_turned_at_run_time(hf: Holdfast, remote: Remote, conn: asyncpg.Connection) -> None:
    await set_to(remote.client, "BACKOFF_BASE_SEC", 5)
    await set_to(remote.client, "BACKOFF_MAX_SEC", 17)
    assert 5 <= await delay(hf, remote, conn, 0) <= 6
    assert 17 <= await delay(hf, remote, conn, 9) <= 17 * 1.2
    await set_to(remote.client, "LEASE_SEC_DEFAULT", 77)
    await set_to(remote.client, "MAX_ATTEMPTS_DEFAULT", 1)
    ref = await hf.enqueue("work", {})
    job = await remote.one()
    assert (job["lease_sec"], job["max_attempts"]) == (77, 1)
    assert (await remote.report(job, error="no"))["state"] == "dead"
    assert (await hf.get(ref)).state == "dead"


async def test_the_flow_from_queued_to_done(hf: Holdfast, remote: Remote, conn: asyncpg.Connection) -> None:
    """Pull, report with a cursor, fail, pull again when it is due, be lost, pull again, and be done."""
    ref = await hf.enqueue("work", {})
    assert (await job_row(conn, ref.id))["state"] == "queued"
    job = await remote.one(lease_sec=60)
    assert (await job_row(conn, ref.id))["state"] == "running"
    await remote.report(job, seq=1, items=[{"key": "+1 555", "data": {}}], cursor="page 2", extend_lease_sec=120)
    assert (await remote.report(job, error="captcha", log="…"))["state"] == "retry"
    assert await remote.pull() == [], "not before next_retry_at"

    await make_due(conn, ref.id)
    await promote(conn)
    job = await remote.one()
    assert (job["attempt"], job["cursor"], job["progress_count"], job["result_count"]) == (2, "page 2", 1, 1)
    await expire(conn, ref.id)
    await sweep(conn)

    job = await Remote(remote.client, "another").one()
    assert (job["attempt"], job["cursor"]) == (3, "page 2")
    told = await Remote(remote.client, "another").report(
        job, seq=1, items=[{"key": "+1 555", "data": {}}], done=True, done_reason="no_more_results"
    )
    assert (told["state"], told["progress_count"], told["result_count"]) == ("success", 2, 1)
    reason = await conn.fetchval("select done_reason from job_progress where job_id = $1", ref.id)
    assert reason == "no_more_results"

    log = await conn.fetch("select worker_id, success, log_excerpt from holdfast_views.job_attempts order by attempt")
    assert [(row["worker_id"], row["success"], row["log_excerpt"]) for row in log] == [
        ("remote:open:w1", False, "…"),
        ("remote:open:w1", False, None),
        ("remote:open:another", True, None),
    ]


async def test_a_job_fails_for_good_after_its_attempts(hf: Holdfast, remote: Remote, conn: asyncpg.Connection) -> None:
    ref = await hf.enqueue("work", {})
    states = []
    for _ in range(3):
        states.append((await remote.report(await remote.one(), error="no"))["state"])
        if states[-1] == "retry":
            await make_due(conn, ref.id)
            await promote(conn)
    assert states == ["retry", "retry", "dead"]
    assert (await hf.get(ref)).last_error == "no"

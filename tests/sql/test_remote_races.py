"""Reports of remote workers against each other and against everybody else: one outcome, and the loser is told why."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from tests.conftest import ConnectAs
from tests.sql.factories import enqueue, execute, expire, job_row, offences, request, sweep

WORKER = "remote:open:w"
ROUNDS = 12


async def pulled(remote: asyncpg.Connection, worker: str = WORKER, **wish: Any) -> tuple[UUID, int]:
    """A job that a worker has."""
    asked = json.dumps({"types": ["work"], "max": 1, "lease_sec": 60} | wish)
    row = await remote.fetchrow(
        "select * from remote_pull(array['default'], array[$1], array[null::text], array[$2::text::jsonb])",
        worker,
        asked,
    )
    assert row is not None
    assert row["fault"] is None, row["detail"]
    assert row["job_id"] is not None
    return row["job_id"], row["attempt"]


async def told(
    remote: asyncpg.Connection, job: tuple[UUID, int], worker: str = WORKER, tenant: str = "default", **report: Any
) -> asyncpg.Record:
    """The answer to a report."""
    row = await remote.fetchrow(
        "select * from remote_report(array[$1], array[$2], array[$3::uuid], array[$4::integer], array[$5])",
        tenant, worker, *job, json.dumps(report),
    )  # fmt: skip
    assert row is not None
    return row


Rival = Callable[[asyncpg.Connection, UUID], Awaitable[Any]]


async def race(conn: asyncpg.Connection, connect_as: ConnectAs, rival: Rival, **report: Any) -> list[tuple[str, str]]:
    """What became of the report, and of the job, in many races."""
    one, other = await connect_as("remote"), await connect_as("superuser")
    found = []
    for _ in range(ROUNDS):
        await enqueue(conn)
        job = await pulled(one)

        async def late(work: Awaitable[Any]) -> Any:
            await asyncio.sleep(random.random() * 0.004)
            return await work

        answer, _ = await asyncio.gather(late(told(one, job, **report)), late(rival(other, job[0])))
        await conn.execute("select execute_requests()")
        found.append((answer["verdict"] or answer["fault"], (await job_row(conn, job[0]))["state"]))
        await execute(conn, "cancel", job[0])  # so that the next round meets no other job
    assert await offences(conn) == []
    return found


async def test_of_two_final_reports_one_counts(conn: asyncpg.Connection, connect_as: ConnectAs) -> None:
    one, other = await connect_as("remote"), await connect_as("remote")
    for _ in range(ROUNDS):
        await enqueue(conn)
        job = await pulled(one)
        answers = await asyncio.gather(
            told(one, job, done=True, result=1), told(other, job, error={"message": "m", "kind": "fatal"})
        )
        verdicts = sorted(answer["verdict"] for answer in answers)
        assert verdicts == ["already-reported", "counted"]
        counted, late = sorted(answers, key=lambda answer: answer["verdict"] != "counted")
        row = await job_row(conn, job[0])
        assert counted["state"] == row["state"]
        assert late["outcome"] == {"success": "success", "dead": "failed"}[row["state"]], (
            "the loser is told how it ended"
        )
        assert await conn.fetchval("select count(*) from job_attempts where job_id = $1", job[0]) == 1
    assert await offences(conn) == []


async def test_of_two_equal_pulls_both_get_the_same_jobs(conn: asyncpg.Connection, connect_as: ConnectAs) -> None:
    sessions = [await connect_as("remote") for _ in range(3)]
    wish = json.dumps({"types": ["work"], "max": 2, "lease_sec": 60})
    for number in range(ROUNDS):
        for _ in range(6):
            await enqueue(conn)
        answers = await asyncio.gather(
            *(
                session.fetch(
                    "select fault, job_id, attempt from remote_pull(array['default'], array[$1], array[$2],"
                    " array[$3::text::jsonb])",
                    WORKER,
                    f"r{number}",
                    wish,
                )
                for session in sessions
            )
        )
        given = [sorted((row["job_id"], row["attempt"]) for row in rows if row["fault"] is None) for rows in answers]
        assert len(given[0]) == 2
        assert given[0] == given[1] == given[2]
    assert await conn.fetchval("select count(*) from leases") == 2 * ROUNDS


async def test_a_report_against_a_cancel(conn: asyncpg.Connection, connect_as: ConnectAs) -> None:
    async def cancel(other: asyncpg.Connection, job_id: UUID) -> None:
        await request(other, "cancel", job_id)

    assert set(await race(conn, connect_as, cancel, done=True)) == {("counted", "success")}
    ends = set(await race(conn, connect_as, cancel, error={"message": "m"}))
    assert ends <= {("counted", "retry"), ("counted", "canceled")}


async def test_a_report_against_a_sweep(conn: asyncpg.Connection, connect_as: ConnectAs) -> None:
    async def lapse(other: asyncpg.Connection, job_id: UUID) -> None:
        await expire(other, job_id)
        await sweep(other)

    ends = set(await race(conn, connect_as, lapse, done=True))
    assert ends <= {("counted", "success"), ("lease-lost", "queued")}


async def test_a_report_against_a_lease_that_is_ended_by_hand(conn: asyncpg.Connection, connect_as: ConnectAs) -> None:
    async def end(other: asyncpg.Connection, job_id: UUID) -> None:
        await other.execute("select lease_expired($1, 'an operator', null)", job_id)

    ends = set(await race(conn, connect_as, end, done=True))
    assert ends <= {("counted", "success"), ("lease-lost", "queued"), ("55P03", "queued")}


async def test_a_zombie_changes_nothing(conn: asyncpg.Connection, connect_as: ConnectAs) -> None:
    remote = await connect_as("remote")
    await enqueue(conn, target_count=5)
    old = await pulled(remote, "remote:open:old")
    await told(remote, old, "remote:open:old", seq=1, items=[{"key": "a", "data": 1}], cursor=1)
    await expire(conn, old[0])
    await sweep(conn)
    new = await pulled(remote, "remote:open:new")
    before = await conn.fetch("select p::text from job_progress p union all select l::text from leases l")
    for late in (
        {"seq": 2, "items": [{"key": "b", "data": 2}], "cursor": 2}, {"done": True}, {"error": {"message": "m"}}, {},
    ):  # fmt: skip
        for job, worker in ((old, "remote:open:old"), (new, "remote:open:old"), (old, "remote:open:new")):
            assert (await told(remote, job, worker, **late))["verdict"] == "lease-lost"
    after = await conn.fetch("select p::text from job_progress p union all select l::text from leases l")
    assert before == after
    assert (await told(remote, new, "remote:open:new", done=True))["verdict"] == "counted"


async def test_a_worker_of_another_tenant_sees_nothing(conn: asyncpg.Connection, connect_as: ConnectAs) -> None:
    remote = await connect_as("remote")
    await enqueue(conn)
    job = await pulled(remote)
    assert (await told(remote, job, tenant="theirs", done=True))["verdict"] == "lease-lost"
    row = await remote.fetchrow(
        "select * from remote_extend(array['theirs'], array[$1], array[$2::uuid], array[$3::integer],"
        " array[null::float8])",
        WORKER, *job,
    )  # fmt: skip
    assert row is not None
    assert row["owned"] is False
    row = await remote.fetchrow(
        "select * from remote_release(array['theirs'], array[$1], array[$2::uuid], array[$3::integer],"
        " array[null::text])",
        WORKER, *job,
    )  # fmt: skip
    assert row is not None
    assert row["state"] is None
    assert (await told(remote, job, done=True))["verdict"] == "counted"


@pytest.mark.parametrize("tenant", ["", None])
async def test_no_tenant_no_answer(conn: asyncpg.Connection, connect_as: ConnectAs, tenant: str | None) -> None:
    remote = await connect_as("remote")
    await enqueue(conn)
    job = await pulled(remote)
    row = await remote.fetchrow(
        "select * from remote_report(array[$1::text], array[$2], array[$3::uuid], array[$4::integer], array['{}'])",
        tenant, WORKER, *job,
    )  # fmt: skip
    assert row is not None
    assert row["fault"] == "HF003"


async def test_a_remote_worker_cannot_take_the_name_of_another_kind(
    conn: asyncpg.Connection, connect_as: ConnectAs
) -> None:
    remote = await connect_as("remote")
    row = await remote.fetchrow(
        "select * from remote_pull(array['default'], array['host:1:ab'], array[null::text], array[$1::text::jsonb])",
        json.dumps({"types": ["work"], "max": 1}),
    )
    assert row is not None
    assert row["fault"] == "HF002"


async def test_a_locked_row_fails_one_report_of_many(conn: asyncpg.Connection, connect_as: ConnectAs) -> None:
    remote, other = await connect_as("remote"), await connect_as("superuser")
    for _ in range(3):
        await enqueue(conn)
    jobs = [await pulled(remote) for _ in range(3)]
    async with other.transaction():
        await other.execute("select from jobs where id = $1 for update", jobs[1][0])
        rows = await remote.fetch(
            "select item, fault, verdict from remote_report($1, $2, $3, $4, $5) order by item",
            ["default"] * 3, [WORKER] * 3, [job[0] for job in jobs], [job[1] for job in jobs], ['{"done": true}'] * 3,
        )  # fmt: skip
    assert [(row["fault"], row["verdict"]) for row in rows] == [(None, "counted"), ("55P03", None), (None, "counted")]

"""Lapsed leases: taken back once, counted, and never because the database or the leader was away."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import asyncpg
import pytest

from tests.conftest import ConnectAs
from tests.sql.factories import (
    claim,
    enqueue,
    enqueue_copies,
    expire,
    job_row,
    offences,
    run_one,
    settle,
    state_of,
    sweep,
)


async def lapsed(conn: asyncpg.Connection, lease_seconds: float) -> None:
    await conn.execute("update leases set expires_at = now() - interval '1 second', lease_seconds = $1", lease_seconds)


async def test_a_live_lease_is_left_alone(conn: asyncpg.Connection) -> None:
    await run_one(conn)
    assert await sweep(conn) == {}


async def test_no_lease_lapses_before_the_caller_was_connected_for_its_length(conn: asyncpg.Connection) -> None:
    lease = await run_one(conn)
    await lapsed(conn, 0.5)
    assert await sweep(conn, connected_seconds=0.4) == {}
    assert await sweep(conn, connected_seconds=0.6) == {lease.job_id: "queued"}


async def test_no_lease_lapses_before_the_database_was_up_for_its_length(conn: asyncpg.Connection) -> None:
    lease = await run_one(conn)
    up = await conn.fetchval("select extract(epoch from now() - pg_postmaster_start_time())::double precision")
    await lapsed(conn, up + 60)
    assert await sweep(conn) == {}
    assert await conn.fetch("select * from claim_by_id('w2', $1)", lease.job_id) == []
    await lapsed(conn, up - 0.1)
    assert await sweep(conn) == {lease.job_id: "queued"}


async def test_a_lapsed_attempt_is_closed_as_lost_and_counted(conn: asyncpg.Connection) -> None:
    lease = await run_one(conn, max_attempts=2)
    await expire(conn, lease.job_id)
    assert await sweep(conn) == {lease.job_id: "queued"}
    attempt = await conn.fetchrow("select outcome, worker, error_type from job_attempts")
    assert attempt is not None
    assert tuple(attempt) == ("lost", "w1", "LeaseLost")
    job = await job_row(conn, lease.job_id)
    assert (job["failures"], job["attempt"], job["reason"]) == (1, 1, "lost")
    await claim(conn)
    await expire(conn, lease.job_id)
    assert await sweep(conn) == {lease.job_id: "dead"}
    assert await conn.fetchval("select error_message from dead_letters") == "the worker stopped renewing its lease"
    assert await offences(conn) == []


async def test_a_sweep_takes_a_bounded_number_oldest_first_and_can_go_on_from_there(conn: asyncpg.Connection) -> None:
    jobs = await enqueue_copies(conn, 5)
    await claim(conn, limit=5)
    await expire(conn, *jobs)
    for n, job_id in enumerate(jobs):
        age = timedelta(minutes=n + 1)
        await conn.execute("update leases set expires_at = now() - $2::interval where job_id = $1", job_id, age)
    rows = await conn.fetch("select job_id from sweep(1e9, 2)")
    assert {row["job_id"] for row in rows} == {jobs[4], jobs[3]}
    rows = await conn.fetch("select job_id from sweep(1e9, 9, after => now() - interval '150 seconds')")
    assert {row["job_id"] for row in rows} == {jobs[1], jobs[0]}


async def test_a_sweep_waits_for_no_lock_and_takes_nothing_twice(connect_as: ConnectAs) -> None:
    one, two, admin = await connect_as("worker"), await connect_as("worker"), await connect_as("superuser")
    jobs = await enqueue_copies(one, 3)
    leases = await claim(one, limit=3)
    await expire(admin, *jobs)
    await two.execute("set lock_timeout = '1s'")
    async with one.transaction():
        assert await settle(one, "complete", leases[:1]) == ["success"]
        assert set(await sweep(two)) == set(jobs[1:])
        async with two.transaction():
            assert await sweep(two) == {}
    assert await sweep(two) == {}
    assert await offences(admin) == []


async def test_a_lapsed_job_goes_before_new_ones(conn: asyncpg.Connection) -> None:
    lost = await run_one(conn)
    new = await enqueue(conn)
    await expire(conn, lost.job_id)
    await sweep(conn)
    assert [lease.job_id for lease in await claim(conn, limit=2)] == [lost.job_id, new]


RECOVER = "select job_id, state from recover(clock_timestamp(), '{}', '{}', '{}', '{}', '{}', $1)"


async def recovered(conn: asyncpg.Connection, max_jobs: int = 200) -> dict[UUID, str]:
    """What the leader's sweep takes back."""
    return {row["job_id"]: row["state"] for row in await conn.fetch(RECOVER, max_jobs)}


async def test_a_job_that_cannot_be_settled_keeps_nobody_else_from_coming_back(conn: asyncpg.Connection) -> None:
    leases = [await run_one(conn) for _ in range(3)]
    await lapsed(conn, 5)
    refused = leases[1].job_id
    await conn.execute(f"alter table job_attempts add constraint refused check (job_id <> '{refused}')")
    assert await recovered(conn) == {lease.job_id: "queued" for lease in leases if lease.job_id != refused}
    assert await conn.fetchval("select count from repairs where kind = 'lapse-refused'") == 1
    assert await recovered(conn) == {}
    await conn.execute("alter table job_attempts drop constraint refused")
    await lapsed(conn, 5)
    assert await recovered(conn) == {refused: "queued"}


async def test_locked_jobs_leave_room_for_others(connect_as: ConnectAs) -> None:
    conn, other = await connect_as("superuser"), await connect_as("superuser")
    leases = [await run_one(conn) for _ in range(4)]
    await lapsed(conn, 5)
    async with other.transaction():
        first = [lease.job_id for lease in leases[:2]]
        await conn.execute("update leases set expires_at = now() - interval '1 hour' where job_id = any ($1)", first)
        await other.execute("select from jobs where id = any ($1) for update", first)
        assert await recovered(conn, 2) == {lease.job_id: "queued" for lease in leases[2:]}
    assert set(await recovered(conn, 2)) == set(first)


@pytest.mark.parametrize(("seconds", "judged"), [(-0.5, False), (0.0, True), (5.0, False)])
async def test_nothing_is_judged_unless_the_clock_shows_what_the_leader_last_saw(
    conn: asyncpg.Connection, seconds: float, judged: bool
) -> None:
    """Between a probe and the sweep the server may have stood still, or its clock been set, either way."""
    lease = await run_one(conn)
    await expire(conn, lease.job_id)
    clock = "clock_timestamp() - make_interval(secs => $1)"
    none = ", '{}'" * 5
    rows = await conn.fetch(f"select job_id, state from recover({clock}{none})", seconds)
    assert [tuple(row) for row in rows] == ([(lease.job_id, "queued")] if judged else [(None, "too-late")])
    assert await state_of(conn, lease.job_id) == ("queued" if judged else "running")

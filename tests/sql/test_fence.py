"""The fence is attempt and worker together: after a failover an attempt's number can be granted a second time."""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest

from tests.sql.factories import Lease, dump, expire, offences, run_one, settle, state_of, sweep

#: What may be said of an attempt, by whom, and what is answered when it is not the holder.
SETTLEMENTS: dict[str, dict[str, Any]] = {
    "complete": {},
    "fail": {"kinds": ["fatal"]},
    "snooze": {"delays": [60.0]},
    "hand_back": {"reason": "not run"},
    "stop": {"outcomes": ["canceled"]},
}


@pytest.mark.parametrize("stranger", ["w2", "", None])
@pytest.mark.parametrize("verb", SETTLEMENTS)
async def test_the_same_attempt_in_the_hands_of_another_worker_changes_nothing(
    conn: asyncpg.Connection, verb: str, stranger: Any
) -> None:
    lease = await run_one(conn)  # by w1
    before = await dump(conn)
    assert await settle(conn, verb, [lease], worker=stranger, **SETTLEMENTS[verb]) == ["lease-lost"]
    assert await dump(conn) == before
    assert await settle(conn, "complete", [lease]) == ["success"]
    assert await offences(conn) == []


@pytest.mark.parametrize("verb", ["complete", "fail"])
async def test_in_a_batch_only_attempts_of_other_workers_are_lost(conn: asyncpg.Connection, verb: str) -> None:
    mine, other = await run_one(conn), await run_one(conn)
    await conn.execute("update leases set worker = 'w2' where job_id = $1", other.job_id)
    details: dict[str, Any] = {"kinds": ["fatal"] * 2} if verb == "fail" else {}
    answers = await settle(conn, verb, [mine, other], **details)
    assert answers == ["success" if verb == "complete" else "dead", "lease-lost"]
    assert await state_of(conn, other.job_id) == "running"


@pytest.mark.parametrize("ends", ["later", "now"])
async def test_a_report_counts_only_for_the_holder_of_the_lease(conn: asyncpg.Connection, ends: str) -> None:
    lease = await run_one(conn)
    before = await dump(conn)
    assert (await _report(conn, "w2", lease, ends))["state"] == "lease-lost"
    assert (await _report(conn, None, lease, ends))["state"] == "lease-lost"
    assert await dump(conn) == before
    assert (await _report(conn, "w1", lease, ends))["duplicate"] is False
    # The number has counted, but not for w2; and for w1 it has, even though its attempt has ended.
    assert (await _report(conn, "w2", lease, ends))["state"] == "lease-lost"
    assert (await _report(conn, "w1", lease, ends))["duplicate"] is True


async def test_renewals_and_interrupts_are_only_for_the_holder_of_the_lease(conn: asyncpg.Connection) -> None:
    lease = await run_one(conn)
    await conn.execute("update leases set interrupt = 'cancel'")
    keys = [lease.job_id], [lease.attempt]
    assert await conn.fetch("select * from renew('w2', $1, $2)", *keys) == []
    assert await conn.fetch("select * from interrupted('w2', $1, $2)", *keys) == []
    assert len(await conn.fetch("select * from renew('w1', $1, $2)", *keys)) == 1
    assert len(await conn.fetch("select * from interrupted('w1', $1, $2)", *keys)) == 1


async def test_the_engine_itself_can_end_an_attempt_of_any_worker(conn: asyncpg.Connection) -> None:
    lease = await run_one(conn)
    await expire(conn, lease.job_id)
    assert await sweep(conn) == {lease.job_id: "queued"}


async def _report(conn: asyncpg.Connection, worker: str | None, lease: Lease, ends: str) -> asyncpg.Record:
    row = await conn.fetchrow(
        "select * from report($1, $2, $3, 1, progress => 1, ends => $4)", worker, lease.job_id, lease.attempt, ends
    )
    assert row is not None
    return row

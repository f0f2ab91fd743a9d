"""Jobs with very many attempts and events are erased and deleted in portions: nobody else waits for them."""

from __future__ import annotations

from itertools import pairwise
from uuid import UUID

import asyncpg
import pytest

from tests.sql.factories import enqueue, job_in, make_due, promote, request, state_of

_LEFT = (
    "select (select count(*) from job_attempts where traceback is not null)"
    " + (select count(*) from job_events where note is not null)"
)
_ROWS = "select (select count(*) from job_attempts) + (select count(*) from job_events)"


async def with_history(conn: asyncpg.Connection, rows: int) -> UUID:
    """An ended job that has snoozed and been paused so often."""
    job_id = await job_in(conn, "success")
    await conn.execute(
        "insert into job_attempts (job_id, attempt, started_at, outcome, worker, traceback)"
        " select $1, 1000 + n, now(), 'snoozed', 'w', 'a secret' from generate_series(1, $2) n",
        job_id,
        rows,
    )
    await conn.execute(
        "insert into job_events (job_id, event, note) select $1, 'paused', 'a secret' from generate_series(1, $2) n",
        job_id,
        rows,
    )
    return job_id


@pytest.mark.parametrize("rows", [0, 4_998, 5_000, 12_000])
async def test_a_job_is_erased_in_portions_and_others_are_canceled_meanwhile(
    conn: asyncpg.Connection, rows: int
) -> None:
    job_id = await with_history(conn, rows)
    assert await request(conn, "delete", job_id) == "accepted"
    erased = "select exists (select from job_events where job_id = $1 and event = 'erased')"
    left = [await conn.fetchval(_LEFT)]
    for _ in range(10):
        other = await enqueue(conn)
        assert await request(conn, "cancel", other) == "accepted"
        await conn.execute("select execute_requests()")
        assert await state_of(conn, other) == "canceled"
        left.append(await conn.fetchval(_LEFT))
        if await conn.fetchval(erased, job_id):
            break
        await make_due(conn, await conn.fetchval("select id from jobs where state = 'scheduled'"))
        await promote(conn)
    assert left[-1] == 0
    assert max(before - after for before, after in pairwise(left)) <= 10_000
    assert len(left) - 1 == rows // 5_000 + 1
    assert await conn.fetchval("select count(*) from erasures") == 0
    assert await conn.fetchval("select count(*) from job_attempts where job_id = $1", job_id) == rows + 1
    # A repeated request finds it done.
    assert await request(conn, "delete", job_id) == "accepted"
    await conn.execute("select execute_requests()")
    assert await conn.fetchval("select count(*) from job_events where job_id = $1 and event = 'erased'", job_id) == 1


async def test_a_job_with_a_long_history_is_deleted_in_portions(conn: asyncpg.Connection) -> None:
    job_id = await with_history(conn, 45_000)
    await conn.execute("update jobs set finished_at = finished_at - interval '8 days' where id = $1", job_id)
    steps = [await conn.fetchval(_ROWS)]
    while await state_of(conn, job_id) != "gone" and len(steps) < 20:
        await conn.execute("select * from retire_from()")
        steps.append(await conn.fetchval(_ROWS))
    assert steps[-1] == 0
    assert max(before - after for before, after in pairwise(steps)) <= 25_001
    assert len(steps) >= 5

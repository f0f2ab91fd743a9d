"""Texts that attempts leave behind are bounded for every caller; and a locked job holds up no sweep."""

from __future__ import annotations

import json

import asyncpg
import pytest

from tests.conftest import ConnectAs
from tests.sql.factories import claim, enqueue_copies, expire, run_one, settle, state_of, sweep

LIMIT = 1_048_576


@pytest.mark.parametrize("verb", ["complete", "report"])
async def test_a_result_larger_than_the_limit_is_refused(conn: asyncpg.Connection, verb: str) -> None:
    lease = await run_one(conn, "load")
    fits, too_much = json.dumps("x" * (LIMIT - 2)), json.dumps("x" * (LIMIT - 1))
    call = {
        "complete": "select state from complete('w1', array[$1::uuid], array[$2::integer], array[$3::text::jsonb])",
        "report": "select state from report('w1', $1, $2, 1, ends => 'now', result => $3::text::jsonb)",
    }[verb]
    with pytest.raises(asyncpg.PostgresError, match=rf"load takes {LIMIT + 1} bytes .*RESULT_MAX_BYTES \({LIMIT}\)"):
        await conn.fetchval(call, *lease, too_much)
    assert await state_of(conn, lease.job_id) == "running"
    assert await conn.fetchval(call, *lease, fits) == "success"


@pytest.mark.parametrize(
    ("items", "cursor"),
    [(None, "x" * LIMIT), ([{"data": "x" * LIMIT}], None), ([{"key": "k", "data": "x" * LIMIT}], 1)],
)
async def test_cursor_and_items_are_bounded_likewise(conn: asyncpg.Connection, items: object, cursor: object) -> None:
    lease = await run_one(conn)
    call = "select state from report('w1', $1, $2, 1, $3::text::jsonb, null, $4::text::jsonb)"
    with pytest.raises(asyncpg.PostgresError, match="RESULT_MAX_BYTES"):
        await conn.fetchval(call, *lease, json.dumps(items) if items else None, json.dumps(cursor))
    many = json.dumps([{"data": f"{n}" + "x" * 300_000} for n in range(10)])
    assert await conn.fetchval(call, *lease, many, '"x"') == "running"


async def test_texts_of_a_failure_are_cut_to_their_limit(conn: asyncpg.Connection) -> None:
    lease = await run_one(conn)
    much = ["x" * 1_000_000]
    await settle(conn, "fail", [lease], error_types=much, error_messages=much, tracebacks=much, log_excerpts=much)
    attempt = await conn.fetchrow("select * from job_attempts")
    assert attempt is not None
    lengths = [len(attempt[name]) for name in ("error_type", "error_message", "traceback", "log_excerpt")]
    assert lengths == [200, 10_000, 50_000, 10_000]
    assert len(await conn.fetchval("select last_error from jobs")) == 10_000
    done = await run_one(conn)
    await settle(conn, "complete", [done], log_excerpts=much)
    assert await conn.fetchval("select length(log_excerpt) from job_attempts where outcome = 'success'") == 10_000


async def test_a_job_that_somebody_has_locked_holds_up_no_sweep(
    conn: asyncpg.Connection, connect_as: ConnectAs
) -> None:
    jobs = await enqueue_copies(conn, 3)
    await claim(conn, limit=3)
    await expire(conn, *jobs)
    other = await connect_as("superuser")
    async with other.transaction():
        await other.execute("select from jobs where id = $1 for update", jobs[1])
        assert await sweep(conn) == {jobs[0]: "queued", jobs[2]: "queued"}
    assert await sweep(conn) == {jobs[1]: "queued"}

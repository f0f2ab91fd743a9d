"""Intake: options, refusals that leave nothing behind, and jobs that exist only if their transaction commits."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from tests.sql.factories import (
    claim,
    claim_by_id,
    dump,
    enqueue,
    enqueue_many,
    enqueue_row,
    execute,
    job_row,
    offences,
    publish,
    request,
    settle,
    state_of,
)


async def test_defaults(conn: asyncpg.Connection) -> None:
    row = await enqueue_row(conn, "email.send", {"to": "a@b"})
    assert (row["state"], row["outcome"]) == ("queued", "created")
    job = await job_row(conn, row["job_id"])
    assert (job["queue"], job["tenant"], job["priority"], job["attempt"], job["failures"]) == (
        "default", "default", 100, 0, 0,
    )  # fmt: skip
    details = await conn.fetchrow("select * from get_jobs($1)", [row["job_id"]])
    assert details is not None
    assert (details["correlation_id"], details["max_attempts"]) == (str(row["job_id"]), 3)


async def test_options_are_kept(conn: asyncpg.Connection) -> None:
    parent = await enqueue(conn, tenant="acme")
    options: dict[str, Any] = {
        "priority": 5, "idempotency_key": "k", "dedup_key": "d", "correlation_id": "c", "parent_id": parent,
        "max_attempts": 7, "target": "t", "queue": "q", "target_count": 9, "created_by": "me", "tenant": "acme",
    }  # fmt: skip
    job = await job_row(conn, await enqueue(conn, "email.send", **options))
    assert {name: job[name] for name in options} == options


async def test_a_child_has_the_correlation_of_its_parent_unless_it_is_given_another(conn: asyncpg.Connection) -> None:
    named, unnamed = await enqueue(conn, correlation_id="c"), await enqueue(conn)
    children = [
        await enqueue(conn, parent_id=named),
        await enqueue(conn, parent_id=unnamed),
        await enqueue(conn, parent_id=named, correlation_id="own"),
        await enqueue(conn),
    ]
    grandchild = await enqueue(conn, parent_id=children[1])
    found = [(await job_row(conn, child))["correlation_id"] for child in (*children, grandchild)]
    assert found == ["c", str(unnamed), "own", None, str(unnamed)]


async def test_a_parent_is_a_job_of_the_same_tenant(conn: asyncpg.Connection) -> None:
    for parent in (uuid4(), await enqueue(conn, tenant="other")):
        text = await refusal(conn, "select from enqueue('work', parent_id => $1)", parent)
        assert text == f"parent_id must be the id of a job of the same tenant; there is none with the id {parent}"


async def test_a_child_outlives_its_parent(conn: asyncpg.Connection) -> None:
    parent = await enqueue(conn)
    child = await enqueue(conn, parent_id=parent, idempotency_key="k")
    (lease,) = [lease for lease in await claim(conn, limit=2) if lease.job_id == child]
    await settle(conn, "fail", [lease], kinds=["fatal"])
    await conn.execute("set session_replication_role = replica")
    await conn.execute("delete from jobs where id = $1", parent)
    await conn.execute("set session_replication_role = default")
    assert await enqueue(conn, parent_id=parent, idempotency_key="k") == child
    again = await conn.fetchval("select request_id from request('retry', array[$1::uuid])", child)
    job = await job_row(conn, again)
    assert (job["parent_id"], job["correlation_id"]) == (parent, str(parent))


async def test_time_and_hold_choose_the_first_state(conn: asyncpg.Connection) -> None:
    soon = datetime.now(UTC) + timedelta(hours=1)
    assert (await enqueue_row(conn, run_at=soon))["state"] == "scheduled"
    assert (await enqueue_row(conn, delay=60.0))["state"] == "scheduled"
    assert (await enqueue_row(conn, run_at=soon - timedelta(hours=2)))["state"] == "queued"
    assert (await enqueue_row(conn, delay=0.0))["state"] == "queued"
    assert (await enqueue_row(conn, hold=True, delay=60.0))["state"] == "created"
    assert await offences(conn) == []


async def test_a_held_job_is_released_once_to_where_its_time_says(conn: asyncpg.Connection) -> None:
    now, later = await enqueue(conn, hold=True), await enqueue(conn, hold=True, delay=60.0)
    ids = [now, later, uuid4(), await enqueue(conn)]
    answers = {row["job_id"]: row["outcome"] for row in await conn.fetch("select * from release_held($1)", ids)}
    assert [answers[job_id] for job_id in ids] == ["released", "released", "not-found", "not-held"]
    assert (await state_of(conn, now), await state_of(conn, later)) == ("queued", "scheduled")
    assert [row["outcome"] for row in await conn.fetch("select outcome from release_held($1)", [now])] == ["not-held"]
    other = await conn.fetch("select outcome from release_held($1, only_tenant => 'other')", [now])
    assert [row["outcome"] for row in other] == ["not-found"]
    assert await offences(conn) == []


async def test_a_held_job_moves_only_when_it_is_released_or_canceled(conn: asyncpg.Connection) -> None:
    held, unwanted = await enqueue(conn, hold=True), await enqueue(conn, hold=True, target="t")
    before = await dump(conn)
    assert await claim(conn, limit=10) == []
    assert [await claim_by_id(conn, job_id) for job_id in (held, unwanted)] == [None, None]
    for duty in ("promote()", "elect()", "sweep(1e9)", "age()", "reconcile()", "drop_strays()", "headless_targets()"):
        await conn.execute(f"select {duty}")
    assert await dump(conn) == before
    await conn.execute("select release_held($1)", [held])
    await execute(conn, "cancel", unwanted)
    assert (await state_of(conn, held), await state_of(conn, unwanted)) == ("queued", "canceled")


async def test_a_published_type_gives_its_queue_and_budget(conn: asyncpg.Connection) -> None:
    await publish(conn, "email.send", queue="mail", max_attempts=9)
    job_id = await enqueue(conn, "email.send")
    details = await conn.fetchrow("select * from get_jobs($1)", [job_id])
    assert details is not None
    assert (details["queue"], details["max_attempts"]) == ("mail", 9)
    assert (await job_row(conn, await enqueue(conn, "email.send", queue="own")))["queue"] == "own"


NOT_STRINGS: tuple[Any, ...] = ([], {}, True, 7)
BAD_OPTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "unknown": ({"prio": 1}, "unknown option prio; known are priority"),
    "priority below": ({"priority": -1}, "priority"),
    "priority above": ({"priority": 1_000_000_001}, "priority"),
    "priority huge": ({"priority": 10**12}, "priority"),
    "priority fraction": ({"priority": 1.5}, "priority"),
    "priority text": ({"priority": "high"}, "priority"),
    "max_attempts": ({"max_attempts": 0}, "max_attempts must be 1 or more"),
    "max_attempts text": ({"max_attempts": "many"}, "max_attempts"),
    "key empty": ({"idempotency_key": ""}, "idempotency_key must be 1 to 255 visible ASCII characters"),
    "key blank": ({"idempotency_key": "a b"}, "idempotency_key"),
    "key accent": ({"idempotency_key": "é"}, "idempotency_key"),
    "key newline": ({"idempotency_key": "a\n"}, "idempotency_key"),
    "key long": ({"idempotency_key": "k" * 256}, "idempotency_key"),
    "dedup empty": ({"dedup_key": ""}, "dedup_key must have 1 to 255 characters"),
    "dedup long": ({"dedup_key": "k" * 256}, "dedup_key"),
    "correlation": ({"correlation_id": ""}, "correlation_id"),
    "target": ({"target": ""}, "target must have 1 to 255 characters"),
    "queue empty": ({"queue": ""}, "queue"),
    "queue reserved": ({"queue": "holdfast"}, "reserved"),
    "both times": ({"run_at": "2030-01-01T00:00:00Z", "delay": 1}, "give run_at or delay, not both"),
    "run_at garbage": ({"run_at": "tomorrowish"}, "run_at"),
    "run_at never": ({"run_at": "infinity"}, "run_at"),
    "delay text": ({"delay": "soon"}, "delay"),
    "delay endless": ({"delay": "infinity"}, "delay"),
    "delay nan": ({"delay": "NaN"}, "delay"),
    "delay too long": ({"delay": 1e300}, "delay"),
    "delay below": ({"delay": -1}, "delay must be a number of seconds, 0 or more"),
    "delay just below": ({"delay": -0.001}, "delay must be a number of seconds, 0 or more"),
    **{
        f"{name} {type(value).__name__}": ({name: value}, f"{name} must be a string")
        for name in ("idempotency_key", "dedup_key", "correlation_id", "target", "queue", "traceparent", "parent_id")
        for value in NOT_STRINGS
    },
    "run_at number": ({"run_at": 20300101}, "run_at must be a time with its zone"),
    "run_at list": ({"run_at": []}, "run_at must be a time with its zone"),
    "parent": ({"parent_id": "x"}, "parent_id"),
    "hold": ({"hold": "perhaps"}, "hold"),
    "target_count": ({"target_count": 0}, "target_count"),
    "target_count text": ({"target_count": "x"}, "target_count"),
    "retry_of is not for callers": ({"retry_of": str(uuid4())}, "unknown option retry_of"),
}


async def refusal(conn: asyncpg.Connection, statement: str, *arguments: object) -> str:
    """The text with which the engine refuses; nothing may have been written."""
    before = await dump(conn)
    with pytest.raises(asyncpg.PostgresError) as refused:
        await conn.fetch(statement, *arguments)
    assert refused.value.sqlstate == "HF002", str(refused.value)
    assert await dump(conn) == before
    return str(refused.value)


async def test_bad_options_are_refused_with_a_clear_text_and_leave_nothing(conn: asyncpg.Connection) -> None:
    for name, (options, text) in BAD_OPTIONS.items():
        with pytest.raises(asyncpg.PostgresError) as refused:
            await enqueue_many(conn, [("good", {}, None), ("bad", {}, options)])
        assert refused.value.sqlstate == "HF002", (name, refused.value)
        assert text in str(refused.value), name
    assert await conn.fetchval("select count(*) from jobs") == 0
    assert await conn.fetchval("select count(*) from streams") == 0


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ("array[''], array['{}'::jsonb]", "1 to 200 characters"),
        ("array[null], array['{}'::jsonb]", "1 to 200 characters"),
        ("array[repeat('x', 201)], array['{}'::jsonb]", "1 to 200 characters"),
        ("array['holdfast.cancel'], array['{}'::jsonb]", "reserved: holdfast.cancel"),
        ("array['a'], array['[]'::jsonb]", "the payload of a must be a JSON object"),
        ("array['a'], array[null::jsonb]", "the payload of a must be a JSON object"),
        ("array['a', 'b'], array['{}'::jsonb]", "same length"),
        ("array['a'], array['{}'::jsonb], array['{}'::jsonb, '{}'::jsonb]", "same length"),
        ("array['a'], array['{}'::jsonb], array['[]'::jsonb]", "options must be a JSON object"),
        ("array['a'], array['{}'::jsonb], tenant => ''", "tenant must have 1 to 200 characters"),
        ("array['a'], array['{}'::jsonb], tenant => null", "tenant must have 1 to 200 characters"),
        ("array['a', 'b'], array['{}'::jsonb, '{}'], ids => array_fill(gen_random_uuid(), array[2])", "ids"),
    ],
)
async def test_bad_batches_are_refused(conn: asyncpg.Connection, arguments: str, text: str) -> None:
    assert text in await refusal(conn, f"select * from enqueue_many({arguments})")


async def test_named_arguments_are_checked_alike(conn: asyncpg.Connection) -> None:
    assert "priority" in await refusal(conn, "select * from enqueue('a', priority => -1)")
    assert "run_at" in await refusal(conn, "select * from enqueue('a', run_at => 'infinity')")
    assert "delay" in await refusal(conn, "select * from enqueue('a', delay => 'infinity')")
    assert "delay" in await refusal(conn, "select * from enqueue('a', delay => -1)")


async def test_rollback_leaves_nothing(conn: asyncpg.Connection) -> None:
    before = await dump(conn)
    transaction = conn.transaction()
    await transaction.start()
    job_id = await enqueue(conn, target="t", idempotency_key="k")
    await enqueue(conn, delay=60.0)
    assert await request(conn, "cancel", job_id) == "accepted"
    assert await state_of(conn, job_id) == "queued"
    await transaction.rollback()
    assert await dump(conn) == before


async def test_a_given_id_makes_the_call_repeatable(conn: asyncpg.Connection) -> None:
    statement = "select job_id, outcome from enqueue_many(array[$2], array['{}'::jsonb], ids => array[$1::uuid])"
    job_id = uuid4()
    assert [tuple(r) for r in await conn.fetch(statement, job_id, "work")] == [(job_id, "created")]
    assert [tuple(r) for r in await conn.fetch(statement, job_id, "work")] == [(job_id, "existing")]
    assert "belongs to another job" in await refusal(conn, statement, job_id, "other")


async def test_a_batch_answers_in_order_and_keeps_it(conn: asyncpg.Connection) -> None:
    rows = await enqueue_many(conn, [("work", {"n": n}, {"idempotency_key": f"k{9 - n}"}) for n in range(10)])
    assert [row["item"] for row in rows] == list(range(1, 11))
    claimed = await claim(conn, limit=10)
    assert [lease.job_id for lease in claimed] == [row["job_id"] for row in rows]

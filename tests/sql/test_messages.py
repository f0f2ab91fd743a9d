"""What clients are told while a job is paused, held or canceled, and what stays among operators."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import asyncpg
import pytest

from tests.sql.factories import enqueue, publish, request, run_one, settle

INTERRUPTED = "Job was interrupted by user"


async def told(conn: asyncpg.Connection, job_id: UUID) -> tuple[str, str | None]:
    """The state and the message of a job, once maintenance has been by."""
    await conn.execute("select execute_requests()")
    row = await conn.fetchrow("select state, message from visible_jobs('{default}', array[$1::uuid])", job_id)
    assert row is not None
    return tuple(row)


@pytest.mark.parametrize(
    ("how", "more", "message"),
    [
        ("hold", {"kinds": ["hold"], "error_types": ["Hold"]}, "look at the invoice"),
        ("hold by another driver", {"kinds": ["hold"]}, "look at the invoice"),
        ("payload that does not fit", {"kinds": ["hold"], "error_types": ["InvalidPayload"]}, None),
        ("exception", {"error_types": ["KeyError"]}, None),
    ],
)
async def test_a_held_job_tells_what_hold_said_and_no_exceptions_text(
    conn: asyncpg.Connection, how: str, more: dict[str, Any], message: str | None
) -> None:
    await publish(conn, on_failure="hold")
    lease = await run_one(conn)
    assert await settle(conn, "fail", [lease], error_messages=["look at the invoice"], **more) == ["error"]
    assert await told(conn, lease.job_id) == ("error", message), how


async def test_the_message_of_hold_counts_even_if_a_pause_was_requested(conn: asyncpg.Connection) -> None:
    lease = await run_one(conn)
    await request(conn, "pause", lease.job_id, by="ada", note="a secret")
    await settle(conn, "fail", [lease], kinds=["hold"], error_types=["Hold"], error_messages=["no tokens left"])
    assert await told(conn, lease.job_id) == ("error", "no tokens left")


@pytest.mark.parametrize("running", [True, False])
@pytest.mark.parametrize(("verb", "state"), [("pause", "paused"), ("cancel", "canceled"), ("resolve", "canceled")])
async def test_an_operators_note_is_told_if_it_is_public_and_a_tenants_reason_always(
    conn: asyncpg.Connection, verb: str, state: str, running: bool
) -> None:
    found = {}
    for who in ("operator", "public", "tenant", "older server"):
        if who == "tenant" and verb == "resolve":
            continue
        lease = await run_one(conn) if running else None
        job_id = lease.job_id if lease else await enqueue(conn)
        statement = {
            "operator": "operator_request_as($1, $2, 'ada', 'why', null, null, false)",
            "public": "operator_request_as($1, $2, 'ada', 'why', null, null, true)",
            "tenant": "tenant_request('default', $1, $2, 'ada', 'why')",
            "older server": "operator_request($1, $2, 'ada', 'why')",
        }[who]
        await conn.execute(f"select {statement}", verb, job_id)
        if lease:
            await settle(conn, "stop", [lease], outcomes=[state], notes=[INTERRUPTED])
        found[who] = await told(conn, job_id)
        event = await conn.fetchrow("select by, note from job_events where job_id = $1", job_id)
        assert event is not None
        assert tuple(event) == ("ada", "why")
    # A running job that is paused was interrupted, whatever the reason.
    silent = INTERRUPTED if running and verb == "pause" else None
    expected = {"operator": silent, "public": "why", "tenant": "why", "older server": silent}
    assert found == {who: (state, expected[who]) for who in found}


async def test_clients_do_not_see_an_exception_raised_during_a_pause(conn: asyncpg.Connection) -> None:
    lease = await run_one(conn)
    await request(conn, "pause", lease.job_id)
    assert await settle(conn, "fail", [lease], error_messages=["secret"]) == ["paused"]
    assert await told(conn, lease.job_id) == ("paused", None)


async def test_a_drain_says_that_the_job_was_interrupted_and_names_the_worker(conn: asyncpg.Connection) -> None:
    lease = await run_one(conn)
    assert await settle(conn, "stop", [lease], outcomes=["paused"], notes=[INTERRUPTED]) == ["paused"]
    assert await told(conn, lease.job_id) == ("paused", INTERRUPTED)
    event = await conn.fetchrow("select by, note from job_events where job_id = $1", lease.job_id)
    assert event is not None
    assert tuple(event) == ("w1", INTERRUPTED)


async def test_a_message_ends_with_its_state(conn: asyncpg.Connection) -> None:
    job_id = await enqueue(conn)
    for verb, expected in (
        ("pause", ("paused", "first")),
        ("resume", ("queued", None)),
        ("cancel", ("canceled", None)),
    ):
        note = "first" if verb == "pause" else None
        await conn.execute("select tenant_request('default', $1, $2, 'ada', $3)", verb, job_id, note)
        assert await told(conn, job_id) == expected

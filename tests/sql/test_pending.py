"""Decisions about jobs that wait: they bind from their acknowledgement, whatever happens before maintenance comes."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from tests.conftest import ConnectAs
from tests.sql.factories import (
    Lease,
    blocked,
    claim,
    claim_by_id,
    enqueue,
    enqueue_copies,
    expire,
    job_in,
    job_row,
    make_due,
    offences,
    promote,
    request,
    run_one,
    settle,
    state_of,
    sweep,
    walk,
)
from tests.sql.test_by_hand import BECOMES, ENDINGS, ERRORS, act, carry_out_all

ASK = "select outcome from operator_request_as($1, $2, $3, $4, null, null, false)"


async def decide(conn: asyncpg.Connection, verb: str, job_id: UUID, by: str = "ada") -> tuple[Any, ...]:
    """Decide something that maintenance has yet to carry out; the answer."""
    if verb in ERRORS:
        return tuple(await act(conn, verb, job_id, f"{by} says so", by=by))
    return (await conn.fetchval(ASK, verb, job_id, by, f"{by} says so"),)


async def events(conn: asyncpg.Connection, job_id: UUID) -> list[tuple[Any, ...]]:
    rows = await conn.fetch("select event, by, note from job_events where job_id = $1 order by id", job_id)
    return [tuple(row) for row in rows]


async def answers(conn: asyncpg.Connection) -> dict[str, str]:
    """What became of each request, by its verb."""
    rows = await conn.fetch("select type, result from jobs where queue = 'holdfast' and result is not null")
    return {row["type"].removeprefix("holdfast."): json.loads(row["result"])["outcome"] for row in rows}


async def pending(conn: asyncpg.Connection) -> int:
    count: int = await conn.fetchval("select count(*) from pending_decisions")
    return count


@pytest.mark.parametrize("verb", ["cancel", "resolve", "pause", "delete"])
async def test_what_was_accepted_decides_however_the_next_attempt_ends(conn: asyncpg.Connection, verb: str) -> None:
    becomes = {"delete": "canceled"} | BECOMES
    for ending, more in ENDINGS:
        if ending == "stop" or more.get("kinds") == ["hold"]:  # nobody told it to stop; see below
            continue
        job_id = await enqueue(conn, max_attempts=1)
        assert await decide(conn, verb, job_id) == ("accepted",)
        (lease,) = await claim(conn)
        assert await settle(conn, ending, [lease], **more) == [becomes[verb]], ending
        event = "resolved" if verb == "resolve" else becomes[verb]
        assert await events(conn, job_id) == [(event, "ada", "ada says so")]
        await conn.execute("select execute_requests()")
        assert await state_of(conn, job_id) == becomes[verb]
        assert await answers(conn) == {
            "cancel" if verb == "resolve" else verb: "erased" if verb == "delete" else "at-settlement"
        }
        if verb == "resolve":
            assert (await job_row(conn, job_id))["reason"] == "resolved"
    assert await conn.fetchval("select count(*) from dead_letters") == 0
    assert await pending(conn) == 0
    assert await offences(conn) == []


@pytest.mark.parametrize("verb", ["cancel", "pause"])
async def test_it_decides_when_the_worker_is_gone(conn: asyncpg.Connection, verb: str) -> None:
    job_id = await enqueue(conn, max_attempts=1)
    await decide(conn, verb, job_id)
    (lease,) = await claim(conn)
    await expire(conn, job_id)
    assert await sweep(conn) == {job_id: BECOMES[verb]}
    assert await settle(conn, "complete", [lease]) == ["lease-lost"]


async def test_a_success_that_is_committed_first_wins_and_the_history_names_the_decision(
    conn: asyncpg.Connection,
) -> None:
    for verb in ("cancel", "resolve", "pause"):
        job_id = await enqueue(conn)
        await decide(conn, verb, job_id)
        (lease,) = await claim(conn)
        assert await settle(conn, "complete", [lease]) == ["success"]
        await conn.execute("select execute_requests()")
        assert await state_of(conn, job_id) == "success"
        assert await events(conn, job_id) == [("too-late", "ada", f"{verb}: ada says so")]
    assert await answers(conn) == {"cancel": "already-final", "pause": "already-final"}
    assert await pending(conn) == 0
    # What is erased is not written down again.
    job_id = await enqueue(conn)
    await decide(conn, "cancel", job_id)
    (lease,) = await claim(conn)
    await settle(conn, "complete", [lease])
    await conn.execute("select forgotten($1, 'me')", job_id)
    await conn.execute("select execute_requests()")
    assert await events(conn, job_id) == [("erased", "me", None), ("too-late", "ada", "cancel")]


async def test_a_handler_that_holds_its_job_delays_the_decision_and_does_not_lose_it(conn: asyncpg.Connection) -> None:
    job_id = await enqueue(conn)
    await decide(conn, "cancel", job_id)
    (lease,) = await claim(conn)
    assert await settle(conn, "fail", [lease], kinds=["hold"]) == ["error"]
    await conn.execute("select execute_requests()")
    assert (await state_of(conn, job_id), await pending(conn)) == ("canceled", 0)


#: A decision about a queued job, one about its attempt, and which of them holds.
MEETINGS = [
    ("cancel", "kill", "cancel"), ("cancel", "fail", "cancel"), ("cancel", "retry", "cancel"),
    ("cancel", "resolve", "cancel"), ("resolve", "cancel", "resolve"), ("resolve", "kill", "resolve"),
    ("cancel", "pause", "cancel"), ("pause", "cancel", "cancel"), ("pause", "kill", "kill"), ("pause", "fail", "fail"),
    ("pause", "pause", "pause"), ("cancel", "cancel", "cancel"),
]  # fmt: skip


@pytest.mark.parametrize("executed", ["before", "after"])
@pytest.mark.parametrize(("first", "second", "holds"), MEETINGS)
async def test_the_first_one_holds_also_if_nobody_ran_the_job_yet(
    conn: asyncpg.Connection, first: str, second: str, holds: str, executed: str
) -> None:
    job_id = await enqueue(conn, max_attempts=1)
    await decide(conn, first, job_id)
    (lease,) = await claim(conn)
    answer = await decide(conn, second, job_id, "bob")
    late = second in ERRORS and second != holds
    assert answer == ("overruled", "running", holds, "ada") if late else answer[0] == "accepted"
    told = await conn.fetch("select interrupt from interrupted('w1', $1, $2)", [job_id], [lease.attempt])
    assert [row["interrupt"] for row in told] == ["pause" if holds == "pause" else "cancel"], "the worker knows"
    if executed == "before":
        await conn.execute("select execute_requests(100)")
    assert await settle(conn, "fail", [lease], kinds=["fatal"]) == [BECOMES[holds]]
    await conn.execute("select execute_requests(100)")
    who = "ada" if holds == first else "bob"
    assert (await events(conn, job_id))[0][1:] == (who, f"{who} says so")
    assert await state_of(conn, job_id) == BECOMES[holds]
    assert await pending(conn) == 0
    assert await offences(conn) == []


async def test_a_pause_that_was_accepted_outlives_a_failure_with_a_retry(conn: asyncpg.Connection) -> None:
    job_id = await enqueue(conn)
    await decide(conn, "pause", job_id)
    (lease,) = await claim(conn)
    assert (await decide(conn, "retry", job_id, "bob"))[0] == "accepted"
    assert await settle(conn, "stop", [lease], outcomes=["canceled"]) == ["retry"]
    await carry_out_all(conn)
    assert (await state_of(conn, job_id), await pending(conn)) == ("paused", 0)


async def test_a_job_that_was_paused_at_its_settlement_and_resumed_is_not_paused_again(
    conn: asyncpg.Connection,
) -> None:
    job_id = await enqueue(conn)
    for _ in range(2):
        await decide(conn, "pause", job_id)
    (lease,) = await claim(conn)
    assert await settle(conn, "hand_back", [lease]) == ["paused"]
    await conn.execute("select carry_out('resume', $1, null, null, null, null)", job_id)
    assert await claim(conn) == [Lease(job_id, 2)]
    await conn.execute("select execute_requests(100)")
    assert await conn.fetch("select from interrupted('w1', $1, $2)", [job_id], [2]) == []
    assert await settle(conn, "fail", [Lease(job_id, 2)]) == ["retry"]


@pytest.mark.parametrize("verb", ["kill", "fail"])
async def test_a_verdict_about_a_job_that_waits_for_its_retry_binds_its_next_attempt(
    conn: asyncpg.Connection, verb: str
) -> None:
    job_id = await job_in(conn, "retry")
    assert (await decide(conn, verb, job_id))[0] == "accepted"
    await make_due(conn, job_id)
    await promote(conn)
    (lease,) = await claim(conn)
    assert await settle(conn, "fail", [lease]) == ["dead"]
    await carry_out_all(conn)
    assert (await answers(conn), await pending(conn)) == ({verb: "at-settlement"}, 0)
    letter = await conn.fetchrow("select error_type, error_message from dead_letters where job_id = $1", job_id)
    assert letter is not None
    assert tuple(letter) == (ERRORS[verb], "ada says so")
    assert await offences(conn) == []


async def test_a_verdict_about_a_job_that_is_to_be_canceled_is_told_so(conn: asyncpg.Connection) -> None:
    for state in ("retry", "error"):
        job_id = await job_in(conn, state)
        await decide(conn, "cancel", job_id)
        assert await decide(conn, "kill", job_id, "bob") == ("overruled", state, "cancel", "ada")
        await conn.execute("select execute_requests(100)")
        assert await state_of(conn, job_id) == "canceled"
    # A pause gives way.
    job_id = await job_in(conn, "retry")
    await decide(conn, "pause", job_id)
    assert (await decide(conn, "kill", job_id, "bob"))[0] == "accepted"


async def test_maintenance_does_not_carry_out_the_later_decision_first(conn: asyncpg.Connection) -> None:
    ids = await enqueue_copies(conn, 101)
    # So many at once come after all others.
    await conn.execute("select request('cancel', $1, 'ada')", ids)
    await decide(conn, "resolve", ids[0], "bob")
    while await conn.fetchval("select execute_requests(20)"):
        pass
    assert [event[:2] for event in await events(conn, ids[0])] == [("canceled", "ada")]
    await carry_out_all(conn)
    assert await pending(conn) == 0
    # But one that has to wait for an attempt delays no other.
    job_id = await job_in(conn, "retry")
    await decide(conn, "kill", job_id)
    await make_due(conn, job_id)
    await promote(conn)
    await conn.execute("select execute_requests()")
    await decide(conn, "cancel", job_id, "bob")
    await conn.execute("select execute_requests()")
    assert await state_of(conn, job_id) == "canceled"
    await carry_out_all(conn)
    assert await events(conn, job_id) == [("canceled", "bob", "bob says so"), ("too-late", "ada", "kill: ada says so")]


async def test_a_decision_in_a_longer_transaction_binds_from_its_commit(connect_as: ConnectAs) -> None:
    worker, client = await connect_as("worker"), await connect_as("api")
    lease = await run_one(worker, max_attempts=1)
    async with client.transaction():
        await client.execute("select request('cancel', array[$1::uuid], 'me', at_once => false)", lease.job_id)
        assert await settle(worker, "fail", [await run_one(worker, "other", max_attempts=1)]) == ["dead"], "no waiting"
    assert await settle(worker, "fail", [lease]) == ["canceled"]


async def test_a_job_is_not_claimed_while_a_decision_about_it_is_under_way(connect_as: ConnectAs) -> None:
    """An attempt that began and ended before the commit would not have seen it."""
    worker, client = await connect_as("worker"), await connect_as("superuser")
    job_id, other = await enqueue(worker), await enqueue(worker)
    async with client.transaction():
        await decide(client, "cancel", job_id)
        assert await claim(worker, limit=2) == [Lease(other, 1)]
    assert await claim(worker, limit=2) == [Lease(job_id, 1)]
    assert await settle(worker, "fail", [Lease(job_id, 1)], kinds=["fatal"]) == ["canceled"]
    # Whoever has locked a job for long is not waited for.
    third = await enqueue(worker)
    async with client.transaction():
        await client.execute("select from jobs where id = $1 for update", third)
        assert await request(worker, "cancel", third) == "accepted"
    assert await offences(client) == []


async def test_who_meets_a_settlement_under_way_is_told_how_it_ended(connect_as: ConnectAs) -> None:
    worker, client = await connect_as("worker"), await connect_as("superuser")
    for ending in ("complete", "fail"):
        lease = await run_one(worker, max_attempts=1)
        async with worker.transaction():
            await settle(worker, ending, [lease])
            asking = asyncio.create_task(request(client, "cancel", lease.job_id))
            await blocked(worker, client)
        assert await asking == "already-final"
    assert await pending(client) == 0


async def test_a_settlement_does_not_wait_for_maintenance_that_has_locked_the_decision(connect_as: ConnectAs) -> None:
    worker, leader = await connect_as("worker"), await connect_as("superuser")
    job_id = await enqueue(leader, max_attempts=1)
    await decide(leader, "cancel", job_id)
    (lease,) = await claim(worker)
    async with leader.transaction():
        await leader.execute("select from pending_decisions for update")
        assert await settle(worker, "fail", [lease]) == ["canceled"]
    await leader.execute("select execute_requests()")
    assert (await answers(leader), await pending(leader)) == ({"cancel": "already-final"}, 0)
    assert len(await events(leader, job_id)) == 1


async def test_a_repeat_is_one_decision(conn: asyncpg.Connection) -> None:
    job_id = await enqueue(conn)
    for by in ("ada", "bob", "eve"):
        await decide(conn, "cancel", job_id, by)
    assert await pending(conn) == 1
    await claim(conn)
    await decide(conn, "cancel", job_id, "bob")
    assert await conn.fetchval("select interrupted_by from leases") == "ada"


async def test_a_decision_whose_request_was_ended_by_hand_is_dropped(conn: asyncpg.Connection) -> None:
    job_id = await enqueue(conn)
    await decide(conn, "cancel", job_id)
    await decide(conn, "pause", job_id)
    await conn.execute(
        "set session_replication_role = replica; update jobs set state = 'canceled', finished_at = now(), dedup_key ="
        " null where type = 'holdfast.cancel'; delete from ready where job_id in (select id from jobs where type ="
        " 'holdfast.cancel'); set session_replication_role = default"
    )
    assert ("a pending decision has a request", job_id) in await offences(conn)
    assert await walk(conn, "drop_stray_leases") == 1
    assert await pending(conn) == 1
    assert await offences(conn) == []
    await conn.execute("select execute_requests()")
    assert await state_of(conn, job_id) == "paused"


async def test_a_request_that_fails_leaves_no_decision(conn: asyncpg.Connection) -> None:
    job_id = await enqueue(conn)
    await decide(conn, "cancel", job_id)
    async with conn.transaction():
        await conn.execute(
            "create function broken() returns trigger language plpgsql as $$ begin raise 'broken'; end $$;"
            "create trigger broken before insert on job_events for each row execute function broken()"
        )
        await conn.execute("select execute_requests()")
        await conn.execute("drop function broken cascade")
    assert await conn.fetchval("select state from jobs where type = 'holdfast.cancel'") == "dead"
    assert (await state_of(conn, job_id), await pending(conn)) == ("queued", 0)


async def test_what_is_pending_is_explained(conn: asyncpg.Connection) -> None:
    job_id = await enqueue(conn)
    await decide(conn, "cancel", job_id)
    said = '; a request to cancel it by ada ("ada says so") was accepted, but no process does maintenance'
    for _ in range(2):
        assert said in await conn.fetchval("select sentence from explain($1, null)", job_id)
        await claim_by_id(conn, job_id)

"""Requests: what may be asked of a job in each state, what becomes of it, and that none holds up another."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from uuid import UUID, uuid4

import asyncpg
import pytest

from holdfast.model.states import State
from tests.conftest import ConnectAs
from tests.sql.factories import (
    Lease,
    blocked,
    claim,
    claim_by_id,
    dump,
    elect,
    enqueue,
    execute,
    job_in,
    job_row,
    make_due,
    offences,
    promote,
    request,
    run_one,
    settle,
    state_of,
)
from tests.sql.test_letters import died

#: verb → state → (answer, state after maintenance)
EXPECTED: dict[str, dict[str, tuple[str, str]]] = {
    "cancel": {
        "created": ("accepted", "canceled"), "scheduled": ("accepted", "canceled"),
        "queued": ("accepted", "canceled"), "running": ("accepted", "running"), "retry": ("accepted", "canceled"),
        "paused": ("accepted", "canceled"), "error": ("accepted", "canceled"),
        "success": ("already-final", "success"), "dead": ("already-final", "dead"),
        "canceled": ("already-final", "canceled"),
    },
    "pause": {
        "created": ("not-possible", "created"), "scheduled": ("accepted", "paused"), "queued": ("accepted", "paused"),
        "running": ("accepted", "running"), "retry": ("accepted", "paused"), "paused": ("accepted", "paused"),
        "error": ("not-possible", "error"), "success": ("already-final", "success"),
        "dead": ("already-final", "dead"), "canceled": ("already-final", "canceled"),
    },
    "resume": {
        "created": ("not-possible", "created"), "scheduled": ("not-possible", "scheduled"),
        "queued": ("not-possible", "queued"), "running": ("not-possible", "running"),
        "retry": ("not-possible", "retry"), "paused": ("accepted", "queued"), "error": ("accepted", "queued"),
        "success": ("already-final", "success"), "dead": ("already-final", "dead"),
        "canceled": ("already-final", "canceled"),
    },
    "retry": {
        "created": ("not-possible", "created"), "scheduled": ("accepted", "queued"), "queued": ("accepted", "queued"),
        "running": ("not-possible", "running"), "retry": ("accepted", "queued"), "paused": ("accepted", "queued"),
        "error": ("accepted", "queued"), "success": ("new-job", "success"), "dead": ("new-job", "dead"),
        "canceled": ("new-job", "canceled"),
    },
    "delete": {
        "created": ("accepted", "canceled"), "scheduled": ("accepted", "canceled"),
        "queued": ("accepted", "canceled"), "running": ("accepted", "running"), "retry": ("accepted", "canceled"),
        "paused": ("accepted", "canceled"), "error": ("accepted", "canceled"), "success": ("accepted", "success"),
        "dead": ("accepted", "dead"), "canceled": ("accepted", "canceled"),
    },
}  # fmt: skip


@pytest.mark.parametrize("target", [None, "t"])
@pytest.mark.parametrize("verb", EXPECTED)
async def test_every_request_in_every_state(conn: asyncpg.Connection, verb: str, target: str | None) -> None:
    found: dict[str, tuple[str, str]] = {}
    for state in State:
        job_id = await job_in(conn, state, state, target=target and f"{target}-{state}")
        answer = await execute(conn, verb, job_id)
        found[state] = (answer, await state_of(conn, job_id))
        await elect(conn)
    assert found == EXPECTED[verb]
    assert await offences(conn) == []


async def test_a_request_is_recorded_as_a_job_of_its_own_with_who_and_why(conn: asyncpg.Connection) -> None:
    job_id = await enqueue(conn, tenant="acme")
    row = await conn.fetchrow("select * from request('cancel', array[$1::uuid], 'me', 'why')", job_id)
    assert row is not None
    recorded = await job_row(conn, row["request_id"])
    assert (recorded["type"], recorded["tenant"], recorded["created_by"]) == ("holdfast.cancel", "acme", "me")
    await conn.execute("select execute_requests()")
    assert await state_of(conn, row["request_id"]) == "success"
    event = await conn.fetchrow("select event, by, note from job_events where job_id = $1", job_id)
    assert event is not None
    assert tuple(event) == ("canceled", "me", "why")


async def test_a_running_job_is_flagged_at_once_and_moved_when_its_handler_ended(conn: asyncpg.Connection) -> None:
    for verb, state in (("cancel", "canceled"), ("pause", "paused")):
        lease = await run_one(conn)
        await request(conn, verb, lease.job_id)
        rows = await conn.fetch("select interrupt from renew('w1', $1, $2)", [lease.job_id], [1])
        assert [row["interrupt"] for row in rows] == [verb]
        assert await settle(conn, "stop", [lease], outcomes=[state]) == [state]


async def test_a_request_that_flagged_an_attempt_never_hits_what_comes_after_it(conn: asyncpg.Connection) -> None:
    held = await run_one(conn)
    await request(conn, "cancel", held.job_id)
    assert await settle(conn, "fail", [held], kinds=["hold"]) == ["error"]
    paused = await run_one(conn)
    await request(conn, "pause", paused.job_id)
    await settle(conn, "stop", [paused], outcomes=["paused"])
    # Resumed, and running again, before maintenance comes to the pause.
    await conn.execute("select carry_out('resume', $1, null, null, null, null)", paused.job_id)
    again = await claim_by_id(conn, paused.job_id)
    await conn.execute("select execute_requests()")
    assert await state_of(conn, held.job_id) == "error"
    assert again is not None
    assert await conn.fetch("select from interrupted('w1', $1, $2)", [again.job_id], [again.attempt]) == []


@pytest.mark.parametrize("state", ["paused", "error"])
async def test_a_resumed_job_is_claimed_with_a_clean_flag_and_a_fresh_lease(
    conn: asyncpg.Connection, state: str
) -> None:
    stopped = await run_one(conn, target="t")
    await request(conn, "pause", stopped.job_id)
    if state == "paused":
        assert await settle(conn, "stop", [stopped], outcomes=["paused"]) == ["paused"]
    else:
        assert await settle(conn, "fail", [stopped], kinds=["hold"]) == ["error"]
    await conn.execute("select execute_requests()")
    assert await execute(conn, "resume", stopped.job_id) == "accepted"
    assert await state_of(conn, stopped.job_id) == "queued"
    assert await claim(conn, worker="w2") == [Lease(stopped.job_id, 2)]
    lease = await conn.fetchrow(
        "select worker, interrupt, extract(epoch from expires_at - claimed_at)::integer, claimed_at = updated_at "
        "from leases join jobs on id = job_id"
    )
    assert lease is not None
    assert tuple(lease) == ("w2", None, 30, True)


async def test_delete_erases_what_the_job_was_about_and_keeps_the_tombstone(conn: asyncpg.Connection) -> None:
    lease = await run_one(conn, payload={"secret": 1}, idempotency_key="k")
    secret = ["secret"]
    await settle(conn, "fail", [lease], kinds=["fatal"], error_messages=secret, tracebacks=secret, log_excerpts=secret)
    assert await execute(conn, "delete", lease.job_id) == "accepted"
    held = await run_one(conn, payload={"secret": 2})
    await settle(conn, "fail", [held], kinds=["hold"], error_messages=secret)
    assert await execute(conn, "delete", held.job_id) == "accepted"
    everything = await dump(conn)
    assert [row for rows in everything.values() for row in rows if "secret" in row] == []
    job = await job_row(conn, lease.job_id)
    assert (job["state"], job["payload"], job["result"], job["idempotency_key"]) == ("dead", "{}", None, "k")
    assert await execute(conn, "delete", lease.job_id) == "accepted"
    assert await conn.fetchval("select count(*) from job_events where event = 'erased'") == 2, "one for each job"


async def test_delete_of_a_running_job_comes_back_until_it_has_ended(conn: asyncpg.Connection) -> None:
    lease = await run_one(conn, payload={"secret": 1})
    assert await execute(conn, "delete", lease.job_id) == "accepted"
    (waiting,) = await conn.fetch("select id, state from jobs where type = 'holdfast.delete'")
    assert waiting["state"] == "scheduled"
    assert await settle(conn, "stop", [lease], outcomes=["canceled"]) == ["canceled"]
    await make_due(conn, waiting["id"])
    await promote(conn)
    await conn.execute("select execute_requests()")
    assert (await job_row(conn, lease.job_id))["payload"] == "{}"
    assert await state_of(conn, waiting["id"]) == "success"


async def test_a_repeat_of_cancel_or_delete_is_the_same_request(conn: asyncpg.Connection) -> None:
    async def ask(verb: str, job_id: UUID) -> UUID:
        row = await conn.fetchrow("select outcome, request_id from request($1, array[$2::uuid], 'me')", verb, job_id)
        assert row is not None
        assert row["outcome"] == "accepted"
        return UUID(str(row["request_id"]))

    lease = await run_one(conn)
    waiting = await enqueue(conn, "other")
    for verb in ("cancel", "delete"):
        for job_id in (lease.job_id, waiting):
            assert len({await ask(verb, job_id) for _ in range(5)}) == 1
    # What can be taken back is asked for as often as it is wished.
    assert len({await ask("pause", waiting) for _ in range(2)}) == 2
    await conn.execute("select execute_requests(100)")
    (erasing,) = await conn.fetch("select id, attempt from jobs where type = 'holdfast.delete' and state = 'scheduled'")
    assert {await ask("delete", lease.job_id) for _ in range(5)} == {erasing["id"]}
    await conn.execute("select execute_requests(100)")
    assert await conn.fetchval("select count(*) from job_attempts where job_id = $1", erasing["id"]) == 1
    # The request for an attempt that has ended says nothing of the next one.
    held = await run_one(conn, "held")
    first = await ask("cancel", held.job_id)
    assert await settle(conn, "fail", [held], kinds=["hold"]) == ["error"]
    assert await ask("cancel", held.job_id) != first
    await conn.execute("select execute_requests(100)")
    assert await state_of(conn, held.job_id) == "canceled"
    assert await offences(conn) == []


async def test_a_delete_looks_ever_more_rarely_at_a_handler_that_runs_on(conn: asyncpg.Connection) -> None:
    async def looks() -> AsyncIterator[float]:
        while True:
            await conn.execute("select execute_requests()")
            row = await conn.fetchrow(
                "select id, extract(epoch from run_at - updated_at)::float as delay"
                " from jobs where type = 'holdfast.delete' and state = 'scheduled'"
            )
            if row is None:
                return
            yield row["delay"]
            await make_due(conn, row["id"])
            await promote(conn)

    lease = await run_one(conn)
    await request(conn, "delete", lease.job_id)
    delays = []
    async for delay in looks():
        delays.append(delay)
        if len(delays) == 10:
            break
    assert delays == [0.5, 1, 2, 4, 8, 16, 32, 60, 60, 60]
    await conn.execute(
        "insert into job_items (job_id, id, tenant, collection, key, data)"
        " select $1, n, 'default', 'c', n::text, '1' from generate_series(1, 35000) n",
        lease.job_id,
    )
    await settle(conn, "complete", [lease])
    # But not, once the handler has ended, at its own work: what is erased in several steps is erased without delay.
    assert [delay async for delay in looks()] == [delays[-1], 0.5, 0.5, 0.5]
    assert await conn.fetchval("select count(*) from job_items") == 0


async def test_retry_of_an_ended_job_is_a_new_job_that_points_to_the_old_one(conn: asyncpg.Connection) -> None:
    old = await job_in(conn, "dead", payload={"n": 1}, priority=5, idempotency_key="k", target="t")
    new = await conn.fetchval("select request_id from request('retry', array[$1::uuid])", old)
    job = await job_row(conn, new)
    assert (job["retry_of"], job["payload"], job["priority"], job["target"], job["idempotency_key"]) == (
        old, '{"n": 1}', 5, "t", None,
    )  # fmt: skip
    assert (job["correlation_id"], job["state"]) == (str(old), "queued")
    assert await state_of(conn, old) == "dead"


async def test_resumed_jobs_have_their_whole_budget_again(conn: asyncpg.Connection) -> None:
    lease = await run_one(conn, max_attempts=2)
    await settle(conn, "fail", [lease], kinds=["hold"])
    await execute(conn, "resume", lease.job_id)
    assert await settle(conn, "fail", await claim(conn)) == ["retry"]


async def test_requests_are_reserved(conn: asyncpg.Connection) -> None:
    job_id = await enqueue(conn)
    recorded = await conn.fetchval("select request_id from request('cancel', array[$1::uuid])", job_id)
    assert await request(conn, "cancel", recorded) == "not-found"
    assert await request(conn, "cancel", uuid4()) == "not-found"
    assert await request(conn, "cancel", job_id, only_tenant="other") == "not-found"
    streams = await conn.fetch("select type from eligible_streams(array['holdfast.cancel', 'work'])")
    assert [row["type"] for row in streams] == ["work"]
    with pytest.raises(asyncpg.PostgresError) as refused:
        await request(conn, "explode", job_id)
    assert refused.value.sqlstate == "HF002"


async def test_a_request_that_raises_is_buried_and_holds_up_no_other(conn: asyncpg.Connection) -> None:
    jobs = [await enqueue(conn) for _ in range(3)]
    for job_id in jobs:
        await request(conn, "cancel", job_id)
    spoil = "update jobs set payload = '{\"job_id\": \"nonsense\"}' where payload ->> 'job_id' = $1"
    await conn.execute(spoil, str(jobs[1]))
    assert await conn.fetchval("select execute_requests()") == 3
    assert [await state_of(conn, job_id) for job_id in jobs] == ["canceled", "queued", "canceled"]
    states = await conn.fetch("select state from jobs where type = 'holdfast.cancel' order by id")
    assert [row["state"] for row in states] == ["success", "dead", "success"]
    assert await offences(conn) == []


async def test_a_request_that_meets_a_deadlock_is_executed_later_and_not_lost(connect_as: ConnectAs) -> None:
    maintenance, other = await connect_as("superuser"), await connect_as("superuser")
    first, second = await run_one(other, target="a"), await run_one(other, target="b")
    waiting = await enqueue(other, target="a")
    for job_id in (waiting, second.job_id):
        assert await request(other, "cancel", job_id, at_once=False) == "accepted"
    await maintenance.execute("set deadlock_timeout = '300ms'")
    await other.execute("set deadlock_timeout = '20s'")
    async with other.transaction():
        await other.execute("select from leases where job_id = $1 for update", second.job_id)
        execution = asyncio.create_task(maintenance.execute("select execute_requests()"))
        await blocked(other, maintenance)
        await other.execute("select from heads where target = 'a' for update")
    await execution
    assert await other.fetchval("select count(*) from dead_letters") == 0
    due = await other.fetch("select job_id from due")
    assert len(due) == 1
    await make_due(other, due[0]["job_id"])
    await promote(other)
    await other.execute("select execute_requests()")
    assert await state_of(other, waiting) == "canceled"
    assert await other.fetchval("select interrupt from leases where job_id = $1", second.job_id) == "cancel"
    assert await state_of(other, first.job_id) == "running"


async def test_a_waiting_job_that_a_claim_holds_is_asked_again(connect_as: ConnectAs) -> None:
    worker, maintenance = await connect_as("worker"), await connect_as("worker")
    admin = await connect_as("superuser")
    job_id = await enqueue(worker)
    await maintenance.execute("set lock_timeout = '1s'")
    async with worker.transaction():
        (lease,) = await claim(worker)
        await execute(maintenance, "cancel", job_id)
    again = await admin.fetchval("select job_id from due")
    await make_due(admin, again)
    await promote(maintenance)
    await maintenance.execute("select execute_requests()")
    assert await settle(worker, "fail", [lease]) == ["canceled"]
    assert await offences(admin) == []


async def test_requests_for_several_jobs_take_them_in_one_order(
    conn: asyncpg.Connection, connect_as: ConnectAs
) -> None:
    """Two callers that name the same dead jobs in another order do not wait for each other in a circle."""
    first, second = sorted([await died(conn), await died(conn)])
    other = await connect_as("superuser")
    async with conn.transaction():
        await conn.fetch("select from request('retry', array[$1::uuid])", first)
        waiting = asyncio.create_task(other.fetch("select outcome from request('retry', $1)", [second, first]))
        await blocked(conn, other)
        await conn.fetch("select from request('retry', array[$1::uuid])", second)
    assert [row["outcome"] for row in await waiting] == ["new-job", "new-job"]


async def test_erasing_a_job_that_never_failed_does_not_wait_for_who_adds_up_failures(
    conn: asyncpg.Connection, connect_as: ConnectAs
) -> None:
    lease = await run_one(conn)
    await settle(conn, "complete", [lease])
    other = await connect_as("superuser")
    async with other.transaction():
        await other.execute("select from add_failures(0, 100)")
        await request(conn, "delete", lease.job_id)
        await conn.execute("select execute_requests()")
        assert await conn.fetchval("select is_erased($1)", lease.job_id)

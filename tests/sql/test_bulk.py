"""Bulk operations: every job that fits once, in portions, whatever else happens to the jobs."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest

from holdfast.model.query import parse_query
from holdfast.model.states import State
from tests.conftest import ConnectAs
from tests.sql.factories import (
    claim,
    enqueue,
    enqueue_copies,
    job_in,
    job_row,
    offences,
    portion,
    promote,
    run_one,
    settle,
    state_of,
)
from tests.sql.test_letters import acknowledge, died, letter

#: What an action does, by the state that the job had: done (and the state afterwards), or not in the set.
ACTIONS: dict[str, dict[State, str]] = {
    "cancel": {state: "canceled" for state in State if not state.terminal and state is not State.RUNNING},
    "pause": {State.SCHEDULED: "paused", State.QUEUED: "paused", State.RETRY: "paused"},
    "resume": {State.PAUSED: "queued", State.ERROR: "queued"},
    "retry": {
        State.SCHEDULED: "queued", State.RETRY: "queued", State.PAUSED: "queued", State.ERROR: "queued",
        State.DEAD: "dead",
    },
    "requeue": {State.DEAD: "dead"},
    "ack": {State.DEAD: "dead"},
}  # fmt: skip


async def start(conn: asyncpg.Connection, action: str, query: str, by: str = "ada", **more: Any) -> UUID:
    """Start a bulk operation."""
    names = "".join(f", {name} => ${i}" for i, name in enumerate(more, 5))
    sql = f"select start_bulk($1, $2, $3::text::jsonb, $4{names})"
    bulk_id: UUID = await conn.fetchval(sql, action, query, json.dumps(parse_query(query)), by, *more.values())
    return bulk_id


async def look(conn: asyncpg.Connection, bulk_id: UUID) -> dict[str, Any]:
    """A bulk operation as it stands."""
    row = await conn.fetchrow("select * from list_bulks(only_id => $1)", bulk_id)
    assert row is not None
    return dict(row)


async def counts(conn: asyncpg.Connection, bulk_id: UUID) -> tuple[str, int, int, int, int]:
    """State, matched, done, skipped, failed."""
    bulk = await look(conn, bulk_id)
    return bulk["state"], bulk["matched"], bulk["done"], bulk["skipped"], bulk["failed"]


async def finish(conn: asyncpg.Connection, size: int = 100) -> None:
    """Let maintenance do all that is left."""
    for _ in range(1000):
        if await portion(conn, size) is None:
            return
    raise AssertionError("bulk operations do not end")


async def preview(conn: asyncpg.Connection, action: str, query: str, **more: Any) -> tuple[int, bool, list[UUID]]:
    """A dry run."""
    names = "".join(f", {name} => ${i}" for i, name in enumerate(more, 3))
    sql = f"select * from preview_bulk($1, $2::text::jsonb{names})"
    row = await conn.fetchrow(sql, action, json.dumps(parse_query(query)), *more.values())
    assert row is not None
    return row["matches"], row["exact"], row["sample"]


@pytest.mark.parametrize("action", ACTIONS)
async def test_an_action_changes_what_it_may_and_nothing_else(conn: asyncpg.Connection, action: str) -> None:
    jobs: dict[State, UUID] = {state: await job_in(conn, state) for state in State if state is not State.RUNNING}
    matches, exact, sample = await preview(conn, action, "type:work")
    assert (matches, exact, set(sample)) == (len(ACTIONS[action]), True, {jobs[state] for state in ACTIONS[action]})
    bulk_id = await start(conn, action, "type:work")
    await finish(conn)
    count = len(ACTIONS[action])
    assert await counts(conn, bulk_id) == ("done", count, count, 0, 0)
    for state, job_id in jobs.items():
        assert await state_of(conn, job_id) == ACTIONS[action].get(state, state.value), state
    made = await conn.fetchval("select count(*) from jobs where retry_of is not null")
    assert made == (action in ("requeue", "retry"))
    assert (await letter(conn, jobs[State.DEAD]))["acknowledged"] == (action in ("requeue", "retry", "ack"))
    assert await conn.fetchval("select count(*) from bulk_jobs") == 0
    assert await offences(conn) == []


async def test_running_jobs_are_asked_to_stop_and_deleted_when_they_have_ended(conn: asyncpg.Connection) -> None:
    lease = await run_one(conn, payload={"secret": 1})
    bulk_id = await start(conn, "cancel", "state:running")
    assert (await conn.fetchval("select sources from bulks")) == ["leases"]
    await finish(conn)
    assert await counts(conn, bulk_id) == ("done", 1, 1, 0, 0)
    assert await conn.fetchval("select interrupt from leases where job_id = $1", lease.job_id) == "cancel"
    ended = await job_in(conn, State.SUCCESS)
    await start(conn, "delete", "state:running,success")
    await finish(conn)
    assert await conn.fetchval("select count(*) from job_events where job_id = $1 and event = 'erased'", ended) == 1
    assert await conn.fetchval("select count(*) from jobs where type = 'holdfast.delete'") == 1


async def test_one_whose_filter_names_no_state_that_the_action_changes_is_about_no_job(
    conn: asyncpg.Connection,
) -> None:
    await died(conn)
    assert await preview(conn, "resume", "state:dead,running") == (0, True, [])
    bulk_id = await start(conn, "resume", "state:dead,running")
    await finish(conn)
    assert await counts(conn, bulk_id) == ("done", 0, 0, 0, 0)
    assert (await look(conn, bulk_id))["error"] is None


async def test_a_pause_beside_a_failure_by_hand_waits_for_the_end_of_the_attempt(conn: asyncpg.Connection) -> None:
    lease = await run_one(conn)
    await conn.execute("select from act_by_hand('fail', $1, 'ada', null, true, null, null, null)", lease.job_id)
    bulk_id = await start(conn, "pause", "state:running")
    await finish(conn)
    assert await counts(conn, bulk_id) == ("done", 1, 1, 0, 0)
    await settle(conn, "fail", [lease])
    await conn.execute("select execute_requests()")
    assert await state_of(conn, lease.job_id) == "paused"


async def test_jobs_that_ended_well_run_again_only_if_the_filter_names_them(conn: asyncpg.Connection) -> None:
    ended = await job_in(conn, State.SUCCESS)
    assert (await preview(conn, "retry", "type:work"))[0] == 0
    assert await preview(conn, "retry", "type:work state:success") == (1, True, [ended])
    await start(conn, "retry", "state:success")
    await finish(conn)
    assert await conn.fetchval("select count(*) from jobs where retry_of = $1", ended) == 1


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("type:work -state:queued", []),
        ("type:work -state:paused,queued", []),
        ("state:success,canceled -state:success", ["canceled"]),
        ("state:success OR type:work", []),
        ("state:success OR (type:work state:success,dead)", ["success"]),
    ],
)
async def test_excluding_states_does_not_run_jobs_again_that_ended_well(
    conn: asyncpg.Connection, query: str, found: list[str]
) -> None:
    jobs = [await job_in(conn, state) for state in (State.SUCCESS, State.CANCELED)]
    _, _, sample = await preview(conn, "retry", query)
    assert [await state_of(conn, job) for job in sample] == found
    await start(conn, "retry", query)
    await finish(conn)
    again = "select count(*) from jobs where retry_of = any ($1::uuid[])"
    assert await conn.fetchval(again, jobs) == len(found)


async def test_waiting_jobs_are_found_without_a_walk_over_jobs(conn: asyncpg.Connection) -> None:
    ids = set(await enqueue_copies(conn, 5)) | {await enqueue(conn, target="t") for _ in range(4)}
    await conn.execute("select elect()")
    ids |= {await enqueue(conn, delay=60) for _ in range(3)}
    await job_in(conn, State.PAUSED)
    await enqueue(conn, "other")
    assert (await preview(conn, "cancel", "type:work state:queued,scheduled,retry"))[:2] == (12, True)
    bulk_id = await start(conn, "cancel", "type:work state:queued,scheduled,retry")
    assert await conn.fetchval("select sources from bulks") == ["due", "waiting", "ready"]
    for _ in range(50):
        if (await look(conn, bulk_id))["state"] != "fixing":
            break
        await conn.execute("select fix_bulk(b, 2) from bulks b where id = $1", bulk_id)
    assert {row["job_id"] for row in await conn.fetch("select job_id from bulk_jobs")} == ids
    await finish(conn)
    assert await counts(conn, bulk_id) == ("done", 12, 12, 0, 0)
    assert {await state_of(conn, job_id) for job_id in ids} == {"canceled"}
    assert await offences(conn) == []


async def reprioritized(conn: asyncpg.Connection) -> AsyncIterator[tuple[str, UUID]]:
    await enqueue_copies(conn, 2)
    job_id = await enqueue(conn)
    yield "state:queued", job_id
    await conn.execute("select from act_by_hand('reprioritize', $1, 'ada', null, null, 0, null, null)", job_id)
    await conn.execute("select execute_requests()")


async def handed_back(conn: asyncpg.Connection) -> AsyncIterator[tuple[str, UUID]]:
    lease = await run_one(conn)
    await enqueue_copies(conn, 2)
    yield "state:queued,running", lease.job_id
    await settle(conn, "hand_back", [lease])


async def come_round(conn: asyncpg.Connection) -> AsyncIterator[tuple[str, UUID]]:
    lease = await run_one(conn)
    await enqueue_copies(conn, 2, delay=60)
    yield "state:scheduled,queued,running", lease.job_id
    await settle(conn, "snooze", [lease], delays=[0.0])
    await promote(conn)


async def dead(conn: asyncpg.Connection) -> AsyncIterator[tuple[str, UUID]]:
    await died(conn)
    lease = await run_one(conn)
    yield "state:running,dead", lease.job_id
    await settle(conn, "fail", [lease], kinds=["fatal"])


@pytest.mark.parametrize("moved", [reprioritized, handed_back, come_round, dead])
async def test_a_job_that_moves_while_ids_are_fixed_is_not_missed(
    conn: asyncpg.Connection, moved: Callable[[asyncpg.Connection], AsyncIterator[tuple[str, UUID]]]
) -> None:
    for steps in range(6):
        attempt = conn.transaction()
        await attempt.start()
        move = moved(conn)
        query, job_id = await anext(move)
        bulk_id = await start(conn, "delete", query)
        for _ in range(steps):
            await conn.execute("select fix_bulk(b, 1) from bulks b where id = $1 and state = 'fixing'", bulk_id)
        assert await anext(move, None) is None
        while (await look(conn, bulk_id))["state"] == "fixing":
            await conn.execute("select fix_bulk(b, 1) from bulks b where id = $1", bulk_id)
        noted = {row["job_id"] for row in await conn.fetch("select job_id from bulk_jobs where bulk_id = $1", bulk_id)}
        assert job_id in noted, f"it was missed when it moved after {steps} steps"
        await attempt.rollback()


@pytest.mark.parametrize("limit", ["seconds", "tables"])
async def test_what_takes_too_long_to_gather_is_found_by_a_walk_over_jobs(conn: asyncpg.Connection, limit: str) -> None:
    ids = set(await enqueue_copies(conn, 450))
    bulk_id = await start(conn, "cancel", "type:work state:queued")
    await conn.execute("select set_config('holdfast.search_' || $1, '0', false)", limit)
    await conn.execute("select fix_bulk(b, 100) from bulks b")
    await conn.execute("select set_config('holdfast.search_' || $1, '', false)", limit)
    assert (await look(conn, bulk_id))["sources"] == ["jobs"]
    assert await conn.fetchval("select count(*) from bulk_found") == 0
    while (await look(conn, bulk_id))["state"] == "fixing":
        await conn.execute("select fix_bulk(b, 100) from bulks b")
    assert {row["job_id"] for row in await conn.fetch("select job_id from bulk_jobs")} == ids


async def test_jobs_are_gathered_once_and_judged_in_portions(conn: asyncpg.Connection) -> None:
    await enqueue_copies(conn, 450)
    await enqueue_copies(conn, 450, "other")
    bulk_id = await start(conn, "cancel", "type:other state:queued")
    matched = []
    while (await look(conn, bulk_id))["state"] == "fixing":
        await portion(conn, 10)
        matched.append((await look(conn, bulk_id))["matched"])
    assert len(matched) == 6  # 200 in each portion, after they were gathered
    assert (matched, matched[-1]) == (sorted(matched), 450)
    assert await conn.fetchval("select count(*) from bulk_found") == 0
    await conn.execute("update bulks set state = 'fixing', reached = null")
    await conn.execute("select fix_bulk(b, 100) from bulks b")
    assert await conn.fetchval("select stop_bulk($1, 'bob')", bulk_id) == "stopping"
    await finish(conn, 1)
    assert (await look(conn, bulk_id))["state"] == "stopped"
    assert await conn.fetchval("select count(*) from bulk_found") == 0


async def test_jobs_that_are_newer_or_fit_no_more_are_left_alone(conn: asyncpg.Connection) -> None:
    first, second = await died(conn), await died(conn)
    bulk_id = await start(conn, "requeue", "type:work")
    newer = await died(conn)
    await portion(conn)
    assert await counts(conn, bulk_id) == ("running", 2, 0, 0, 0)
    await acknowledge(conn, first)
    await finish(conn)
    assert await counts(conn, bulk_id) == ("done", 2, 1, 1, 0)
    assert (await letter(conn, first))["requeued_as"] is None
    assert (await letter(conn, second))["requeued_as"] is not None
    assert (await letter(conn, newer))["requeued_as"] is None


async def test_two_operators_requeue_each_letter_once(conn: asyncpg.Connection) -> None:
    ids = [await died(conn) for _ in range(6)]
    both = [await start(conn, "requeue", "type:work", by) for by in ("ada", "bob")]
    await finish(conn, 2)
    totals = [await counts(conn, bulk_id) for bulk_id in both]
    assert {total[0] for total in totals} == {"done"}
    assert sum(total[2] for total in totals) == 6
    assert all(matched == done + skipped for _, matched, done, skipped, _ in totals)
    assert await conn.fetchval("select count(*) from jobs where retry_of = any ($1)", ids) == 6
    audit = await conn.fetch("select actor, action, detail from list_audit()")
    assert {(row["actor"], row["action"]) for row in audit} == {("ada", "bulk.start"), ("bob", "bulk.start")}
    assert json.loads(audit[0]["detail"]) == {"action": "requeue", "q": "type:work"}


async def test_a_job_that_raises_counts_as_failed_and_holds_up_no_other(conn: asyncpg.Connection) -> None:
    ids = [await died(conn, ("mail", "work")[n % 2]) for n in range(4)]
    await conn.execute("select close_type('mail', 'ada')")
    bulk_id = await start(conn, "requeue", "state:dead")
    await finish(conn)
    assert await counts(conn, bulk_id) == ("done", 4, 2, 0, 2)
    assert "takes no new jobs" in (await look(conn, bulk_id))["error"]
    assert [(await letter(conn, job_id))["requeued_as"] is None for job_id in ids] == [True, False] * 2


async def test_a_letter_that_somebody_holds_is_tried_again_after_the_others(
    conn: asyncpg.Connection, connect_as: ConnectAs
) -> None:
    ids = [await died(conn) for _ in range(3)]
    bulk_id = await start(conn, "requeue", "state:dead")
    await portion(conn)
    other = await connect_as("owner")
    async with other.transaction():
        await other.execute("select from dead_letters where job_id = $1 for update", ids[1])
        await portion(conn)
        assert await counts(conn, bulk_id) == ("running", 3, 2, 0, 0)
        await portion(conn)
        assert await portion(conn) is None  # it rests
    await conn.execute("update bulks set rests_until = null")
    await finish(conn)
    assert await counts(conn, bulk_id) == ("done", 3, 3, 0, 0)


async def test_a_letter_that_somebody_holds_for_twenty_turns_counts_as_failed(
    conn: asyncpg.Connection, connect_as: ConnectAs
) -> None:
    job_id = await died(conn)
    bulk_id = await start(conn, "requeue", "state:dead")
    await portion(conn)
    other = await connect_as("owner")
    async with other.transaction():
        await other.execute("select from dead_letters where job_id = $1 for update", job_id)
        await portion(conn)
        assert await conn.fetchval("select tries from bulk_jobs") == 1
        await conn.execute("update bulk_jobs set tries = 18; update bulks set rests_until = null")
        await portion(conn)
        assert await counts(conn, bulk_id) == ("running", 1, 0, 0, 0)
        await conn.execute("update bulks set rests_until = null")
        await portion(conn)
    assert await counts(conn, bulk_id) == ("running", 1, 0, 0, 1)
    assert "somebody else has locked it" in (await look(conn, bulk_id))["error"]
    await finish(conn)
    assert await counts(conn, bulk_id) == ("done", 1, 0, 0, 1)


async def test_one_that_is_stopped_does_no_more(conn: asyncpg.Connection) -> None:
    ids = [await died(conn) for _ in range(6)]
    bulk_id = await start(conn, "requeue", "state:dead")
    for _ in range(2):
        await portion(conn, 2)
    assert await conn.fetchval("select stop_bulk($1, 'bob', 'too early')", bulk_id) == "stopping"
    await finish(conn)
    assert await counts(conn, bulk_id) == ("stopped", 6, 2, 0, 0)
    assert await conn.fetchval("select count(*) from jobs where retry_of = any ($1)", ids) == 2
    assert await conn.fetchval("select count(*) from bulk_jobs") == 0
    assert await conn.fetchval("select stop_bulk($1, 'bob')", bulk_id) == "stopped"
    assert await conn.fetchval("select stop_bulk($1, 'bob')", uuid4()) is None
    audit = await conn.fetchval("select detail from list_audit() where action = 'bulk.stop'")
    assert json.loads(audit)["note"] == "too early"


async def test_a_stop_in_a_portion_that_takes_long_says_so(conn: asyncpg.Connection, connect_as: ConnectAs) -> None:
    await died(conn)
    bulk_id = await start(conn, "requeue", "state:dead")
    other = await connect_as("superuser")
    async with other.transaction():
        await other.execute("select from bulks where id = $1 for update", bulk_id)
        with pytest.raises(asyncpg.LockNotAvailableError, match="in the middle of a portion"):
            await conn.execute("select stop_bulk($1, 'bob')", bulk_id)
    assert await conn.fetchval("select stop_bulk($1, 'bob')", bulk_id) == "stopping"


async def test_a_second_leader_takes_nothing_that_the_first_works_on(
    conn: asyncpg.Connection, connect_as: ConnectAs
) -> None:
    await died(conn)
    bulk_id = await start(conn, "requeue", "state:dead")
    other = await connect_as("worker")
    assert await other.fetchval("select turn_bulk()") == bulk_id
    transaction = other.transaction()
    await transaction.start()
    await other.execute("select advance_bulk($1, 10)", bulk_id)
    assert await portion(conn, 10) is None
    await conn.execute("select advance_bulk($1, 10)", bulk_id)
    # The first one dies.
    await transaction.rollback()
    assert await counts(conn, bulk_id) == ("fixing", 0, 0, 0, 0)
    await finish(conn)
    assert await counts(conn, bulk_id) == ("done", 1, 1, 0, 0)


async def test_only_jobs_of_the_tenant_are_counted_and_changed(conn: asyncpg.Connection) -> None:
    for state in (State.QUEUED, State.DEAD):
        mine = await enqueue(conn, tenant="acme") if state is State.QUEUED else await died(conn, tenant="acme")
        other = await enqueue(conn) if state is State.QUEUED else await died(conn)
        action = "cancel" if state is State.QUEUED else "ack"
        assert await preview(conn, action, f"state:{state.value}", only_tenant="acme") == (1, True, [mine])
        bulk_id = await start(conn, action, f"state:{state.value}", only_tenant="acme")
        await finish(conn)
        assert await counts(conn, bulk_id) == ("done", 1, 1, 0, 0)
        assert (await job_row(conn, other))["state"] == state.value
    assert not (await letter(conn, other))["acknowledged"]
    assert len(await conn.fetch("select from list_bulks('acme')")) == 2
    assert len(await conn.fetch("select from list_bulks('other')")) == 0
    assert await conn.fetchval("select stop_bulk($1, 'bob', null, 'other')", bulk_id) is None


async def test_what_cannot_be_asked_is_refused(conn: asyncpg.Connection) -> None:
    for action, args in (("explode", {}), ("cancel", {"priority": 1}), ("requeue", {"options": {"parent_id": "x"}})):
        with pytest.raises(asyncpg.PostgresError) as refused:
            await conn.fetchval("select start_bulk($1, '', '{}', 'ada', $2::text::jsonb)", action, json.dumps(args))
        assert refused.value.sqlstate == "HF002"
    for _ in range(20):
        await start(conn, "cancel", "state:queued")
    with pytest.raises(asyncpg.PostgresError, match="under way"):
        await start(conn, "cancel", "state:queued")


async def test_a_filter_that_raises_ends_its_operation_alone(conn: asyncpg.Connection) -> None:
    await died(conn)
    broken, good = await start(conn, "ack", "state:dead"), await start(conn, "ack", "state:dead")
    await conn.execute('update bulks set tree = \'{"field": "colour"}\' where id = $1', broken)
    await finish(conn)
    assert (await look(conn, broken))["state"] == "stopped"
    assert "colour" in (await look(conn, broken))["error"]
    assert await counts(conn, good) == ("done", 1, 1, 0, 0)


async def test_old_ones_are_forgotten(conn: asyncpg.Connection) -> None:
    old, new = await start(conn, "cancel", "state:queued"), await start(conn, "cancel", "state:queued")
    await finish(conn)
    await conn.execute("update bulks set finished_at = now() - interval '1000 days' where id = $1", old)
    await conn.execute("insert into clock_steps (seconds) values (86400 * 2000)")  # set ahead, so it is not that old
    assert await conn.fetchval("select forget_bulks(100)") == 0
    await conn.execute("delete from clock_steps")
    assert await conn.fetchval("select forget_bulks(100)") == 1
    assert [row["id"] for row in await conn.fetch("select id from list_bulks()")] == [new]


async def test_a_dry_run_ends_early_and_says_so(conn: asyncpg.Connection) -> None:
    await enqueue_copies(conn, 1_200)
    matches, exact, sample = await preview(conn, "cancel", "state:queued", max_matches=500)
    assert (matches, exact, len(sample)) == (500, False, 10)
    assert await preview(conn, "cancel", "state:queued") == (1_200, True, sample)


async def test_no_letter_is_passed_over_whatever_the_statistics_say(conn: asyncpg.Connection) -> None:
    await enqueue_copies(conn, 600)
    leases = await claim(conn, limit=600)
    await settle(conn, "fail", leases, kinds=["fatal"] * 600)
    assert (await preview(conn, "ack", "attempt=1"))[:2] == (600, True)
    await start(conn, "requeue", "attempt=1")
    await finish(conn)
    # Nothing was analysed, and all letters have just been changed.
    bulk_id = await start(conn, "ack", "attempt=1 acknowledged:true")
    for _ in range(6):
        await conn.execute("select fix_bulk(b, 150) from bulks b where id = $1 and state = 'fixing'", bulk_id)
    await finish(conn)
    assert await counts(conn, bulk_id) == ("done", 600, 0, 600, 0)


async def test_waiting_jobs_get_another_priority_and_are_claimed_by_it(conn: asyncpg.Connection) -> None:
    first, urgent = await enqueue(conn), await enqueue(conn, correlation_id="urgent")
    later = await enqueue(
        conn, correlation_id="urgent", run_at=(await conn.fetchval("select now() + interval '1 day'"))
    )
    running = await run_one(conn, "other", correlation_id="urgent")
    bulk_id = await start(conn, "reprioritize", "correlation:urgent", args='{"priority": 5}')
    await finish(conn)
    assert await counts(conn, bulk_id) == ("done", 2, 2, 0, 0)
    priorities = {
        row["id"]: row["priority"]
        for row in await conn.fetch("select id, priority from jobs where queue <> 'holdfast'")
    }
    assert priorities == {first: 100, urgent: 5, later: 5, running.job_id: 100}
    assert [lease.job_id for lease in await claim(conn, limit=2)] == [urgent, first]
    again = await start(conn, "reprioritize", "correlation:urgent", args='{"priority": 5}')
    await finish(conn)
    assert (await counts(conn, again))[2:] == (0, 1, 0)
    assert await offences(conn) == []

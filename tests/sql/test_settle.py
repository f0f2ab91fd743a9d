"""Settlements: only the attempt that holds the lease counts, and every ending leads to its state."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import asyncpg
import pytest

from holdfast.store.statements import queries
from tests.sql.factories import (
    Lease,
    claim,
    dump,
    enqueue,
    enqueue_copies,
    expire,
    job_in,
    job_row,
    make_due,
    offences,
    promote,
    publish,
    request,
    run_one,
    settle,
    state_of,
    sweep,
)

VERBS: dict[str, dict[str, Any]] = {
    "complete": {"results": ['{"n": 1}']},
    "fail": {"kinds": ["retryable"], "error_messages": ["boom"]},
    "snooze": {"delays": [60.0]},
    "hand_back": {"reason": "not run"},
    "stop": {"outcomes": ["canceled"]},
}
FIRST_ANSWER = {
    "complete": "success", "fail": "retry", "snooze": "scheduled", "hand_back": "queued", "stop": "canceled",
}  # fmt: skip


async def last_attempt(conn: asyncpg.Connection, lease: Lease) -> asyncpg.Record:
    row = await conn.fetchrow("select * from job_attempts where job_id = $1 and attempt = $2", *lease)
    assert row is not None
    return row


@pytest.mark.parametrize("verb", VERBS)
async def test_an_attempt_ends_once_and_a_repeat_is_answered_alike(conn: asyncpg.Connection, verb: str) -> None:
    lease = await run_one(conn)
    assert await settle(conn, verb, [lease], **VERBS[verb]) == [FIRST_ANSWER[verb]]
    assert await state_of(conn, lease.job_id) == FIRST_ANSWER[verb]
    assert await offences(conn) == []
    after = await dump(conn)
    assert await settle(conn, verb, [lease], **VERBS[verb]) == [FIRST_ANSWER[verb]]
    assert await settle(conn, verb, [lease], worker="w2", **VERBS[verb]) == ["lease-lost"]
    assert await dump(conn) == after


@pytest.mark.parametrize("verb", VERBS)
async def test_stale_attempt_changes_nothing(conn: asyncpg.Connection, verb: str) -> None:
    stale = await run_one(conn)
    await expire(conn, stale.job_id)
    assert await sweep(conn) == {stale.job_id: "queued"}
    for taken_over in (False, True):
        if taken_over:
            assert await claim(conn, worker="w2") == [Lease(stale.job_id, 2)]
        before = await dump(conn)
        assert await settle(conn, verb, [stale], **VERBS[verb]) == ["lease-lost"]
        assert await settle(conn, verb, [Lease(stale.job_id, 0)], **VERBS[verb]) == ["lease-lost"]
        assert await settle(conn, verb, [Lease(stale.job_id, 3)], **VERBS[verb]) == ["lease-lost"]
        assert await dump(conn) == before
    assert await settle(conn, "complete", [Lease(stale.job_id, 2)], worker="w2") == ["success"]


@pytest.mark.parametrize("verb", ["complete", "fail", "hand_back"])
async def test_a_batch_with_a_stale_and_the_valid_attempt_of_a_job_tells_them_apart(
    conn: asyncpg.Connection, verb: str
) -> None:
    stale = await run_one(conn)
    await expire(conn, stale.job_id)
    await sweep(conn)
    (valid,) = await claim(conn)
    assert await settle(conn, verb, [stale, valid]) == ["lease-lost", FIRST_ANSWER[verb]]


async def test_a_batch_settles_what_it_can(conn: asyncpg.Connection) -> None:
    jobs = await enqueue_copies(conn, 4)
    leases = await claim(conn, limit=4)
    await expire(conn, jobs[1])
    await sweep(conn)
    assert await settle(conn, "complete", leases) == ["success", "lease-lost", "success", "success"]
    assert await settle(conn, "complete", leases) == ["success", "lease-lost", "success", "success"]
    assert await offences(conn) == []


@pytest.mark.parametrize("ending", [*VERBS, "lapse"])
async def test_an_attempt_that_ended_leaves_neither_owner_nor_lease(conn: asyncpg.Connection, ending: str) -> None:
    lease = await run_one(conn)
    look = "select lease_owner, lease_expires_at > now() from get_jobs($1)"
    held = await conn.fetchrow(look, [lease.job_id])
    assert held is not None
    assert tuple(held) == ("w1", True)
    if ending == "lapse":
        await expire(conn, lease.job_id)
        await sweep(conn)
    else:
        await settle(conn, ending, [lease], **VERBS[ending])
    ended = await conn.fetchrow(look, [lease.job_id])
    assert ended is not None
    assert tuple(ended) == (None, None)
    assert await conn.fetchval("select count(*) from leases") == 0


async def test_every_move_is_dated_and_the_time_of_creation_stays(conn: asyncpg.Connection) -> None:
    lease = await run_one(conn)
    moves = [await job_row(conn, lease.job_id)]
    await settle(conn, "fail", [lease])
    moves.append(await job_row(conn, lease.job_id))
    await make_due(conn, lease.job_id)
    await promote(conn)
    moves.append(await job_row(conn, lease.job_id))
    again = await claim(conn)
    moves.append(await job_row(conn, lease.job_id))
    await settle(conn, "complete", again)
    moves.append(await job_row(conn, lease.job_id))
    assert [row["state"] for row in moves] == ["running", "retry", "queued", "running", "success"]
    dates = [row["updated_at"] for row in moves]
    assert dates == sorted(set(dates))
    assert {row["created_at"] for row in moves} == {moves[0]["created_at"]}
    assert moves[0]["created_at"] < dates[0]


async def test_a_late_settlement_counts_until_the_sweep(conn: asyncpg.Connection) -> None:
    lease = await run_one(conn)
    await expire(conn, lease.job_id)
    assert await settle(conn, "complete", [lease]) == ["success"]
    assert await sweep(conn) == {}


async def test_success_keeps_result_and_attempt(conn: asyncpg.Connection) -> None:
    lease = await run_one(conn, dedup_key="d")
    await settle(conn, "complete", [lease], results=['{"n": 1}'], durations_ms=[42])
    job, attempt = await job_row(conn, lease.job_id), await last_attempt(conn, lease)
    assert (job["result"], job["dedup_key"], job["failures"]) == ('{"n": 1}', None, 0)
    assert job["finished_at"] >= job["started_at"] >= job["created_at"]
    assert (attempt["outcome"], attempt["worker"], attempt["duration_ms"]) == ("success", "w1", 42)


@pytest.mark.parametrize(
    ("kind", "state"),
    [("retryable", "retry"), ("retry", "retry"), ("fatal", "dead"), ("hold", "error"), (None, "retry")],
)
async def test_the_kind_of_a_failure_decides(conn: asyncpg.Connection, kind: str | None, state: str) -> None:
    lease = await run_one(conn)
    details: dict[str, Any] = {
        "error_types": ["ValueError"], "error_messages": ["boom"], "tracebacks": ["line 1"],
    }  # fmt: skip
    assert await settle(conn, "fail", [lease], kinds=[kind], **details) == [state]
    job, attempt = await job_row(conn, lease.job_id), await last_attempt(conn, lease)
    assert (job["failures"], job["last_error"]) == (1, "boom")
    assert (attempt["outcome"], attempt["error_type"], attempt["error_message"], attempt["traceback"]) == (
        "failed", "ValueError", "boom", "line 1",
    )  # fmt: skip
    letters = await conn.fetch("select error_type, error_message from dead_letters")
    assert [tuple(row) for row in letters] == ([("ValueError", "boom")] if state == "dead" else [])
    assert await offences(conn) == []


async def test_the_budget_counts_failures_timeouts_and_lost_leases_and_nothing_else(conn: asyncpg.Connection) -> None:
    job_id = await enqueue(conn, max_attempts=3)
    free: list[tuple[str, dict[str, Any]]] = [("hand_back", {}), ("snooze", {"delays": [0.0]})]
    for verb, more in free * 3:
        assert await settle(conn, verb, await claim(conn), **more) == ["queued"]
    assert await settle(conn, "fail", await claim(conn), outcomes=["timeout"]) == ["retry"]
    await make_due(conn, job_id)
    assert await promote(conn) == 1
    await claim(conn)
    await expire(conn, job_id)
    assert await sweep(conn) == {job_id: "queued"}
    assert await settle(conn, "fail", await claim(conn)) == ["dead"]
    assert (await job_row(conn, job_id))["failures"] == 3
    assert await conn.fetchval("select count(*) from dead_letters") == 1
    assert await claim(conn) == []
    assert await offences(conn) == []


@pytest.mark.parametrize("option", ["call", "type", "setting"])
async def test_the_call_the_type_and_the_setting_give_the_budget(conn: asyncpg.Connection, option: str) -> None:
    await conn.execute("update settings set value = '1' where name = 'MAX_ATTEMPTS_DEFAULT'")
    if option != "setting":
        await publish(conn, max_attempts=2)
    options: dict[str, Any] = {"max_attempts": 5} if option == "call" else {}
    lease = await run_one(conn, **options)
    assert await settle(conn, "fail", [lease]) == [{"setting": "dead"}.get(option, "retry")]
    assert (await conn.fetchval("select max_attempts from get_jobs($1)", [lease.job_id])) == {
        "call": 5, "type": 2, "setting": 1,
    }[option]  # fmt: skip


async def test_on_failure_hold_keeps_a_failed_or_lost_job_for_a_person(conn: asyncpg.Connection) -> None:
    await publish(conn, on_failure="hold")
    failed, lost, again = await run_one(conn), await run_one(conn), await run_one(conn)
    assert await settle(conn, "fail", [failed]) == ["error"]
    await expire(conn, lost.job_id)
    assert await sweep(conn) == {lost.job_id: "error"}
    assert await settle(conn, "fail", [again], kinds=["retry"], delays=[9.0]) == ["retry"]
    assert await conn.fetchval("select count(*) from dead_letters") == 0
    assert await offences(conn) == []


async def test_a_retry_waits_as_its_type_says_or_as_the_handler_asked(conn: asyncpg.Connection) -> None:
    await publish(conn, backoff_base=30, backoff_max=3600)
    seconds = "select extract(epoch from run_at - updated_at)::double precision from jobs where id = $1"
    lease = await run_one(conn)
    await settle(conn, "fail", [lease])
    assert await conn.fetchval(seconds, lease.job_id) == 30
    asked = await run_one(conn)
    await settle(conn, "fail", [asked], kinds=["retry"], delays=[7.5])
    assert await conn.fetchval(seconds, asked.job_id) == 7.5
    unknown = await run_one(conn, "unknown")
    await settle(conn, "fail", [unknown])
    assert 1 <= await conn.fetchval(seconds, unknown.job_id) <= 1.1


@pytest.mark.parametrize(("wish", "state"), [("cancel", "canceled"), ("pause", "paused"), ("delete", "canceled")])
@pytest.mark.parametrize("ending", ["fail", "snooze", "hand_back", "lapse"])
async def test_a_pending_request_is_honoured_first(
    conn: asyncpg.Connection, wish: str, state: str, ending: str
) -> None:
    lease = await run_one(conn, max_attempts=1)
    assert await request(conn, wish, lease.job_id, by="me", note="why") == "accepted"
    if ending == "lapse":
        await expire(conn, lease.job_id)
        assert await sweep(conn) == {lease.job_id: state}
    else:
        assert await settle(conn, ending, [lease], **VERBS[ending]) == [state]
    event = await conn.fetchrow("select event, by, note from job_events where job_id = $1", lease.job_id)
    assert event is not None
    assert tuple(event) == (state, "me", "why")
    assert await offences(conn) == []


async def test_success_wins_over_a_pending_cancel_and_hold_too(conn: asyncpg.Connection) -> None:
    done, held = await run_one(conn), await run_one(conn)
    for lease in (done, held):
        await request(conn, "cancel", lease.job_id)
    assert await settle(conn, "complete", [done]) == ["success"]
    assert await settle(conn, "fail", [held], kinds=["hold"]) == ["error"]
    await conn.execute("select execute_requests()")
    assert await state_of(conn, done.job_id) == "success"


async def test_cancel_outranks_pause_and_pause_does_not_outrank_cancel(conn: asyncpg.Connection) -> None:
    for wishes in (("pause", "cancel"), ("cancel", "pause")):
        lease = await run_one(conn)
        for wish in wishes:
            await request(conn, wish, lease.job_id)
        rows = await conn.fetch("select interrupt from interrupted('w1', $1, $2)", [lease.job_id], [1])
        assert [row["interrupt"] for row in rows] == ["cancel"]
        assert await settle(conn, "stop", [lease], outcomes=["paused"]) == ["canceled"]


async def test_a_new_attempt_starts_with_a_clean_flag(conn: asyncpg.Connection) -> None:
    job_id = await job_in(conn, "running")
    await conn.execute("update leases set interrupt = 'pause'")
    await expire(conn, job_id)
    await sweep(conn)
    await request(conn, "resume", job_id)
    await conn.execute("select execute_requests()")
    (lease,) = await claim(conn)
    assert await conn.fetchval("select interrupt from leases where job_id = $1", lease.job_id) is None


@pytest.mark.parametrize(
    ("verb", "more"),
    [
        ("fail", {"kinds": ["odd"]}),
        ("fail", {"outcomes": ["lost"]}),
        ("fail", {"outcomes": ["success"]}),
        ("stop", {"outcomes": ["success"]}),
        ("stop", {"outcomes": [None]}),
    ],
)
async def test_unknown_endings_are_refused(conn: asyncpg.Connection, verb: str, more: dict[str, Any]) -> None:
    lease = await run_one(conn)
    before = await dump(conn)
    with pytest.raises(asyncpg.PostgresError) as refused:
        await settle(conn, verb, [lease], **more)
    assert refused.value.sqlstate == "HF002"
    assert await dump(conn) == before


async def test_jobs_whose_claim_was_never_answered_are_handed_back(conn: asyncpg.Connection) -> None:
    await enqueue_copies(conn, 5)
    known, *unknown = await claim(conn, limit=3)
    (foreign,) = await claim(conn, worker="w2")
    mark = await conn.fetchrow("select * from claim_mark()")
    assert mark is not None
    (later,) = await claim(conn, limit=1)
    assert await conn.fetchval("select hand_back_unheard('w1', $1, $2, $3)", [known.job_id], *mark) == 2
    assert await state_of(conn, later.job_id) == "running", "it was claimed after the call was made"
    states = [await state_of(conn, lease.job_id) for lease in (known, *unknown, foreign)]
    assert states == ["running", "queued", "queued", "running"]
    assert await conn.fetchval("select release_unknown('w1', $1)", [known.job_id]) == 1, "as workers of 0.2.0 call it"
    assert await conn.fetchval("select sum(failures) from jobs") == 0


async def test_workers_of_the_release_before_hand_jobs_back_by_its_old_name(conn: asyncpg.Connection) -> None:
    first, second = await run_one(conn), await run_one(conn)
    assert await settle(conn, "release", [first], note="a deploy") == ["queued"]
    mark = await conn.fetchrow("select * from claim_mark()")
    assert mark is not None
    assert await conn.fetchval("select release_unheard('w1', '{}', $1, $2)", *mark) == 1
    assert [await state_of(conn, lease.job_id) for lease in (first, second)] == ["queued", "queued"]


@pytest.mark.parametrize("blind", ["the clock was set back", "numbers are given again"])
async def test_jobs_claimed_after_the_mark_are_not_handed_back(conn: asyncpg.Connection, blind: str) -> None:
    mark = await conn.fetchrow("select * from claim_mark()")
    assert mark is not None
    until, number = mark
    lease = await run_one(conn)
    if blind == "the clock was set back":
        until += timedelta(minutes=1)
    else:
        number += 1000
    handed_back = "select hand_back_unheard($1, '{}', $2, $3)"
    assert await conn.fetchval(handed_back, "w1", until, number) == 0
    assert await state_of(conn, lease.job_id) == "running"


async def test_a_count_of_failures_at_its_end_does_not_hold_up_the_batch(conn: asyncpg.Connection) -> None:
    odd, other = await run_one(conn), await run_one(conn)
    await conn.execute("update jobs set failures = 2147483647 where id = $1", odd.job_id)
    assert await settle(conn, "fail", [odd, other]) == ["dead", "retry"]


async def test_completing_a_job_in_a_transaction_limits_its_idle_time(conn: asyncpg.Connection) -> None:
    """Between the completion and the commit of a handler's own transaction, others can neither see nor take the job."""
    lease = await run_one(conn)
    statement = queries("holdfast")["complete_and_commit"]
    limit = "select current_setting('idle_in_transaction_session_timeout')"
    before = await conn.fetchval(limit)
    async with conn.transaction():
        await conn.execute("select set_config('holdfast.job_transaction', 'this one', true)")
        done = "w1", [lease.job_id], [lease.attempt], None, [1], None
        assert await conn.fetch(statement, *done, "another one") == []
        (row,) = await conn.fetch(statement, *done, "this one")
        assert (row["state"], await conn.fetchval(limit)) == ("success", "20s")
    assert await conn.fetchval(limit) == before

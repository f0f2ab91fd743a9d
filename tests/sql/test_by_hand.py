"""What operators decide about one job: each verb in each state, against each ending, and against other decisions."""

from __future__ import annotations

import asyncio
import json
from itertools import product
from typing import Any
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
    elect,
    enqueue,
    execute,
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

ACT = "select outcome, state, decided, decided_by from act_by_hand($1, $2, $3, $4, $5, $6, $7, $8)"


async def act(
    conn: asyncpg.Connection,
    verb: str,
    job_id: UUID,
    words: str | None = "because",
    *,
    by: str = "ada",
    will_retry: bool = False,
    priority: int | None = None,
    only_tenant: str | None = None,
) -> asyncpg.Record:
    """Decide something: outcome, state, decided, decided_by. The verb `retry` is to fail with a retry."""
    name, again = ("fail", True) if verb == "retry" else (verb, will_retry)
    row = await conn.fetchrow(ACT, name, job_id, by, words, again, priority, only_tenant, None)
    assert row is not None
    return row


async def decide(conn: asyncpg.Connection, verb: str, job_id: UUID, words: str = "because", **more: Any) -> str:
    """Decide something, and let maintenance carry it out; how the decision was taken."""
    answer = await act(conn, verb, job_id, words, **more)
    await conn.execute("select execute_requests(100)")
    return str(answer["outcome"])


async def carry_out_all(conn: asyncpg.Connection) -> None:
    """Let maintenance carry out what it has put off."""
    rows = await conn.fetch("select id from jobs where queue = 'holdfast' and state = 'scheduled'")
    await make_due(conn, *(row["id"] for row in rows))
    await promote(conn)
    await conn.execute("select execute_requests(100)")


async def last_attempt(conn: asyncpg.Connection, job_id: UUID) -> tuple[Any, ...]:
    row = await conn.fetchrow(
        "select outcome, error_type, error_message from job_attempts where job_id = $1 order by attempt desc limit 1",
        job_id,
    )
    assert row is not None
    return tuple(row)


FINAL = {state: ("already-final", state) for state in ("success", "dead", "canceled")}
FORBIDDEN = {state: ("not-possible", state) for state in ("created", "scheduled", "queued", "paused")}
#: verb → state → (answer, state after maintenance)
EXPECTED: dict[str, dict[str, tuple[str, str]]] = {
    "retry": FINAL | FORBIDDEN | {
        "running": ("accepted", "running"), "retry": ("not-possible", "retry"), "error": ("not-possible", "error"),
    },
    "fail": FINAL | FORBIDDEN | {
        "running": ("accepted", "running"), "retry": ("accepted", "dead"), "error": ("accepted", "dead"),
    },
    "kill": FINAL | FORBIDDEN | {
        "running": ("accepted", "running"), "retry": ("accepted", "dead"), "error": ("accepted", "dead"),
    },
    "expire-lease": FINAL | FORBIDDEN | {
        "running": ("accepted", "queued"), "retry": ("not-possible", "retry"), "error": ("not-possible", "error"),
    },
    "reprioritize": FINAL | {
        state: ("accepted", state)
        for state in ("created", "scheduled", "queued", "running", "retry", "paused", "error")
    },
}  # fmt: skip


@pytest.mark.parametrize("target", [None, "t"])
@pytest.mark.parametrize("verb", EXPECTED)
async def test_every_verb_in_every_state(conn: asyncpg.Connection, verb: str, target: str | None) -> None:
    found: dict[str, tuple[str, str]] = {}
    for state in State:
        job_id = await job_in(conn, state, state, target=target and f"{target}-{state}")
        answer = await decide(conn, verb, job_id, priority=7)
        found[state] = (answer, await state_of(conn, job_id))
        await elect(conn)
        priority = (await job_row(conn, job_id))["priority"]
        assert priority == (7 if verb == "reprioritize" and answer == "accepted" else 100)
    assert found == EXPECTED[verb]
    assert await offences(conn) == []
    assert await conn.fetchval("select coalesce(sum(count), 0) from repairs") == 0


#: How a worker may end an attempt, and its own error.
ENDINGS: list[tuple[str, dict[str, Any]]] = [
    ("stop", {"outcomes": ["canceled"]}),
    ("stop", {"outcomes": ["paused"]}),
    ("fail", {"kinds": ["retryable"], "error_messages": ["its own"]}),
    ("fail", {"kinds": ["fatal"], "error_messages": ["its own"]}),
    ("fail", {"kinds": ["hold"], "error_messages": ["its own"]}),
    ("fail", {"kinds": ["retry"], "delays": [3600.0]}),
    ("fail", {"outcomes": ["timeout"]}),
    ("snooze", {"delays": [3600.0]}),
    ("snooze", {"delays": [0.0]}),
    ("hand_back", {"reason": "the worker drained"}),
]
ERRORS = {"retry": "FailedByOperator", "fail": "FailedByOperator", "kill": "KilledByOperator"}


@pytest.mark.parametrize("verb", ERRORS)
async def test_a_verdict_decides_however_the_attempt_ends(conn: asyncpg.Connection, verb: str) -> None:
    for ending, more in ENDINGS:
        lease = await run_one(conn, "work", max_attempts=5)
        assert await decide(conn, verb, lease.job_id, "a known outage") == "accepted"
        told = await conn.fetch("select interrupt from renew('w1', $1, $2)", [lease.job_id], [lease.attempt])
        assert [row["interrupt"] for row in told] == ["cancel"], "workers know no more than that"
        state = "retry" if verb == "retry" else "dead"
        assert await settle(conn, ending, [lease], **more) == [state], ending
        assert await settle(conn, ending, [lease], **more) == [state], "a repeat is answered the same"
        assert await last_attempt(conn, lease.job_id) == ("failed", ERRORS[verb], "a known outage")
        job = await job_row(conn, lease.job_id)
        assert (job["failures"], job["last_error"]) == (1, "a known outage")
        assert job["reason"] == ("killed" if verb == "kill" else "failed")
        if verb == "retry":
            wait = await conn.fetchval("select run_at - updated_at from jobs where id = $1", lease.job_id)
            assert wait.total_seconds() < 10, "as after an ordinary failure, not what the handler asked for"
        else:
            letter = await conn.fetchrow("select * from dead_letters where job_id = $1", lease.job_id)
            assert letter is not None
            assert (letter["error_type"], letter["error_message"]) == (ERRORS[verb], "a known outage")
        event = await conn.fetchrow("select event, by, note from job_events where job_id = $1", lease.job_id)
        assert event is not None
        assert tuple(event) == ("killed" if verb == "kill" else "failed", "ada", "a known outage")
    assert await offences(conn) == []


async def test_a_success_under_way_wins(conn: asyncpg.Connection) -> None:
    for verb in ERRORS:
        lease = await run_one(conn)
        await act(conn, verb, lease.job_id)
        assert await settle(conn, "complete", [lease]) == ["success"]
        await conn.execute("select execute_requests(100)")
        assert await state_of(conn, lease.job_id) == "success"
        result = await conn.fetchval("select result from jobs where type like 'holdfast.%' order by id desc limit 1")
        assert json.loads(result) == {"outcome": "already-final"}
    assert await conn.fetchval("select count(*) from dead_letters") == 0


@pytest.mark.parametrize("verb", ERRORS)
async def test_a_verdict_holds_when_the_worker_is_gone_and_its_late_report_does_not_count(
    conn: asyncpg.Connection, verb: str
) -> None:
    lease = await run_one(conn)
    await decide(conn, verb, lease.job_id)
    await expire(conn, lease.job_id)
    state = "retry" if verb == "retry" else "dead"
    assert await sweep(conn) == {lease.job_id: state}
    assert await last_attempt(conn, lease.job_id) == ("failed", ERRORS[verb], "because")
    late: list[tuple[str, dict[str, Any]]] = [("complete", {}), ("fail", {}), ("stop", {"outcomes": ["canceled"]})]
    for ending, more in late:
        assert await settle(conn, ending, [lease], **more) == ["lease-lost"], "the engine has ended this attempt"
    assert await offences(conn) == []


@pytest.mark.parametrize(("on_failure", "state"), [("retry", "dead"), ("hold", "error")])
async def test_a_retry_by_hand_uses_up_the_budget_like_any_other(
    conn: asyncpg.Connection, on_failure: str, state: str
) -> None:
    await publish(conn, on_failure=on_failure, backoff_base=0)
    job_id = await enqueue(conn, max_attempts=2)
    for expected in ("retry", state):
        await promote(conn)
        (lease,) = await claim(conn)
        await decide(conn, "retry", job_id)
        assert await settle(conn, "stop", [lease], outcomes=["canceled"]) == [expected]
    assert (await job_row(conn, job_id))["failures"] == 2
    assert await offences(conn) == []


async def test_a_job_that_waits_dies_with_a_letter_and_its_target_goes_on(conn: asyncpg.Connection) -> None:
    for state, verb in product(("retry", "error"), ("fail", "kill")):
        target = f"{state}-{verb}"
        job_id = await job_in(conn, state, target=target, dedup_key=target)
        behind = await enqueue(conn, target=target)
        await elect(conn)
        assert await claim_by_id(conn, behind) is None
        assert await decide(conn, verb, job_id, "known to be bad") == "accepted"
        letter = await conn.fetchrow("select error_type, error_message from dead_letters where job_id = $1", job_id)
        assert letter is not None
        assert tuple(letter) == (ERRORS[verb], "known to be bad")
        job = await job_row(conn, job_id)
        assert (job["last_error"], job["failures"], job["dedup_key"]) == ("known to be bad", 1, None)
        assert await last_attempt(conn, job_id) == ("failed", None, "boom"), "what it failed with is kept"
        assert await claim_by_id(conn, behind) is not None
    assert await offences(conn) == []


async def test_a_job_that_waits_and_is_killed_is_counted_among_the_failures(conn: asyncpg.Connection) -> None:
    job_id = await job_in(conn, State.RETRY)
    await conn.execute("delete from failures")
    assert await decide(conn, "kill", job_id, "no longer wanted") == "accepted"
    for _ in range(2):  # before and after the leader has added it up
        (found,) = await conn.fetch("select * from list_failures()")
        assert (found["count"], found["open_count"], found["sample_job_id"]) == (1, 1, job_id)
        await conn.execute("select * from add_failures()")
    assert (found["error_type"], found["message"]) == ("KilledByOperator", "no longer wanted")


async def test_without_words_the_error_says_who(conn: asyncpg.Connection) -> None:
    lease = await run_one(conn)
    await act(conn, "kill", lease.job_id, None)
    await settle(conn, "stop", [lease], outcomes=["canceled"])
    assert await last_attempt(conn, lease.job_id) == ("failed", "KilledByOperator", "killed by ada")


#: A decision, one that comes after it, and which of them holds.
MEETINGS = [
    ("pause", "retry", "retry"), ("pause", "fail", "fail"), ("pause", "kill", "kill"), ("pause", "cancel", "cancel"),
    ("retry", "fail", "fail"), ("retry", "kill", "kill"), ("retry", "cancel", "cancel"),
    ("retry", "resolve", "resolve"), ("retry", "retry", "retry"), ("kill", "kill", "kill"), ("kill", "fail", "kill"),
    ("kill", "retry", "kill"), ("fail", "kill", "fail"), ("cancel", "kill", "cancel"), ("cancel", "retry", "cancel"),
    ("resolve", "fail", "resolve"), ("kill", "cancel", "kill"), ("fail", "resolve", "fail"), ("kill", "pause", "kill"),
]  # fmt: skip
BECOMES = {
    "pause": "paused", "retry": "retry", "fail": "dead", "kill": "dead", "cancel": "canceled", "resolve": "canceled",
}  # fmt: skip


@pytest.mark.parametrize(("first", "second", "holds"), MEETINGS)
async def test_of_two_decisions_about_one_attempt_one_holds(
    conn: asyncpg.Connection, first: str, second: str, holds: str
) -> None:
    lease = await run_one(conn)
    answers = []
    for verb, by in ((first, "ada"), (second, "bob")):
        if verb in ERRORS:
            answers.append(tuple(await act(conn, verb, lease.job_id, f"{by} says so", by=by)))
        else:
            ask = "select outcome from operator_request_as($1, $2, $3, $4, null, null, false)"
            answers.append((await conn.fetchval(ask, verb, lease.job_id, by, f"{by} says so"),))
    assert answers[0][0] == "accepted"
    late = second in ERRORS and second != holds
    assert answers[1] == ("overruled", "running", holds, "ada") if late else answers[1][0] == "accepted"
    await conn.execute("select execute_requests(100)")
    assert await settle(conn, "stop", [lease], outcomes=["canceled"]) == [BECOMES[holds]]
    words = "ada says so" if holds == first else "bob says so"
    assert await conn.fetchval("select note from job_events where job_id = $1", lease.job_id) == words
    if first == second:
        assert await conn.fetchval("select count(*) from jobs where queue = 'holdfast'") == 1, "one request"
    assert await offences(conn) == []


async def test_a_pause_beside_a_retry_is_carried_out_when_the_attempt_has_ended(conn: asyncpg.Connection) -> None:
    lease = await run_one(conn)
    await decide(conn, "retry", lease.job_id)
    assert await execute(conn, "pause", lease.job_id) == "accepted"
    assert await settle(conn, "stop", [lease], outcomes=["canceled"]) == ["retry"]
    waiting = await conn.fetchval("select id from jobs where type = 'holdfast.pause' and state = 'scheduled'")
    await make_due(conn, waiting)
    await promote(conn)
    await conn.execute("select execute_requests()")
    assert await state_of(conn, lease.job_id) == "paused"
    assert await offences(conn) == []


async def test_a_verdict_ends_with_its_attempt(conn: asyncpg.Connection) -> None:
    await publish(conn, backoff_base=0)
    lease = await run_one(conn)
    await decide(conn, "retry", lease.job_id)
    await settle(conn, "stop", [lease], outcomes=["canceled"])
    await promote(conn)
    (again,) = await claim(conn)
    assert again == Lease(lease.job_id, 2)
    await conn.execute("select execute_requests()")
    assert await conn.fetch("select from interrupted('w1', $1, $2)", [again.job_id], [again.attempt]) == []
    assert await settle(conn, "complete", [again]) == ["success"]


async def test_a_job_that_is_queued_before_maintenance_comes_to_its_verdict_dies_with_its_next_attempt(
    conn: asyncpg.Connection,
) -> None:
    job_id = await job_in(conn, "retry")
    assert (await act(conn, "kill", job_id))["outcome"] == "accepted"
    await make_due(conn, job_id)
    await promote(conn)
    await conn.execute("select execute_requests()")
    assert await state_of(conn, job_id) == "queued", "what is queued cannot die"
    (lease,) = await claim(conn)
    await make_due(conn, await conn.fetchval("select id from jobs where type = 'holdfast.kill'"))
    await promote(conn)
    await conn.execute("select execute_requests()")
    assert await settle(conn, "stop", [lease], outcomes=["canceled"]) == ["dead"]
    assert await offences(conn) == []


async def test_an_expired_lease_is_lost_at_once_and_only_that_attempt(conn: asyncpg.Connection) -> None:
    lease = await run_one(conn, target="t")
    for _ in range(2):
        assert (await act(conn, "expire-lease", lease.job_id, "the host burnt down"))["outcome"] == "accepted"
    await conn.execute("select execute_requests(100)")
    assert await state_of(conn, lease.job_id) == "queued"
    words = "its lease was ended by ada: the host burnt down"
    assert await last_attempt(conn, lease.job_id) == ("lost", "LeaseLost", words)
    assert await settle(conn, "complete", [lease]) == ["lease-lost"]
    assert (await job_row(conn, lease.job_id))["failures"] == 1
    # A request that is carried out late does not meet the next attempt.
    again = await claim_by_id(conn, lease.job_id, worker="w2")
    assert again == Lease(lease.job_id, 2)
    await act(conn, "expire-lease", lease.job_id)
    await settle(conn, "hand_back", [again], worker="w2")
    third = await claim_by_id(conn, lease.job_id, worker="w2")
    assert third is not None
    await conn.execute("select execute_requests(100)")
    assert await settle(conn, "complete", [third], worker="w2") == ["success"]
    assert await offences(conn) == []


async def test_nobody_else_has_these_verbs(conn: asyncpg.Connection, connect_as: ConnectAs) -> None:
    lease = await run_one(conn, tenant="acme")
    for verb in ("fail", "kill", "expire-lease", "reprioritize"):
        with pytest.raises(asyncpg.PostgresError, match="unknown request"):
            await request(conn, verb, lease.job_id)
        answer = await act(conn, verb, lease.job_id, only_tenant="other", priority=1)
        assert tuple(answer) == ("not-found", None, None, None)
        assert (await act(conn, verb, uuid4(), priority=1))["outcome"] == "not-found"
        for role in ("api", "worker", "client"):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await act(await connect_as(role), verb, lease.job_id, priority=1)
    asked = await conn.fetchval("select request_id from request('pause', array[$1::uuid])", lease.job_id)
    assert (await act(conn, "kill", asked))["outcome"] == "not-found"
    with pytest.raises(asyncpg.PostgresError, match="unknown verb explode"):
        await act(conn, "explode", lease.job_id)
    for wrong in (None, -1, 1_000_000_001):
        with pytest.raises(asyncpg.PostgresError, match="priority must be"):
            await act(conn, "reprioritize", lease.job_id, priority=wrong)


async def test_decisions_are_audited_with_who_and_why(conn: asyncpg.Connection) -> None:
    lease = await run_one(conn, tenant="acme")
    await act(conn, "reprioritize", lease.job_id, "urgent", priority=5)
    await act(conn, "retry", lease.job_id, "an outage")
    await act(conn, "kill", lease.job_id, "enough", by="bob")
    await act(conn, "fail", lease.job_id, "too late", by="eve")
    rows = await conn.fetch("select actor, tenant, action, subject, detail from audit_log order by id")
    assert [(row["actor"], row["action"], json.loads(row["detail"])) for row in rows] == [
        ("ada", "job.reprioritize", {"note": "urgent", "priority": 5, "priority_before": 100}),
        ("ada", "job.fail", {"note": "an outage", "will_retry": True}),
        ("bob", "job.kill", {"note": "enough"}),
    ]
    assert {(row["tenant"], row["subject"]) for row in rows} == {("acme", str(lease.job_id))}


async def test_a_killed_job_can_be_explained_while_its_handler_runs_on(conn: asyncpg.Connection) -> None:
    lease = await run_one(conn)
    await act(conn, "kill", lease.job_id, "enough")
    sentence = await conn.fetchval("select sentence from explain($1, null)", lease.job_id)
    assert 'and was killed by ada ("enough"), but its handler has not ended yet' in sentence


@pytest.mark.parametrize("verb", ["kill", "retry", "expire-lease"])
async def test_a_decision_that_meets_a_settlement_under_way_has_one_outcome(connect_as: ConnectAs, verb: str) -> None:
    """Both ways round: the settlement has locked the lease first, or the decision has."""
    worker, operator = await connect_as("worker"), await connect_as("superuser")
    for ending, settled in (("complete", "success"), ("fail", "retry"), ("stop", "canceled")):
        more: dict[str, Any] = {"outcomes": ["canceled"]} if ending == "stop" else {}
        lease = await run_one(worker)
        async with worker.transaction():
            assert await settle(worker, ending, [lease], **more) == [settled]
            deciding = asyncio.create_task(decide(operator, verb, lease.job_id))
            if verb == "expire-lease":  # which waits for nobody, and is carried out later
                await deciding
            else:
                await blocked(worker, operator)
        answer = await deciding
        await carry_out_all(operator)
        if verb == "expire-lease":
            assert (answer, await state_of(operator, lease.job_id)) == ("accepted", settled)
        elif settled == "retry":  # a job that waits for its retry can be killed, but has failed already
            expected = ("accepted", "dead") if verb == "kill" else ("not-possible", "retry")
            assert (answer, await state_of(operator, lease.job_id)) == expected
        else:
            assert (answer, await state_of(operator, lease.job_id)) == ("already-final", settled)

        lease = await run_one(worker)
        async with operator.transaction():
            await decide(operator, verb, lease.job_id)
            settling = asyncio.create_task(settle(worker, ending, [lease], **more))
            await blocked(operator, worker)
        becomes = {"kill": "dead", "retry": "retry", "expire-lease": "lease-lost"}[verb]
        assert await settling == ["success" if ending == "complete" and verb != "expire-lease" else becomes]
    assert await offences(operator) == []


async def test_kills_and_endings_race_and_every_job_ends_once(connect_as: ConnectAs) -> None:
    worker, operator, maintenance = [await connect_as("superuser") for _ in range(3)]
    await publish(worker, backoff_base=3600)
    for round_ in range(40):
        lease = await run_one(worker, max_attempts=5)
        ending = ("complete", "fail", "stop", "hand_back")[round_ % 4]
        verb = ("kill", "retry", "fail", "expire-lease")[round_ // 4 % 4]
        more: dict[str, Any] = {"outcomes": ["canceled"]} if ending == "stop" else {}

        async def maintain() -> None:
            for _ in range(3):
                await maintenance.execute("select execute_requests(10)")

        (state,), answer, _ = await asyncio.gather(
            settle(worker, ending, [lease], **more), act(operator, verb, lease.job_id), maintain()
        )
        await carry_out_all(maintenance)
        job = await job_row(worker, lease.job_id)
        attempt = await last_attempt(worker, lease.job_id)
        assert (attempt[0] == "success") == (job["state"] == "success")
        if state == "success":
            assert job["state"] == "success", (ending, verb)
        if answer["outcome"] == "accepted" and verb in ("kill", "fail") and state != "success":
            assert job["state"] == "dead", (ending, verb, answer)
        if verb != "expire-lease" and answer["outcome"] != "accepted":
            assert attempt[1] not in ERRORS.values(), "who was refused has changed nothing"
    assert await offences(operator) == []


async def test_verdicts_of_many_operators_have_one_outcome(connect_as: ConnectAs) -> None:
    worker, *operators = [await connect_as("superuser") for _ in range(5)]
    for _ in range(10):
        lease = await run_one(worker)
        verbs = ("kill", "fail", "kill", "fail")
        answers = await asyncio.gather(
            *(
                act(conn, verb, lease.job_id, by=f"op{n}")
                for n, (conn, verb) in enumerate(zip(operators, verbs, strict=True))
            )
        )
        held = await worker.fetchrow("select verdict, interrupted_by from leases where job_id = $1", lease.job_id)
        assert held is not None
        for verb, answer in zip(verbs, answers, strict=True):
            expected = ("accepted", "running", None, None) if verb == held[0] else ("overruled", "running", *held)
            assert tuple(answer) == expected
        assert await settle(worker, "hand_back", [lease]) == ["dead"]
    assert await offences(worker) == []


@pytest.mark.parametrize("told", [False, True], ids=["before maintenance comes", "after maintenance came"])
@pytest.mark.parametrize(
    ("verb", "word"),
    [
        ("kill", "kill"),
        ("fail", "fail"),
        ("retry", "fail"),
        ("cancel", "cancel"),
        ("pause", "pause"),
        ("resolve", "resolve"),
    ],
)
async def test_a_decision_about_a_running_job_that_came_too_late_is_in_its_history(
    conn: asyncpg.Connection, verb: str, word: str, told: bool
) -> None:
    """The handler succeeds although it was told to stop: success wins, and who had decided what is not forgotten."""
    lease = await run_one(conn)
    if verb in EXPECTED:
        assert (await act(conn, verb, lease.job_id))["outcome"] == "accepted"
    else:
        ask = "select outcome from operator_request_as($1, $2, 'ada', 'because', null, null, false)"
        assert await conn.fetchval(ask, verb, lease.job_id) == "accepted"
    if told:
        await conn.execute("select execute_requests()")
    assert await settle(conn, "complete", [lease]) == ["success"]
    await conn.execute("select execute_requests()")
    rows = await conn.fetch("select event, by, note from job_events where job_id = $1", lease.job_id)
    assert [tuple(row) for row in rows] == [("too-late", "ada", f"{word}: because")]


async def test_a_decision_that_was_passed_on_to_the_lease_comes_too_late_once(conn: asyncpg.Connection) -> None:
    job_id = await enqueue(conn)
    await request(conn, "cancel", job_id)
    lease = await claim_by_id(conn, job_id)
    assert lease is not None
    assert (await act(conn, "retry", job_id))["outcome"] == "overruled"
    assert await settle(conn, "complete", [lease]) == ["success"]
    await conn.execute("select execute_requests()")
    events = await conn.fetch("select event, note from job_events where job_id = $1", job_id)
    assert [tuple(row) for row in events] == [("too-late", "cancel")]

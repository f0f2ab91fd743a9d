"""Every verb against a settlement that is under way, both ways round: one outcome, and the loser is told."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from tests.conftest import ConnectAs
from tests.sql.factories import blocked, job_row, offences, publish, run_one, settle, state_of
from tests.sql.test_by_hand import act, carry_out_all

#: How the attempt ends, and as what.
ENDINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "success": ("complete", {}),
    "retry": ("fail", {"kinds": ["retryable"]}),
    "dead": ("fail", {"kinds": ["fatal"]}),
    "error": ("fail", {"kinds": ["hold"]}),
    "canceled": ("stop", {"outcomes": ["canceled"]}),
    "queued": ("hand_back", {"reason": "drained"}),
}
REQUESTS = ("resolve", "cancel", "pause", "retry-now")
HAND = ("fail-with-retry", "fail", "kill", "expire-lease", "reprioritize")
FINAL: dict[str, tuple[str, str, str | None]] = {
    state: ("already-final", state, None) for state in ("success", "dead", "canceled")
}
#: If the settlement comes first, by how the attempt ended: the answer, the state in the end, and the request's outcome.
LATE: dict[str, dict[str, tuple[str, str, str | None]]] = {
    "fail-with-retry": FINAL | {state: ("not-possible", state, None) for state in ("retry", "error", "queued")},
    "fail": FINAL | {
        "retry": ("accepted", "dead", "dead"), "error": ("accepted", "dead", "dead"),
        "queued": ("not-possible", "queued", None),
    },
    "kill": FINAL | {
        "retry": ("accepted", "dead", "dead"), "error": ("accepted", "dead", "dead"),
        "queued": ("not-possible", "queued", None),
    },
    # It asks before the settlement is visible, and does not wait for it.
    "expire-lease": {state: ("accepted", state, "already-ended") for state in ENDINGS},
    "reprioritize": {
        state: ("accepted", state, "already-final" if state in FINAL else "reprioritized") for state in ENDINGS
    },
    "resolve": FINAL | dict.fromkeys(("retry", "error", "queued"), ("accepted", "canceled", "canceled")),
    "cancel": FINAL | dict.fromkeys(("retry", "error", "queued"), ("accepted", "canceled", "canceled")),
    "pause": FINAL | {
        "retry": ("accepted", "paused", "paused"), "queued": ("accepted", "paused", "paused"),
        "error": ("not-possible", "error", None),
    },
    "retry-now": {state: ("not-possible", state, None) for state in ENDINGS},
}  # fmt: skip
#: If the decision comes first: what becomes of an attempt that does not succeed, if not what its ending says.
BECOMES = {
    "fail-with-retry": "retry", "fail": "dead", "kill": "dead", "resolve": "canceled", "cancel": "canceled",
    "pause": "paused",
}  # fmt: skip
#: Endings that are stronger than what was asked for: a handler that holds its job, and one that is canceled for good.
STRONGER = {("error", "resolve"), ("error", "cancel"), ("error", "pause"), ("canceled", "pause")}


async def ask(conn: asyncpg.Connection, verb: str, job_id: UUID) -> str:
    """Decide something about a job; the answer."""
    if verb in HAND:
        name = "retry" if verb == "fail-with-retry" else verb
        return str((await act(conn, name, job_id, priority=7))["outcome"])
    sql = "select outcome from operator_request_as($1, $2, 'ada', 'because', null, null, false)"
    return str(await conn.fetchval(sql, verb.removesuffix("-now"), job_id))


async def outcome(conn: asyncpg.Connection) -> str | None:
    """What became of the last request."""
    result = await conn.fetchval("select result from jobs where queue = 'holdfast' order by seq desc limit 1")
    return None if result is None else str(json.loads(result)["outcome"])


@pytest.mark.parametrize("verb", LATE)
@pytest.mark.parametrize("ended", ENDINGS)
async def test_a_decision_that_meets_a_settlement(connect_as: ConnectAs, verb: str, ended: str) -> None:
    worker, operator = await connect_as("worker"), await connect_as("superuser")
    await publish(operator, backoff_base=3600)
    ending, more = ENDINGS[ended]
    lease = await run_one(worker)
    async with worker.transaction():
        assert await settle(worker, ending, [lease], **more) == [ended]
        deciding = asyncio.create_task(ask(operator, verb, lease.job_id))
        await blocked(worker, operator, unless=deciding)
    answer = await deciding
    await carry_out_all(operator)
    assert (answer, await state_of(operator, lease.job_id), await outcome(operator)) == LATE[verb][ended]
    assert (await job_row(operator, lease.job_id))["attempt"] == 1
    assert await offences(operator) == []


@pytest.mark.parametrize("verb", LATE)
@pytest.mark.parametrize("ended", ENDINGS)
async def test_a_settlement_that_meets_a_decision(connect_as: ConnectAs, verb: str, ended: str) -> None:
    worker, operator = await connect_as("worker"), await connect_as("superuser")
    await publish(operator, backoff_base=3600)
    ending, more = ENDINGS[ended]
    lease = await run_one(worker)
    async with operator.transaction():
        answer = await ask(operator, verb, lease.job_id)
        if verb == "expire-lease":  # only maintenance touches the lease
            await operator.execute("select execute_requests()")
        settling = asyncio.create_task(settle(worker, ending, [lease], **more))
        await blocked(operator, worker, unless=settling)
    assert answer == ("not-possible" if verb == "retry-now" else "accepted")
    expected = ended if ended == "success" or (ended, verb) in STRONGER else BECOMES.get(verb, ended)
    expected = "lease-lost" if verb == "expire-lease" else expected
    assert await settling == [expected]
    await carry_out_all(operator)
    state = await state_of(operator, lease.job_id)
    assert state == ("queued" if verb == "expire-lease" else expected)
    notes = await operator.fetch("select event, by from job_events where job_id = $1", lease.job_id)
    if expected == "success" and verb in BECOMES:
        assert [tuple(note) for note in notes] == [("too-late", "ada")], "the operator finds out"
    assert await offences(operator) == []

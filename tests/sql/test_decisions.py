"""The pure rules: what becomes of an attempt, how long a retry waits, where a job stands in its stream."""

from __future__ import annotations

from itertools import product
from typing import Any, get_args

import asyncpg
import pytest

from holdfast.model.outcome import COSTS_ATTEMPT, Kind
from holdfast.model.states import TRANSITIONS, State

OUTCOMES = (*get_args(Kind), "lost")

#: What somebody may have decided about the attempt meanwhile: a request, or an operator's verdict.
DECISIONS = (None, "cancel", "resolve", "pause", "retry", "fail", "kill")

#: outcome, kind, interrupt, on_failure, failures, max_attempts, delay → state
TABLE: list[tuple[tuple[Any, ...], str]] = [
    (("success", None, None, "retry", 0, 3, None), "success"),
    (("success", None, "cancel", "retry", 0, 3, None), "success"),
    (("success", None, "pause", "hold", 0, 3, None), "success"),
    (("failed", None, None, "retry", 1, 3, None), "retry"),
    (("failed", "retryable", None, "retry", 2, 3, None), "retry"),
    (("failed", "retryable", None, "retry", 3, 3, None), "dead"),
    (("failed", "retryable", None, "retry", 1, 1, None), "dead"),
    (("timeout", "retryable", None, "retry", 1, 3, None), "retry"),
    (("timeout", "retryable", None, "retry", 3, 3, None), "dead"),
    (("failed", "retry", None, "retry", 1, 3, 5.0), "retry"),
    (("failed", "retry", None, "retry", 3, 3, 5.0), "dead"),
    (("failed", "fatal", None, "retry", 1, 3, None), "dead"),
    (("failed", "fatal", None, "hold", 1, 3, None), "dead"),
    (("failed", "hold", None, "retry", 1, 3, None), "error"),
    (("failed", "hold", "cancel", "retry", 1, 3, None), "error"),
    (("failed", "retryable", None, "hold", 1, 3, None), "error"),
    (("timeout", None, None, "hold", 1, 3, None), "error"),
    (("failed", "retry", None, "hold", 1, 3, 5.0), "retry"),
    (("failed", "retry", None, "hold", 3, 3, 5.0), "error"),
    (("failed", "retryable", "cancel", "retry", 1, 3, None), "canceled"),
    (("failed", "fatal", "pause", "retry", 3, 3, None), "paused"),
    (("canceled", None, None, "retry", 0, 3, None), "canceled"),
    (("paused", None, None, "retry", 0, 3, None), "paused"),
    (("paused", None, "cancel", "retry", 0, 3, None), "canceled"),
    (("released", None, None, "hold", 0, 3, None), "queued"),
    (("released", None, "pause", "retry", 0, 3, None), "paused"),
    (("released", None, "cancel", "retry", 0, 3, None), "canceled"),
    (("snoozed", None, None, "retry", 0, 3, 5.0), "scheduled"),
    (("snoozed", None, None, "retry", 0, 3, 0.0), "queued"),
    (("snoozed", None, None, "retry", 0, 3, None), "queued"),
    (("snoozed", None, "cancel", "retry", 0, 3, 5.0), "canceled"),
    (("lost", None, None, "retry", 1, 3, None), "queued"),
    (("lost", None, None, "retry", 3, 3, None), "dead"),
    (("lost", None, None, "hold", 1, 3, None), "error"),
    (("lost", None, "cancel", "retry", 1, 3, None), "canceled"),
    (("lost", None, "pause", "retry", 3, 3, None), "paused"),
    (("lost", None, "resolve", "retry", 3, 3, None), "canceled"),
    # Verdicts: success wins, and everything else has failed.
    (("success", None, "kill", "retry", 0, 3, None), "success"),
    (("success", None, "retry", "hold", 0, 3, None), "success"),
    *(((outcome, None, verdict, "retry", 1, 3, None), state)
      for outcome in ("failed", "lost", "timeout", "canceled", "paused", "snoozed", "released")
      for verdict, state in (("kill", "dead"), ("fail", "dead"), ("retry", "retry"))),
    (("failed", None, "retry", "retry", 3, 3, None), "dead"),
    (("failed", None, "retry", "hold", 1, 3, None), "retry"),
    (("failed", None, "retry", "hold", 3, 3, None), "error"),
    (("failed", "hold", "kill", "hold", 1, 3, None), "dead"),
    (("failed", "hold", "retry", "hold", 1, 3, None), "retry"),
    (("failed", "fatal", "retry", "retry", 1, 3, None), "retry"),
]  # fmt: skip


async def next_state(conn: asyncpg.Connection, given: tuple[Any, ...]) -> str:
    return str(await conn.fetchval("select next_state($1, $2, $3, $4, $5, $6, $7)", *given))


async def test_every_ending_leads_where_the_table_says(conn: asyncpg.Connection) -> None:
    assert {given: await next_state(conn, given) for given, _ in TABLE} == dict(TABLE)
    assert {given[0] for given, _ in TABLE} == set(OUTCOMES), "a row for every outcome"


async def test_the_same_outcomes_cost_an_attempt_in_sql_and_in_python(conn: asyncpg.Connection) -> None:
    for outcome in OUTCOMES:
        counted = await conn.fetchval("select failures_after($1, 0)", outcome)
        assert counted == await conn.fetchval("select costs_attempt($1)::integer", outcome)
        assert counted == (outcome in COSTS_ATTEMPT), outcome


async def test_every_verdict_is_a_move_that_a_running_job_may_make(conn: asyncpg.Connection) -> None:
    endings = product(
        OUTCOMES,
        (None, "retryable", "retry", "fatal", "hold"),
        DECISIONS,
        ("retry", "hold"),
        ((0, 3), (1, 3), (3, 3)),
        (None, 0.0, 5.0),
    )
    given = [(*ending[:4], *ending[4], ending[5]) for ending in endings]
    rows = await conn.fetch(
        "select next_state(outcome, kind, interrupt, on_failure, failures, max_attempts, delay)"
        " from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::integer[], $6::integer[], $7::float[])"
        " as e (outcome, kind, interrupt, on_failure, failures, max_attempts, delay)",
        *zip(*given, strict=True),
    )
    moves = zip(given, (row[0] for row in rows), strict=True)
    assert [(ending, state) for ending, state in moves if state not in TRANSITIONS[State.RUNNING]] == []


async def test_of_two_decisions_the_firmer_one_holds(conn: asyncpg.Connection) -> None:
    rows = await conn.fetch("select decision, firmness(decision) as firm from unnest($1::text[]) decision", DECISIONS)
    assert {row["decision"]: row["firm"] for row in rows} == {
        None: 0, "pause": 1, "retry": 2, "cancel": 3, "resolve": 3, "fail": 3, "kill": 3,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("base", "most", "examples"),
    [
        (1, 300, {1: 1, 2: 2, 3: 4, 4: 8, 8: 128, 9: 256, 10: 300, 50: 300, 100_000: 300}),
        (30, 3600, {1: 30, 2: 60, 3: 120, 4: 240, 7: 1920, 8: 3600, 9: 3600, 100_000: 3600}),
    ],
    ids=["library", "remote workers"],
)
async def test_backoff_doubles_up_to_its_maximum(
    conn: asyncpg.Connection, base: float, most: float, examples: dict[int, float]
) -> None:
    for failures, seconds in examples.items():
        assert await conn.fetchval("select backoff_seconds($1, $2, 2, $3, 0)", failures, base, most) == seconds


async def test_jitter_adds_up_to_its_share_and_never_takes_away(conn: asyncpg.Connection) -> None:
    rows = await conn.fetch("select backoff_seconds(3, 1, 2, 300, 0.5) as seconds from generate_series(1, 500)")
    delays = [row["seconds"] for row in rows]
    assert 4 <= min(delays) < 4.3
    assert 5.7 < max(delays) <= 6


async def test_rank_puts_returned_jobs_before_new_ones_and_priority_before_both(conn: asyncpg.Connection) -> None:
    ranks = [
        await conn.fetchval("select ready_rank($1, $2)", priority, returned)
        for priority, returned in product((0, 1, 100, 1_000_000_000), (True, False))
    ]
    assert ranks == sorted(set(ranks))
    assert ranks[0] > 0
    assert ranks[-1] < 2_147_483_647


async def test_settings_row_wins_over_environment_and_environment_over_default(conn: asyncpg.Connection) -> None:
    assert await conn.fetchval("select setting('LEASE_SEC_DEFAULT')") == "30"
    await conn.execute("set holdfast.lease_sec_default = '17'")
    assert await conn.fetchval("select setting('LEASE_SEC_DEFAULT')") == "17"
    await conn.execute("update settings set value = '5' where name = 'LEASE_SEC_DEFAULT'")
    assert await conn.fetchval("select setting('LEASE_SEC_DEFAULT')") == "5"

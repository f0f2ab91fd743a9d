"""What one plain job may cost the server, by its own exact counters: a change that makes it dearer must say so here.

Timings depend on the machine; statements, plans, buffers and WAL do not. Batches of 200, as a busy worker makes them.
"""

from __future__ import annotations

import json
import re
from typing import Any

import asyncpg
import pytest

from holdfast.model.hints import Hints
from holdfast.store.statements import functions
from tests.sql.factories import enqueue_copies
from tests.sql.meter import TRIES, leave_alone

pytestmark = pytest.mark.fresh_database

BATCH = 200

#: Bytes of WAL and buffers touched per job, without the full-page images that follow a checkpoint.
BUDGET = {
    "enqueue": (720, 20),
    "claim": (540, 13),
    "complete": (450, 11.5),
}


async def spent(conn: asyncpg.Connection, statement: str, *arguments: Any) -> dict[str, Any]:
    """What a statement has cost, all that its functions did included."""
    (plan,) = json.loads(
        await conn.fetchval(f"explain (analyze, buffers, wal, timing off, format json) {statement}", *arguments)
    )
    found: dict[str, Any] = plan["Plan"]
    return found


async def per_job(conn: asyncpg.Connection) -> dict[str, tuple[float, float]]:
    """(WAL bytes, buffers) per job of each step, measured once; a step with full-page images counts as none."""
    plans: dict[str, dict[str, Any]] = {}
    plans["enqueue"] = await spent(
        conn,
        "select * from enqueue_many($1, $2::text[]::jsonb[], null, 'default', null, $3)",
        ["mine"] * BATCH,
        ['{"text": "' + "x" * 100 + '"}'] * BATCH,
        [await conn.fetchval("select uuid_v7()") for _ in range(BATCH)],
    )
    stream = await conn.fetchval("select id from streams where type = 'mine'")
    plans["claim"] = await spent(
        conn, "select * from claim_from('w1', $1, null, $2, $3, $4, $5)", BATCH, *Hints.everything([stream])
    )
    rows = await conn.fetch("select job_id, attempt from leases")
    plans["complete"] = await spent(
        conn, "select * from complete('w1', $1, $2)", [r["job_id"] for r in rows], [r["attempt"] for r in rows]
    )
    return {
        step: (
            float("inf") if plan["WAL FPI"] else plan["WAL Bytes"] / BATCH,
            (plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]) / BATCH,
        )
        for step, plan in plans.items()
    }


@pytest.mark.usefixtures("one_at_a_time")
async def test_a_plain_job_stays_within_its_budget(conn: asyncpg.Connection) -> None:
    await leave_alone(conn)
    await enqueue_copies(conn, 2000, "mine")
    while await conn.fetchval("select count(*) from claim('w1', array['mine'], 500)"):
        pass
    rows = await conn.fetch("select job_id, attempt from leases")
    await conn.execute("select complete('w1', $1, $2)", [r["job_id"] for r in rows], [r["attempt"] for r in rows])
    least = dict.fromkeys(BUDGET, (float("inf"), float("inf")))
    for _ in range(TRIES):
        for step, (wal, buffers) in (await per_job(conn)).items():
            least[step] = (min(least[step][0], wal), min(least[step][1], buffers))
        if all(least[step] <= BUDGET[step] for step in BUDGET):
            break
    for step, (wal, buffers) in least.items():
        print(f"{step}: {wal:.0f} B of WAL, {buffers:.1f} buffers per job")
    over = {s: found for s, found in least.items() if any(f > b for f, b in zip(found, BUDGET[s], strict=True))}
    assert not over, f"dearer than {BUDGET}"


async def test_hot_functions_plan_once() -> None:
    """Planning every call again would cost more than the call."""
    text = "\n".join(functions().values())
    for name in ("claim_jobs", "complete"):
        body = re.search(rf"create or replace function {name}\(.*?\$\$", text, re.DOTALL)
        assert body is not None
        assert "plan_cache_mode = force_generic_plan" in body.group()


async def test_hot_functions_choose_their_joins_whatever_the_session_says(conn: asyncpg.Connection) -> None:
    """Nested loops over a batch are quadratic, and a plan made under a session's settings stays."""
    await conn.execute("set enable_hashjoin = off")
    await enqueue_copies(conn, 1000, "mine")
    stream = await conn.fetchval("select id from streams where type = 'mine'")
    ranges = Hints.everything([stream])
    claimed = await spent(conn, "select * from claim_from('w1', $1, null, $2, $3, $4, $5)", 1000, *ranges)
    rows = await conn.fetch("select job_id, attempt from leases")
    ids, numbers = [row["job_id"] for row in rows], [row["attempt"] for row in rows]
    ended = await spent(conn, "select * from complete('w1', $1, $2)", ids, numbers)
    assert len(rows) == 1000
    for plan in (claimed, ended):
        assert (plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]) / 1000 < 40
    configured = await conn.fetch("select proconfig from pg_proc where proname in ('claim_jobs', 'complete')")
    assert ["enable_hashjoin=on" in row["proconfig"] for row in configured] == [True, True]


async def test_a_claim_in_a_calm_system_looks_once(conn: asyncpg.Connection) -> None:
    """At the heads of the two ranges, and at the one entry that it locks; a second look would find nothing more."""
    await enqueue_copies(conn, 1, "mine")
    stream = await conn.fetchval("select id from streams where type = 'mine'")
    scans = "select coalesce(idx_scan, 0) from pg_stat_xact_user_tables where relname = 'ready'"
    async with conn.transaction():
        before = await conn.fetchval(scans)
        rows = await conn.fetch(
            "select job_id from claim_from('w1', 20, null, $1, $2, $3, $4)",
            *([stream] * 2, [-1, 202], [0, 0], [202, 2**31 - 1]),
        )
        assert len(rows) == 1
        assert await conn.fetchval(scans) - before <= 3


@pytest.mark.parametrize(
    ("verb", "stale"),
    [
        ("complete('w1', $1, $2)", False),
        ("complete('w1', $1, $2)", True),
        ("snooze('w1', $1, $2, array[60.0])", False),
        ("fail('w1', $1, $2)", False),
    ],
)
async def test_a_job_with_many_attempts_behind_it_is_settled_as_cheaply(
    conn: asyncpg.Connection, verb: str, stale: bool
) -> None:
    """One that polls by snoozing has an attempt every few seconds, for months."""
    await enqueue_copies(conn, 4, "mine")
    leases = await conn.fetch("select * from claim('w1', array['mine'], 4)")
    await conn.execute(
        "insert into job_attempts (job_id, attempt, started_at, outcome, worker)"
        " select $1, n, now(), 'snoozed', 'w1' from generate_series(10, 30000) n",
        leases[-1]["job_id"],
    )
    await conn.execute("analyze job_attempts")
    buffers = []
    for lease in leases:  # the first ones also pay for what a session looks up once
        number = 29_000 if stale else lease["attempt"]
        plan = await spent(conn, f"select * from {verb}", [lease["job_id"]], [number])
        buffers.append(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])
    assert buffers[-1] <= buffers[-2] + 25, buffers


@pytest.mark.parametrize("analyzed", ["empty", "full"])
async def test_outdated_statistics_do_no_harm(conn: asyncpg.Connection, analyzed: str) -> None:
    """A table that was analyzed while it was empty, or full, and is not any more."""
    await leave_alone(conn)
    if analyzed == "full":
        await enqueue_copies(conn, 5000, "other")
        await conn.execute("select claim('w0', array['other'], 5000)")
    await conn.execute("analyze")
    await enqueue_copies(conn, 4000, "mine")
    stream = await conn.fetchval("select id from streams where type = 'mine'")
    before = 0
    for batch in range(20):
        ranges = Hints.everything([stream])
        plan = await spent(conn, "select * from claim_from('w1', $1, null, $2, $3, $4, $5)", BATCH, *ranges)
        rows = await conn.fetch("select job_id, attempt from leases where worker = 'w1'")
        ids, numbers = [row["job_id"] for row in rows], [row["attempt"] for row in rows]
        ended = await spent(conn, "select * from complete('w1', $1, $2)", ids, numbers)
        cost = sum(p["Shared Hit Blocks"] + p["Shared Read Blocks"] for p in (plan, ended))
        before = before or cost
        assert cost < 2 * before + 20 * BATCH, f"batch {batch}"

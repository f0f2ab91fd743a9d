"""Lanes of one's own, as the engine counts, explains and pauses them."""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest

from tests.sql.factories import claim, enqueue, publish
from tests.sql.test_steering import register, rows

LANES = {"fast": 1, "general": 1, "reports": 2}


async def _explained(conn: asyncpg.Connection, job: Any) -> tuple[str, str]:
    row = await conn.fetchrow("select code, sentence as text from explain($1, null)", job)
    assert row is not None
    return row["code"], row["text"]


async def test_slots_in_use_are_counted_per_lane(conn: asyncpg.Connection) -> None:
    """Jobs beyond the slots of their lane use general ones; workers that tell are believed."""
    await publish(conn, "report", lane="reports")
    await register(conn, "w1", "report", lanes=LANES)
    for _ in range(3):
        await enqueue(conn, "report")
    await claim(conn, "report", limit=3)
    figures = {row["lane"]: (row["slots"], row["used"]) for row in await rows(conn, "lane_slots()")}
    assert figures == {"fast": (1, 0), "general": (1, 1), "reports": (2, 2)}
    await conn.execute("""select beat_with_slots('w1', false, '{"reports": 1, "general": 0}')""")
    figures = {row["lane"]: (row["slots"], row["used"]) for row in await rows(conn, "lane_slots()")}
    assert (figures["general"], figures["reports"]) == ((1, 0), (2, 1))
    listed = {row["name"]: (row["running"], row["slots"]) for row in await rows(conn, "list_lanes()")}
    assert listed["reports"] == (3, 2)


async def test_a_job_is_explained_by_the_slots_that_may_run_it(conn: asyncpg.Connection) -> None:
    """Its lane's and general ones; without slots of its own, it waits for a general one."""
    await publish(conn, "report", lane="reports")
    await publish(conn, "mail", lane="fast")
    await register(conn, "w1", "report", "mail", "work", lanes=LANES)
    for _ in range(2):
        await enqueue(conn, "work")
    await claim(conn, "work", limit=1)
    await enqueue(conn, "mail")
    await claim(conn, "mail", limit=1)
    waiting = await enqueue(conn, "report")
    assert (await _explained(conn, waiting))[0] == "starting"
    await conn.execute("""update workers set lanes = '{"fast": 1, "general": 1}'""")
    code, text = await _explained(conn, waiting)
    assert (code, "the 2 slots" in text or "the one slot of the worker that may run it is busy" in text) == (
        "busy",
        True,
    )
    await conn.execute("""update workers set lanes = '{"fast": 1, "general": 0}'""")
    code, text = await _explained(conn, waiting)
    assert code == "lane-unserved"
    assert "its lane reports" in text


async def test_a_lane_of_ones_own_can_be_paused_and_resumed_when_nobody_knows_it_any_more(
    conn: asyncpg.Connection,
) -> None:
    await publish(conn, "report", lane="reports")
    job = await enqueue(conn, "report")
    await conn.execute("select pause_subject('lane', 'reports', 'ada')")
    assert (await _explained(conn, job))[0] == "lane-paused"
    await publish(conn, "report", lane="general", version=2)
    assert await conn.fetchval("select resume_subject('lane', 'reports', 'ada')")
    with pytest.raises(asyncpg.PostgresError, match="unknown lane reports; known are fast, general"):
        await conn.execute("select pause_subject('lane', 'reports', 'ada')")


@pytest.mark.parametrize(
    "value",
    [
        "reports",
        "reports=0",
        "reports=2h",
        "fast=60",
        "general=60",
        "reports=1,",
        "=5",
        "reports=1e3",
        "reports=1,reports=2",
    ],
)
async def test_sql_refuses_timeouts_of_lanes_that_workers_could_not_use(conn: asyncpg.Connection, value: str) -> None:
    with pytest.raises(asyncpg.PostgresError, match="LANE_TIMEOUTS must"):
        await conn.execute("update settings set value = $1 where name = 'LANE_TIMEOUTS'", value)
    await conn.execute("update settings set value = 'reports=7200,imports=0.5' where name = 'LANE_TIMEOUTS'")

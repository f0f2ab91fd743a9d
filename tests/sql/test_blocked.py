"""Many blocked targets: they cost others nothing, and are listed page by page."""

from __future__ import annotations

import asyncpg
import pytest

from tests.conftest import CHAOS_SECONDS
from tests.sql.factories import enqueue_many
from tests.sql.meter import TRIES, totals, undisturbed
from tests.sql.test_cost import assert_within, measured_empty, prepared

pytestmark = [pytest.mark.usefixtures("one_at_a_time"), pytest.mark.fresh_database, pytest.mark.alone]

TARGETS, EACH = (20_000 if CHAOS_SECONDS else 1_500), 5
NAMES = [f"t{n:05}" for n in range(TARGETS)]


async def block(conn: asyncpg.Connection) -> None:
    """Targets of the very stream that the worker takes from, each held in error before five others."""
    await enqueue_lines(conn, 1)
    while rows := await conn.fetch("select job_id, attempt from claim('w1', array['mine'], 5000)"):
        jobs, numbers = [row["job_id"] for row in rows], [row["attempt"] for row in rows]
        fail = "select fail('w1', $1::uuid[], $2::integer[], array_fill('hold'::text, array[$3::integer]))"
        await conn.execute(fail, jobs, numbers, len(jobs))
    assert await conn.fetchval("select count(*) from jobs where state = 'error'") == TARGETS
    await enqueue_lines(conn, EACH)
    assert await conn.fetchval("select count(*) from waiting") == TARGETS * EACH


async def enqueue_lines(conn: asyncpg.Connection, each: int) -> None:
    for start in range(0, TARGETS, 2000):
        names = [name for name in NAMES[start : start + 2000] for _ in range(each)]
        await enqueue_many(conn, [("mine", {}, {"target": name}) for name in names])
    while await conn.fetchval("select elect(10000)"):
        pass


async def least(conn: asyncpg.Connection, bound: float, statement: str, *arguments: object) -> float:
    """The buffers that a statement touches: at most the bound, unless something disturbs all tries."""
    for _ in range(TRIES):
        before = await totals(conn)
        await conn.fetch(statement, *arguments)
        touched = (await totals(conn) - before).buffers
        if touched <= bound:
            break
        await undisturbed(conn)
    return touched


@pytest.mark.timeout(600)
async def test_thousands_of_blocked_targets_cost_others_nothing(conn: asyncpg.Connection) -> None:
    for table in ("jobs", "ready", "waiting", "heads", "calls", "leases", "job_attempts", "job_events"):
        await conn.execute(f"alter table {table} set unlogged")
    worker = await prepared(conn)
    empty = await measured_empty(conn, worker)
    await block(conn)
    await conn.execute("vacuum analyze")
    await assert_within(conn, worker, empty, f"{TARGETS * EACH} jobs behind {TARGETS} blocked targets")

    page = "select * from list_targets(only_blocked => true, after_tenant => 'default', after_target => $1)"
    seen: list[str] = []
    for _ in range(3):
        (found,) = await conn.fetch(page, seen[-1] if seen else "")
        seen += found["targets"]
        assert found["reached_target"] == seen[-1]
    assert seen == NAMES[:150]
    # Per target its head, the job, and the way through two indexes: the same at the end as at the beginning.
    for after in ("", NAMES[TARGETS // 2], NAMES[-51]):
        assert await least(conn, 600, page, after) <= 600
    show = "select * from show_targets(array_fill('default'::text, array[50]), $1)"
    assert await least(conn, 1500, show, seen[:50]) <= 1500
    (last,) = await conn.fetch(page, NAMES[-2])
    assert (last["targets"], last["reached_target"]) == ([NAMES[-1]], None)
    # Names that are not blocked are passed over, up to a bound.
    (none,) = await conn.fetch("select * from list_targets('nobody', true)")
    assert (none["targets"], none["reached_target"]) == ([], None)
    explain = "select * from explain((select job_id from waiting order by place desc limit 1))"
    (told,) = await conn.fetch(explain)
    assert told["code"] == "target"

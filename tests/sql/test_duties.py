"""A call of a duty looks at a bounded number of rows, whatever the size of the tables, and walks reach everything."""

from __future__ import annotations

import re
import time
from pathlib import Path
from uuid import UUID, uuid4

import asyncpg
import pytest

from tests.conftest import CHAOS_SECONDS, ConnectAs
from tests.sql import crowd
from tests.sql.factories import (
    claim,
    elect,
    enqueue,
    enqueue_copies,
    enqueue_many,
    job_in,
    make_due,
    offences,
    request,
    run_one,
    settle,
    state_of,
)
from tests.sql.meter import TRIES, Cost, leave_alone, totals, undisturbed

SQL = Path(__file__).parents[2] / "src/holdfast/sql"
SMALL, LARGE = 1_000, 20_000 if CHAOS_SECONDS else 8_000
#: One call of each duty. None of them comes to the end of the small tables.
CALLS = (
    "select from reconcile_pages(0, 20)",
    "select from retire_from(null, 100, 500)",
    "select from age_lines(0, 0, 200, 100)",
    "select from replace_heads(null, 200)",
    "select from seat_headless(null, 200)",
    "select from show_hidden(null, 200)",
    "select from drop_stray_leases(null, 200)",
    "select from drop_stray_entries(null, 200)",
    "select from drop_stray_due(null, 200)",
    "select from drop_stray_dormant(null, 200)",
    "select from forget_idle_permits(null, 200)",
    "select from serve_ready(null, 200)",
    "select from forget_streams(null, 200)",
    "select from forget_streams(array['streams', '0'], 200)",
    "select from elect_from(0, 50)",
    "select from promote_due(50)",
    "select from promote_behind(max_jobs => 50, max_looked => 400)",
    "select from promote_behind(passed => array['default'], max_jobs => 50, max_looked => 400)",
    "select from admit('', 50)",
    "select from execute_requests(5)",
    "select from sweep(1e9, 50)",
    "select from turn_bulk()",
    "select from advance_bulk((select b.id from bulks b), 50)",
    "select from forget_bulks(50)",
    "select from due_schedules(50)",
    "select from rewind_schedules(null, 200)",
    "select from retire_schedules(null, 200)",
    "select from forget_fires(null, 200)",
    "select from forget_pulls(null, 200)",
    "select from fix_bulk((select b from bulks b), 100)",
    "select from end_bulk((select b from bulks b), 100)",
    "select from clamp_rates('rate', 0, 200)",
    "select from add_failures(0, 200)",
    "select from drop_recovered(null, 200)",
    "select from forget_fingerprints(null, 200)",
    "select from read_letters(null, 200)",
    "select from note_held(null, 200)",
    "select from note_dormant(null, 200)",
    "select from clamp_backoff('-infinity', '00000000-0000-0000-0000-000000000000', 200)",
)
#: What maintenance asks for, and why its cost is not among these.
NOT_MEASURED = {
    "preside": "the leader's term, no duty", "resign": "the leader's term, no duty", "unheard": "reads no table",
    "recover": "sweep, which takes leases back alike, is measured", "ended_attempts": "it is given their ids",
    "review_leases": "there are no more leases than slots", "clamp_leases": "there are no more leases than slots",
    "fire_schedules": "it is given their ids", "refuse_schedule": "it is given their ids",
    "retire_known": "retire_from, which calls it, is measured", "forget_workers": "there is a row per worker",
}  # fmt: skip
WALKS = ("drop_stray_leases", "drop_stray_entries", "drop_stray_due", "show_hidden", "replace_heads", "seat_headless")


async def fill(conn: asyncpg.Connection, count: int) -> None:
    await crowd.ended(conn, count)
    await crowd.due_later(conn, count)
    await crowd.overdue(conn, count)
    await crowd.held_targets(conn, count)
    await crowd.ready_streams(conn, count)
    await crowd.permits(conn, count)
    await crowd.calls(conn, count)
    await crowd.failures(conn, count)
    await crowd.bulk(conn, count)
    await crowd.schedules(conn, count)
    await crowd.pulls(conn, count)
    await conn.execute("insert into walks values ('held'), ('dormant') on conflict do nothing")


async def visited(conn: asyncpg.Connection, call: str) -> Cost:
    """Buffers and rows of one call that leaves nothing behind."""
    before = await totals(conn)
    transaction = conn.transaction()
    await transaction.start()
    await conn.execute(call)
    await transaction.rollback()
    return await totals(conn) - before


async def visited_within(conn: asyncpg.Connection, call: str, bound: Cost) -> Cost:
    """The same, repeated while it exceeds the bound.

    A transaction elsewhere can keep the vacuum from marking pages as visible to all; each row is then read twice.
    """
    for _ in range(TRIES):
        cost = await visited(conn, call)
        if cost.buffers <= bound.buffers and cost.rows <= bound.rows:
            break
        await undisturbed(conn)
        await conn.execute("vacuum")
    return cost


async def most_visited(conn: asyncpg.Connection, call: str) -> Cost:
    """The most of three: the server's counters sometimes come late."""
    tries = [await visited(conn, call) for _ in range(3)]
    return Cost(max(cost.buffers for cost in tries), max(cost.rows for cost in tries))


def test_the_cost_of_every_duty_is_measured() -> None:
    asked = re.findall(r"holdfast\.(\w+)\(", (SQL / "queries/maintenance.sql").read_text())
    measured = {call.split()[2].partition("(")[0] for call in CALLS}
    assert {name for name in asked if name not in measured and name not in NOT_MEASURED} == set(), "add it to CALLS"
    assert NOT_MEASURED.keys() <= set(asked)


@pytest.mark.fresh_database
@pytest.mark.usefixtures("one_at_a_time")
@pytest.mark.parametrize("analysed", ["never", "while small"])
async def test_a_call_costs_the_same_at_any_size_of_the_tables(conn: asyncpg.Connection, analysed: str) -> None:
    await leave_alone(conn)
    await fill(conn, SMALL)
    await conn.execute("vacuum")
    if analysed != "never":
        await conn.execute("analyze")
    small = [await most_visited(conn, call) for call in CALLS]
    await conn.execute("set session_replication_role = replica")
    await conn.execute(
        "truncate heads, waiting, due, dormant, ready, jobs, job_attempts, permits, calls,"
        " failures, fingerprints, failing, dead_letters"
    )
    await conn.execute("set session_replication_role = default")
    await fill(conn, LARGE)
    await conn.execute("vacuum")
    for call, cost in zip(CALLS, small, strict=True):
        bound = Cost(1.5 * cost.buffers + 60, 1.5 * cost.rows + 60)  # the B-trees are a level deeper
        found = await visited_within(conn, call, bound)
        print(f"{call}: buffers {cost.buffers:.0f} → {found.buffers:.0f}, rows {cost.rows:.0f} → {found.rows:.0f}")
        assert found.buffers <= bound.buffers, call
        assert found.rows <= bound.rows, call


async def test_walks_in_small_steps_reach_and_mend_everything(conn: asyncpg.Connection) -> None:
    await crowd.held_targets(conn, 300)
    lost = await enqueue_copies(conn, 40)
    await conn.execute("delete from ready where job_id = any ($1)", lost)
    for job_id in lost[::3]:
        await conn.execute(
            "insert into leases values ($1, 7, 1, 30, now(), now(), now() + interval '1 hour', 'w9')", job_id
        )
    ends = await job_in(conn, "success")
    await conn.execute("update heads set job_id = $1 where target like '%7'", ends)
    await conn.execute("delete from heads where target like '%3'")
    await enqueue_copies(conn, 20, "hidden")
    hidden = await conn.fetchval("select id from streams where type = 'hidden'")
    await conn.execute("update ready set stream = -stream where stream = $1", hidden)
    await enqueue_copies(conn, 10, delay=60.0)
    await conn.execute(
        "insert into ready select $1, 202, n, gen_random_uuid() from generate_series(1000000, 1000029) n", hidden
    )
    await conn.execute(
        "insert into due select now() + make_interval(days => n), gen_random_uuid() from generate_series(-9, 20) n"
    )
    mended: dict[str, int] = {}
    for walk in WALKS:
        place: list[str] | None = None
        for _ in range(200):
            row = await conn.fetchrow(f"select mended, reached from {walk}($1, 7)", place)
            assert row is not None
            mended[walk] = mended.get(walk, 0) + row["mended"]
            place = row["reached"]
            if place is None:
                break
        else:
            raise AssertionError(f"{walk} does not end")
    assert mended == {
        "drop_stray_leases": 14,
        "drop_stray_entries": 30,
        "drop_stray_due": 30,
        "show_hidden": 20,
        "replace_heads": 30,
        "seat_headless": 30,
    }
    assert sorted(await reconciled(conn, pages=2)) == sorted(lost)
    await conn.execute("delete from jobs where state = 'success'")
    held = "a held job blocks its target"  # its seat was taken from it by this test
    assert {found for found, _ in await offences(conn)} <= {held, "every ended attempt left a row"}


async def reconciled(conn: asyncpg.Connection, *, pages: int, repairs: int = 500) -> list[UUID]:
    """Walk over all pages; the jobs that were mended."""
    found: list[UUID] = []
    page: int | None = 0
    for _ in range(10_000):
        rows = await conn.fetch("select * from reconcile_pages($1, $2, $3)", page, pages, repairs)
        found += [row["job_id"] for row in rows[:-1]]
        assert rows[-1]["job_id"] is None
        page = rows[-1]["reached"]
        if page is None:
            return found
    raise AssertionError("the walk does not end")


@pytest.mark.fresh_database  # where earlier tests had jobs, these may stand behind the first hundred pages
async def test_reconciliation_mends_a_bounded_number_per_call_and_counts_open_jobs(conn: asyncpg.Connection) -> None:
    jobs = await enqueue_copies(conn, 50)
    await conn.execute("delete from ready")
    # Whatever an earlier test left of the table's pages.
    rows = await conn.fetch("select * from reconcile_pages(0, 100000, 20)")
    assert len(rows) == 21
    assert (rows[-1]["reached"], rows[-1]["open_jobs"]) == (0, 50)
    assert await reconciled(conn, pages=100_000, repairs=20) == await reconciled_after(conn, jobs, rows)
    assert await offences(conn) == []
    assert await conn.fetchval("select count from repairs where kind = 'queued-without-ready'") == 50
    (row,) = await conn.fetch("select * from reconcile_pages(1000000, 100)")
    assert (row["reached"], row["open_jobs"]) == (None, 0)


async def reconciled_after(conn: asyncpg.Connection, jobs: list[UUID], rows: list[asyncpg.Record]) -> list[UUID]:
    """Those that the first call left, as they lie in the table."""
    first = {row["job_id"] for row in rows}
    stored = [row["id"] for row in await conn.fetch("select id from jobs where id = any ($1) order by ctid", jobs)]
    return [job_id for job_id in stored if job_id not in first]


async def test_locked_jobs_do_not_stop_reconciliation(conn: asyncpg.Connection, connect_as: ConnectAs) -> None:
    other = await connect_as("superuser")
    await enqueue_copies(conn, 10)
    await conn.execute("delete from ready")
    async with other.transaction():
        await other.execute("select from jobs for update")
        await conn.execute("set lock_timeout = '1s'")
        assert await reconciled(conn, pages=1, repairs=1) == []
    assert len(await reconciled(conn, pages=1, repairs=3)) == 10


async def test_retention_skips_kept_jobs_and_deletes_expired_ones_in_bounded_steps(conn: asyncpg.Connection) -> None:
    await crowd.ended(conn, 500, age="8 days")
    stays = [await job_in(conn, state) for state in ("queued", "paused", "dead")]
    old = UUID("0190" + uuid4().hex[4:])
    await conn.execute("select enqueue_many(array['work'], array['{}'::jsonb], ids => array[$1::uuid])", old)
    await crowd.ended(conn, 200, age="1 day")
    deleted, visited, place, firsts = 0, 0, None, []
    for _ in range(100):
        row = await conn.fetchrow("select * from retire_from($1, 50, 120)", place)
        assert row is not None
        assert row["deleted"] <= 50
        assert row["visited"] <= 120
        deleted, visited, place = deleted + row["deleted"], visited + row["visited"], row["reached"]
        firsts += [row["kept"]] if row["kept"] else []
        if place is None:
            break
    else:
        raise AssertionError("the walk does not end")
    assert deleted == 500
    assert visited < 2000
    assert firsts[0] == old
    assert await conn.fetchval("select count(*) from jobs") == 204
    assert await conn.fetchval("select count(*) from job_attempts where job_id not in (select id from jobs)") == 0
    assert [await state_of(conn, job_id) for job_id in (*stays, old)] == ["queued", "paused", "dead", "queued"]
    (row,) = await conn.fetch("select * from retire_from($1)", old)
    assert row["deleted"] == 0


async def test_retention_finds_expired_jobs_behind_recent_jobs_with_old_ids(conn: asyncpg.Connection) -> None:
    """A client's clock was a month behind; the ids begin with its time."""
    await crowd.ended(conn, 20, age="8 days")
    month_ago = int((time.time() - 30 * 86_400) * 1000)
    ids = [UUID(int=month_ago << 80 | n) for n in range(300)]
    await conn.execute(
        "select enqueue_many(array_agg('work'::text), array_agg('{}'::jsonb), ids => array_agg(id)) "
        "from unnest($1::uuid[]) id",
        ids,
    )
    deleted, place = 0, None
    for _ in range(10):
        row = await conn.fetchrow("select * from retire_from($1, 50, 120)", place)
        assert row is not None
        deleted, place = deleted + row["deleted"], row["reached"]
        if place is None:
            break
    else:
        raise AssertionError("the walk does not end")
    assert deleted == 20


async def test_retention_finds_expired_letters_behind_jobs_that_are_younger_than_that_of_others(
    conn: asyncpg.Connection,
) -> None:
    await conn.execute("update settings set value = '0' where name = 'RETENTION_DEAD_DAYS'")
    await enqueue_copies(conn, 300)
    letters = [await job_in(conn, "dead") for _ in range(20)]
    await conn.execute("update dead_letters set acknowledged_at = now() - interval '1 minute', acknowledged_by = 'ada'")
    place = None
    for _ in range(10):
        row = await conn.fetchrow("select * from retire_from($1, 50, 120)", place)
        assert row is not None
        if (place := row["reached"]) is None:
            break
    assert await conn.fetchval("select count(*) from jobs where id = any ($1)", letters) == 0


async def test_ageing_in_small_steps_ages_what_one_walk_would(conn: asyncpg.Connection) -> None:
    for n in range(12):
        await enqueue_many(conn, [(f"work{n}", {}, {"priority": 10 * rank}) for rank in range(3)] * 2)
    await conn.execute("update ready set ready_at = now() - interval '1 hour' where seq % 3 > 0")
    aged, stream, rank, lowest, highest = 0, 0, 0, 10**9, -1
    for _ in range(200):
        row = await conn.fetchrow("select * from age_lines($1, $2, 5, 2, $3)", stream, rank, lowest < highest)
        assert row is not None
        assert row["aged"] <= 2
        aged += row["aged"]
        lowest, highest = min(lowest, row["lowest"] or 0), max(highest, row["highest"] or 0)
        stream, rank = row["reached_stream"], row["reached_rank"]
        if stream is None:
            break
    else:
        raise AssertionError("the walk does not end")
    assert await conn.fetchval("select count(*) from ready where rank = 0") == aged
    assert await conn.fetchval("select age()") == 0
    assert aged == 48


async def test_jobs_of_one_rank_are_left_alone_until_the_walk_before_met_another(conn: asyncpg.Connection) -> None:
    for n in range(6):
        await enqueue(conn, f"work{n}")
    await enqueue(conn, "work9", priority=5)
    await conn.execute("update ready set ready_at = now() - interval '1 hour'")
    assert await conn.fetchval("select aged from age_lines(0, 0, 3)") == 0
    assert await conn.fetchval("select aged from age_lines(0, 0, 3, mixed => true)") == 3
    assert await conn.fetchval("select aged from age_lines()") == 4


async def test_one_request_does_not_wait_behind_a_bulk(conn: asyncpg.Connection) -> None:
    many, urgent = await enqueue_copies(conn, 150), await enqueue(conn)
    await conn.execute("select from request('cancel', $1)", many)
    assert await request(conn, "cancel", urgent) == "accepted"
    assert await conn.fetchval("select execute_requests(5)") == 5
    assert await state_of(conn, urgent) == "canceled"
    while await conn.fetchval("select execute_requests(50)"):
        pass
    assert await conn.fetchval("select count(*) from jobs where state = 'canceled'") == 151


async def test_promotion_does_not_wait_for_locked_permits(conn: asyncpg.Connection, connect_as: ConnectAs) -> None:
    other = await connect_as("superuser")
    job_id = await enqueue(conn, delay=60)
    await make_due(conn, job_id)
    await conn.execute("insert into parked values (1, 202, 1, 'key:x')")
    async with other.transaction():
        await other.execute("lock table permits, parked")
        await conn.execute("set lock_timeout = '200ms'")
        assert await conn.fetchval("select promoted from promote_due()") == 1
    assert await state_of(conn, job_id) == "queued"


async def test_elections_go_on_where_the_last_one_ended(conn: asyncpg.Connection) -> None:
    for n in range(7):
        await enqueue(conn, target=f"t{n}")
    row = await conn.fetchrow("select * from elect_from(0, 3)")
    assert row is not None
    assert row["called"] == 3
    rest = await conn.fetchrow("select * from elect_from($1, 10)", row["reached"])
    assert rest is not None
    assert (rest["called"], rest["reached"]) == (4, await conn.fetchval("select last_value from calls_id_seq"))
    assert tuple(await conn.fetchrow("select * from elect_from($1)", rest["reached"])) == (0, rest["reached"])  # type: ignore[arg-type]
    assert len(await claim(conn, limit=10)) == 7
    assert await offences(conn) == []


async def test_permits_in_use_are_not_forgotten(conn: asyncpg.Connection) -> None:
    lease = await run_one(conn)
    await crowd.permits(conn, 50)
    await conn.execute("update permits set granted_at = now() - interval '2 hours'")
    await conn.execute("update permits set job_id = $1, attempt = 1 where gate like '%7'", lease.job_id)
    place, forgotten = None, 0
    while True:
        row = await conn.fetchrow("select * from forget_idle_permits($1, 8)", place)
        assert row is not None
        forgotten, place = forgotten + row["mended"], row["reached"]
        if place is None:
            break
    assert forgotten == 45
    assert await settle(conn, "complete", [lease]) == ["success"]
    assert await conn.fetchval("select forget_permits()") == 5
    await elect(conn)

"""What failures cost: settlements the same whatever the messages, and lists and searches without a look at all jobs."""

from __future__ import annotations

from collections import Counter
from typing import Any

import asyncpg
import pytest

from tests.sql.factories import claim, enqueue_copies
from tests.sql.meter import leave_alone, totals
from tests.sql.test_budget import spent

pytestmark = pytest.mark.fresh_database

BATCH = 200

_WRITTEN = """
    select relname, n_tup_ins as inserted, n_tup_upd as updated, n_tup_del as deleted
    from pg_stat_xact_user_tables where schemaname = 'holdfast'"""
_VERBS = ("inserted", "updated", "deleted")


async def batch(conn: asyncpg.Connection) -> tuple[list[Any], list[int]]:
    await enqueue_copies(conn, BATCH, "mine")
    leases = await claim(conn, "mine", limit=BATCH)
    return [lease.job_id for lease in leases], [lease.attempt for lease in leases]


async def written_so_far(conn: asyncpg.Connection) -> Counter[str]:
    """Rows that were inserted, updated and deleted, by table and verb."""
    return Counter({f"{row['relname']}.{verb}": row[verb] for row in await conn.fetch(_WRITTEN) for verb in _VERBS})


async def failing_costs(conn: asyncpg.Connection, messages: list[str], kind: str) -> tuple[Counter[str], float, float]:
    """What was written to which table, bytes of WAL and buffers of one batch of failures."""
    ids, numbers = await batch(conn)
    call = "select * from fail('w1', $1, $2, $3, array_fill('Fault'::text, array[200]), $4)"
    async with conn.transaction():
        before = await written_so_far(conn)
        plan = await spent(conn, call, ids, numbers, [kind] * BATCH, messages)
        written = await written_so_far(conn)
    written.subtract(before)
    return written, plan["WAL Bytes"], plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]


@pytest.mark.usefixtures("one_at_a_time")
@pytest.mark.parametrize("kind", ["retryable", "fatal"])
async def test_different_messages_cost_a_settlement_no_more_than_one(conn: asyncpg.Connection, kind: str) -> None:
    await leave_alone(conn)
    same = ["disk is full beyond repair"] * BATCH
    letters = "abcdefghijklmnopqrstuvwxyz"
    different = [f"disk is full beyond rep{letters[n % 26]}{letters[n // 26]}" for n in range(BATCH)]
    await failing_costs(conn, same, kind)
    for _ in range(5):  # what else goes on in the server may disturb one of them
        total = {"same": (0.0, 0.0), "different": (0.0, 0.0)}
        # In turn, because the tables grow.
        for name in ("same", "different", "different", "same") * 2:
            written, wal, buffers = await failing_costs(conn, same if name == "same" else different, kind)
            side = "due" if kind == "retryable" else "dead_letters"
            assert +written == {
                "leases.deleted": BATCH, "jobs.updated": BATCH, "job_attempts.inserted": BATCH,
                "failures.inserted": BATCH, f"{side}.inserted": BATCH,
            }  # fmt: skip
            total[name] = (total[name][0] + wal, total[name][1] + buffers)
        if all(many <= 1.05 * one for one, many in zip(*total.values(), strict=True)):
            break
    else:
        raise AssertionError(f"WAL and buffers: {total}")


async def crowd(conn: asyncpg.Connection, letters: int, prints: int, jobs: int) -> None:
    """Ended jobs, and dead ones among them, with letters of so many fingerprints."""
    await conn.execute("set session_replication_role = replica; set synchronous_commit = off")
    await conn.execute(
        "insert into jobs (id, seq, created_at, updated_at, run_at, finished_at, stream, state, attempt, tenant, type,"
        " queue, payload) select first_id(now() + make_interval(secs => n)), n, now(), now(), now(), now(), 1,"
        " case when n <= $1 then 'dead' else 'success' end, 1, 'default', 'crowd', 'default', '{}'"
        " from generate_series(1, $2::integer) n",
        letters,
        jobs,
    )
    await conn.execute(
        "insert into dead_letters (job_id, tenant, type, error_type, error_message, fingerprint)"
        " select id, tenant, type, 'Fault', 'x', lpad(to_hex(seq % $1), 16, '0') from jobs where state = 'dead'",
        prints,
    )
    await conn.execute(
        "insert into fingerprints select 'default', lpad(to_hex(seq - 1), 16, '0'), 'crowd', 'Fault', 'x', 10, now(),"
        " now() - make_interval(secs => seq), id from jobs where seq <= $1",
        prints,
    )
    await conn.execute("set session_replication_role = default")


READS = {
    "all": "select * from list_failures(max_rows => 50)",
    "of a tenant": "select * from list_failures('default', max_rows => 50)",
    "of a type": "select * from list_failures(only_type => 'crowd', max_rows => 50)",
    "a later page": "select * from list_failures('default', null, now() - interval '10 minutes', 'f', 'default', 50)",
    "a type that nothing has": "select * from list_failures(only_type => 'none', max_rows => 50)",
    "a search": "select * from search_jobs("
    """'{"field": "fingerprint", "op": "=", "value": ["0000000000000007"]}', 'default')""",
}


async def rows_read(conn: asyncpg.Connection, table: str) -> int:
    await conn.execute("select pg_stat_force_next_flush()")
    found = await conn.fetchval(
        "select coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0) from pg_stat_all_tables"
        " where schemaname = 'holdfast' and relname = $1",
        table,
    )
    return int(found)


@pytest.mark.usefixtures("one_at_a_time")
@pytest.mark.parametrize("analysed", ["never", "at last"])
async def test_lists_and_searches_read_what_they_show(conn: asyncpg.Connection, analysed: str) -> None:
    """No table is scanned, neither jobs nor letters, whatever the statistics say."""
    await leave_alone(conn)
    await crowd(conn, letters=10_000, prints=1_000, jobs=20_000)
    await conn.execute("vacuum" if analysed == "never" else "vacuum analyze")
    for name, call in READS.items():
        jobs, before = await rows_read(conn, "jobs"), await totals(conn)
        found = await conn.fetch(call)
        cost = await totals(conn) - before
        read = await rows_read(conn, "jobs") - jobs
        print(f"{name}: {cost.buffers:.0f} buffers, {cost.rows:.0f} rows, {read} jobs")
        assert (name == "a type that nothing has") == (not found)
        assert cost.buffers < 5000, name
        assert cost.rows < 5000, name
        assert read <= 60, name


@pytest.mark.usefixtures("one_at_a_time")
@pytest.mark.parametrize("analysed", ["never", "at last"])
async def test_a_page_of_a_search_by_fingerprint_does_not_read_the_whole_group(
    conn: asyncpg.Connection, analysed: str
) -> None:
    await leave_alone(conn)
    await crowd(conn, letters=6_000, prints=2, jobs=8_000)
    await conn.execute(
        "update dead_letters set acknowledged_at = now() where job_id < first_id(now() + interval '1 hour')"
    )
    await conn.execute(
        "insert into failing select id, tenant, lpad('', 16, '0'), 1 from jobs where state = 'success' and seq % 2 = 0"
    )
    await conn.execute("vacuum" if analysed == "never" else "vacuum analyze")
    everything = await conn.fetchval(
        "select array(select job_id from failing"
        " union select job_id from dead_letters where fingerprint = lpad('', 16, '0') order by job_id desc)"
    )
    assert len(everything) == 4_000
    for tenant in (None, "default"):
        for start in (0, 900, 2_500):
            call = "select jobs_with_fingerprint(array[lpad('', 16, '0')], $1, $2, 50)"
            before = await totals(conn)
            found = await conn.fetchval(call, tenant, everything[start - 1] if start else None)
            cost = await totals(conn) - before
            assert found == everything[start : start + 50]
            assert cost.rows < 500, (tenant, start)
            assert cost.buffers < 500, (tenant, start)


async def test_what_is_not_added_up_yet_is_added_at_a_bounded_cost(conn: asyncpg.Connection) -> None:
    await leave_alone(conn)
    await crowd(conn, letters=2_000, prints=1_000, jobs=8_000)
    await conn.execute(
        "insert into failures (job_id, attempt, fingerprint)"
        " select id, 1, lpad(to_hex(seq % 1500), 16, '0') from jobs limit 8000"
    )
    before = await totals(conn)
    assert len(await conn.fetch("select * from list_failures('default')")) == 50
    cost = await totals(conn) - before
    print(f"{cost.buffers:.0f} buffers, {cost.rows:.0f} rows")
    assert cost.rows < 8 * 5000  # of which no more than 5,000 are looked at
    assert cost.buffers < 10 * 5000

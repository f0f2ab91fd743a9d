"""Updates of `jobs` stay heap-only, big payloads are not rewritten, and no hot function reads a table through."""

from __future__ import annotations

import json

import asyncpg
import pytest

from tests.conftest import ConnectAs
from tests.sql.factories import (
    claim,
    elect,
    enqueue,
    enqueue_copies,
    expire,
    make_due,
    promote,
    request,
    run_one,
    settle,
    sweep,
)
from tests.sql.meter import TRIES, BareWorker, leave_alone, totals

pytestmark = pytest.mark.fresh_database

HOT_SHARE = """
    select n_tup_hot_upd::double precision / n_tup_upd from pg_stat_user_tables
    where schemaname = 'holdfast' and relname = 'jobs'"""
TOAST_WRITES = """
    select n_tup_ins + n_tup_upd + n_tup_del from pg_stat_all_tables
    where relid = (select reltoastrelid from pg_class where oid = 'holdfast.jobs'::regclass)"""
SEQ_SCANS = """
    select relname, seq_scan from pg_stat_user_tables
    where schemaname = 'holdfast' and relname in ('jobs', 'ready', 'leases', 'due', 'waiting', 'job_attempts')"""


@pytest.mark.usefixtures("one_at_a_time")
async def test_updates_of_jobs_are_heap_only(conn: asyncpg.Connection) -> None:
    await leave_alone(conn)
    worker = BareWorker(conn, ["work"])
    shares: list[float] = []
    while len(shares) < 5 * TRIES and max(shares, default=0) < 0.95:
        await conn.execute("select pg_stat_reset()")
        await enqueue_copies(conn, 200)
        assert await worker.drain(200) == 200
        await totals(conn)
        shares.append(await conn.fetchval(HOT_SHARE))
    print(f"HOT shares {shares}")
    assert max(shares) >= 0.95


async def test_no_index_of_jobs_names_a_column_that_changes_per_attempt(conn: asyncpg.Connection) -> None:
    changing = {
        "state", "attempt", "failures", "seq", "run_at", "started_at", "finished_at", "updated_at", "reason", "result",
        "last_error", "last_error_at",
    }  # fmt: skip
    rows = await conn.fetch(
        "select a.attname from pg_depend d join pg_class i on i.oid = d.objid and i.relkind = 'i' "
        "join pg_attribute a on a.attrelid = d.refobjid and a.attnum = d.refobjsubid "
        "where d.refobjid = 'holdfast.jobs'::regclass and d.classid = 'pg_class'::regclass and d.refobjsubid > 0"
    )
    indexed = {row["attname"] for row in rows}
    assert "dedup_key" in indexed
    assert not indexed & changing


async def test_a_big_payload_is_not_rewritten_when_the_job_moves(conn: asyncpg.Connection) -> None:
    payload = {"text": "".join(f"{n:x}" for n in range(30_000))}
    assert len(json.dumps(payload)) > 100_000
    ids = [await enqueue(conn, payload=payload) for _ in range(5)]
    await totals(conn)
    before = await conn.fetchval(TOAST_WRITES)
    assert before > 0
    await settle(conn, "fail", await claim(conn, limit=5))
    await make_due(conn, *ids)
    await promote(conn)
    await settle(conn, "hand_back", await claim(conn, limit=5))
    await settle(conn, "complete", await claim(conn, limit=5), results=['{"n": 1}'] * 5)
    await totals(conn)
    assert await conn.fetchval(TOAST_WRITES) == before


async def scans(conn: asyncpg.Connection) -> dict[str, int]:
    await totals(conn)
    return {row["relname"]: row["seq_scan"] for row in await conn.fetch(SEQ_SCANS)}


@pytest.mark.parametrize("analysed", ["never", "while empty"])
async def test_hot_functions_read_no_table_through_whatever_the_statistics_say(
    conn: asyncpg.Connection, connect_as: ConnectAs, analysed: str
) -> None:
    await leave_alone(conn)
    if analysed == "while empty":
        await conn.execute("vacuum analyze")
    for options in ({}, {"target": "t"}, {"delay": 3600}, {"priority": 5, "idempotency_key": None}):
        for _ in range(5):
            await enqueue_copies(conn, 1000, **options)
    await elect(conn)
    leases = await claim(conn, limit=1000)
    worker = await connect_as("superuser")
    await conn.execute("set enable_seqscan = off")  # for what this test itself does to the tables
    before = await scans(worker)
    for turn in range(7):
        batch = leases[turn * 100 : turn * 100 + 100]
        await worker.execute("select from renew('w1', $1, $2)", [x.job_id for x in batch], [1] * 100)
        await worker.execute("select from interrupted('w1', $1, $2)", [x.job_id for x in batch], [1] * 100)
        await settle(worker, "complete", batch[:40])
        await settle(worker, "fail", batch[40:60])
        await settle(worker, "hand_back", batch[60:70])
        await settle(worker, "snooze", batch[70:80], delays=[0.0] * 10)
        await settle(worker, "complete", batch[:2])
        await expire(conn, *(lease.job_id for lease in batch[80:90]))
        await sweep(worker)
        await make_due(conn, *(lease.job_id for lease in batch[40:60]))
        await promote(worker)
        await claim(worker, limit=50, worker="w2")
        await request(worker, "cancel", batch[95].job_id)
        await worker.execute("select execute_requests(), elect()")
        await enqueue_copies(worker, 10, idempotency_key=f"k{turn}")
        await enqueue_copies(worker, 10, target="t")
        await run_one(worker, "single")
        await worker.execute("select reconcile(max_jobs => 100), retire(max_jobs => 100)")
    assert await scans(worker) == before

"""Whatever the session says of `synchronous_commit`, a transaction that writes what others rely on is durable."""

from __future__ import annotations

import asyncpg
import pytest

from tests.conftest import ConnectAs
from tests.sql.factories import claim, enqueue, enqueue_row, run_one

#: Tables without the trigger, and why nobody misses what a crash takes back there.
VOLATILE = {
    "ready": "written beside jobs; by ageing alone, which is done again",
    "due": "written beside jobs",
    "waiting": "written beside jobs; by seating alone, which is done again",
    "heads": "seating is done again",
    "calls": "written beside jobs; a call that is back is answered again",
    "parked": "permits and parking follow from leases, and are put right by maintenance",
    "permits": "written beside leases",
    "streams": "written beside jobs",
    "job_attempts": "written beside leases",
    "job_events": "written beside jobs or leases",
    "repairs": "counts what was mended, beside the mending",
    "workers": "heartbeats: a worker that is unknown registers again",
    "leaders": "two leaders are harmless",
    "schema_steps": "a migration that a crash takes back is done again",
    "schema_functions": "a migration that a crash takes back is done again",
}


async def test_every_table_makes_its_writers_durable_or_has_a_reason_not_to(conn: asyncpg.Connection) -> None:
    rows = await conn.fetch(
        "select c.relname, exists (select from pg_trigger t where t.tgrelid = c.oid and t.tgname = 'durable'"
        "   and t.tgenabled = 'O' and t.tgtype & 1 = 0 and t.tgtype & (4 | 8 | 16) = (4 | 8 | 16)) as durable"
        " from pg_class c where c.relnamespace = 'holdfast'::regnamespace and c.relkind in ('r', 'p')"
    )
    assert {row["relname"] for row in rows if not row["durable"]} == VOLATILE.keys()


async def test_no_function_undoes_it_at_its_own_end(conn: asyncpg.Connection) -> None:
    """A function's SET clause would restore what was before, ahead of the commit."""
    found = await conn.fetch(
        "select p.proname from pg_proc p, unnest(p.proconfig) as setting"
        " where p.pronamespace = 'holdfast'::regnamespace and setting like 'synchronous_commit=%'"
    )
    assert found == []


#: What each verb leaves behind at its end, before the commit.
VERBS: dict[str, str] = {
    "enqueue": "select enqueue('x')",
    "enqueue_many": "select enqueue_many(array['x', 'y'], array['{}', '{}']::jsonb[])",
    "enqueue_plain alone": "select enqueue_plain('work', array['{}', '{}']::jsonb[],"
    " array[uuid_v7(), uuid_v7()], alone => true)",
    "enqueue_plain": "select enqueue_plain('work', array['{}']::jsonb[], array[uuid_v7()])",
    "submit": "select submit(array['t'], array['me'], array['x'], array['{}'::jsonb], array[null::jsonb],"
    " array[uuid_v7()])",
    "a repeated key": "select enqueue('x', idempotency_key => 'k')",
    "release_held": "select release_held(array(select id from jobs where state = 'created'))",
    "cancel": "select request('cancel', array(select id from jobs where type = 'work'))",
    "claim": "select claim('w1', array['work'])",
    "claim_by_id": "select claim_by_id('w1', (select id from jobs where type = 'work' and state = 'queued'))",
    "renew": "select renew('w1', array_agg(job_id), array_agg(attempt)) from leases",
    "complete": "select complete('w1', array_agg(job_id), array_agg(attempt)) from leases",
    "fail": "select fail('w1', array_agg(job_id), array_agg(attempt)) from leases",
    "snooze": "select snooze('w1', array_agg(job_id), array_agg(attempt), array[1.0]) from leases",
    "report": "select report('w1', job_id, attempt, 1) from leases",
    "pause_scope": "select pause_scope('queue', 'default', 'me')",
    "set_limit": "select set_limit('queue', 'default', 3, null, null, 'me')",
    "create_key": "select create_key(uuid_v7(), 't', 'n', 'p', sha256('x'), array['read'], null, null, null, 'me')",
    "publish_types": """select publish_types('[{"name": "x", "queue": "default", "lane": "general", "backoff_base": 1,
        "backoff_factor": 2, "backoff_max": 3, "backoff_jitter": 0, "on_failure": "retry", "version": 1}]')""",
    "hand-written SQL": "update jobs set priority = 1",
}


@pytest.mark.parametrize(("verb", "level"), [*((verb, "off") for verb in VERBS), ("enqueue", "local")])
async def test_a_verb_makes_its_transaction_durable(conn: asyncpg.Connection, verb: str, level: str) -> None:
    await enqueue(conn, "x", idempotency_key="k")
    await enqueue(conn, hold=True)
    await run_one(conn, "work")
    await enqueue(conn, "work")
    await conn.execute(f"set synchronous_commit = {level}")
    async with conn.transaction():
        await conn.fetch(VERBS[verb])
        assert await conn.fetchval("show synchronous_commit") == "on"
    assert await conn.fetchval("show synchronous_commit") == level, "the session's own setting is left alone"


@pytest.mark.parametrize("level", ["remote_write", "on", "remote_apply"])
async def test_it_is_only_ever_raised(conn: asyncpg.Connection, level: str) -> None:
    async with conn.transaction():
        await conn.execute(f"set local synchronous_commit = {level}")
        await enqueue(conn)
        await claim(conn)
        assert await conn.fetchval("show synchronous_commit") == level


async def test_what_a_savepoint_takes_back_raises_nothing(conn: asyncpg.Connection) -> None:
    await conn.execute("set synchronous_commit = off")
    async with conn.transaction():
        savepoint = conn.transaction()
        await savepoint.start()
        await enqueue(conn)
        await savepoint.rollback()
        assert await conn.fetchval("show synchronous_commit") == "off"
        async with conn.transaction():
            await enqueue(conn)
        await conn.execute("set local synchronous_commit = off")
        await enqueue(conn)
        assert await conn.fetchval("show synchronous_commit") == "on"


@pytest.mark.parametrize("role", ["api", "worker", "operator"])
async def test_no_role_needs_a_right_for_it(connect_as: ConnectAs, role: str) -> None:
    conn = await connect_as(role)
    await conn.execute("set synchronous_commit = off")
    async with conn.transaction():
        await enqueue_row(conn)
        assert await conn.fetchval("show synchronous_commit") == "on"


@pytest.mark.parametrize("again", [{"idempotency_key": "k"}, {"dedup_key": "d"}])
async def test_a_repeat_vouches_for_the_job_it_answers_with(connect_as: ConnectAs, again: dict[str, str]) -> None:
    """The first commit may be visible and not yet on disk; the commit of the repeat puts both there."""
    careless, conn = await connect_as("superuser"), await connect_as("superuser")
    for server in (careless, conn):
        await server.execute("set synchronous_commit = off")
    async with careless.transaction():
        await enqueue(careless, **again)
        await careless.execute("set local synchronous_commit = off")
    async with conn.transaction():
        written = await conn.fetchval("select pg_current_wal_insert_lsn()")
        assert (await enqueue_row(conn, **again))["outcome"] == "existing"
        assert await conn.fetchval("show synchronous_commit") == "on"
    assert await conn.fetchval("select pg_current_wal_flush_lsn() >= $1", written)

"""Whatever the session says of `synchronous_commit`, a transaction that writes what others rely on is durable."""

from __future__ import annotations

import json

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
    "remote_pulls": "written beside leases; forgetting is done again",
    "bulk_jobs": "written beside bulks",
    "schedule_fires": "written beside schedules; forgetting is done again",
    "bulk_found": "written beside bulks",
    "walks": "what a crash takes back is walked over again, together with what was noted on the way",
    "erasures": "what is to be erased is erased again",
    "dormant": "written beside jobs",
    "pending_decisions": "written beside jobs",
    "circuit_counts": "counts of the last seconds, which every worker reports again",
    "repairs": "counts what was mended, beside the mending",
    "workers": "heartbeats: a worker that is unknown registers again",
    "payload_shapes": "published again by every worker that starts; without them everything is accepted",
    "leaders": "two leaders are harmless",
    "failures": "written beside jobs; what was taken away comes back together with the sums",
    "fingerprints": "sums are made again from the failures that come back",
    "failing": "the leader notes again what fails, with the failures that come back",
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


#: Tables whose writers are not raised a second time, by the commit, and why nobody misses it.
ONCE = {
    "leases": "settlements and sweeps write jobs too; claims and renewals are a worker's own statements",
    "beginnings": "written by a worker's own statements",
    "clock_steps": "written by the leader's own statements",
    "job_items": "written beside job_progress",
    "job_types": "published again by every worker that starts",
}


async def test_every_durable_table_is_secured_by_the_commit_or_has_a_reason_not_to(conn: asyncpg.Connection) -> None:
    rows = await conn.fetch(
        "select c.relname, bool_or(t.tgname = 'durable') as durable,"
        "   bool_or(t.tgname like 'secured%' and t.tgenabled = 'O' and t.tgdeferrable and t.tginitdeferred) as secured"
        " from pg_class c join pg_trigger t on t.tgrelid = c.oid"
        " where c.relnamespace = 'holdfast'::regnamespace group by 1"
    )
    assert {row["relname"] for row in rows if row["durable"] and not row["secured"]} == ONCE.keys()


async def test_no_function_resets_durability_when_it_returns(conn: asyncpg.Connection) -> None:
    """A function's SET clause would restore the old value before the commit."""
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
    "pause_subject": "select pause_subject('queue', 'default', 'me')",
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
async def test_durability_is_only_ever_raised(conn: asyncpg.Connection, level: str) -> None:
    async with conn.transaction():
        await conn.execute(f"set local synchronous_commit = {level}")
        await enqueue(conn)
        await claim(conn)
        assert await conn.fetchval("show synchronous_commit") == level


async def test_a_write_rolled_back_by_a_savepoint_does_not_raise_durability(conn: asyncpg.Connection) -> None:
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
async def test_no_role_needs_a_right_for_durability(connect_as: ConnectAs, role: str) -> None:
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
        await careless.execute("set constraints all immediate")  # what would raise it at the commit has run
        await careless.execute("set local synchronous_commit = off")
    async with conn.transaction():
        written = await conn.fetchval("select pg_current_wal_insert_lsn()")
        assert (await enqueue_row(conn, **again))["outcome"] == "existing"
        assert await conn.fetchval("show synchronous_commit") == "on"
    assert await conn.fetchval("select pg_current_wal_flush_lsn() >= $1", written)
    # Only a transaction that has written to the WAL flushes it. (The server may have flushed it meanwhile.)
    ((name, value),) = again.items()
    repeat = f"explain (analyze, wal, format json) select * from enqueue('work', {name} => $1)"
    (plan,) = json.loads(await conn.fetchval(repeat, value))
    assert plan["Plan"]["WAL Records"] > 0


LOWER = "; set local synchronous_commit = off"
RECORD = "select holdfast.enqueue('x')"

#: What a caller may do around a write, and before the commit.
AFTERWARDS: dict[str, str] = {
    "a function with a SET clause": "set synchronous_commit = off; select pg_temp.record_off()",
    "a function that means well": "set synchronous_commit = off; select pg_temp.record_on()",
    "SET LOCAL": RECORD + LOWER,
    "SET": f"{RECORD}; set synchronous_commit = off",
    "RESET": f"set synchronous_commit = off; set local synchronous_commit = on; {RECORD}; reset synchronous_commit",
    "RESET ALL": f"{RECORD}; reset all; set local synchronous_commit = local",
    "a DO block": "do 'begin perform holdfast.enqueue(''x''); set local synchronous_commit = off; end'",
    "a savepoint": f"savepoint a; {RECORD}; rollback to a; {RECORD}{LOWER}",
    "a savepoint that stays": f"savepoint a; {RECORD}; release a; savepoint b; {RECORD}; rollback to b{LOWER}",
    "constraints checked early": f"{RECORD}; set constraints all immediate{LOWER};"
    f" set constraints all deferred; {RECORD}{LOWER}",
    "a deferred trigger of the caller's": "create temp table mine (n int);"
    " create constraint trigger late after insert on mine deferrable initially deferred for each row"
    " execute function pg_temp.late(); insert into mine values (1)" + LOWER,
    "a request": "select holdfast.request('cancel', array_agg(id)) from holdfast.jobs where type = 'waiting'" + LOWER,
    "a release": "select holdfast.release_held(array_agg(id)) from holdfast.jobs where type = 'held'" + LOWER,
    "a success": "select holdfast.complete('w1', array_agg(job_id), array_agg(attempt)) from holdfast.leases" + LOWER,
    "a failure": "select holdfast.fail('w1', array_agg(job_id), array_agg(attempt)) from holdfast.leases" + LOWER,
    "a report": "select holdfast.report('w1', job_id, attempt, 1) from holdfast.leases" + LOWER,
    "a pause": "select holdfast.pause_subject('queue', 'default', 'me')" + LOWER,
    "a resumed subject": "select holdfast.resume_subject('queue', 'slow', 'me')" + LOWER,
    "a key": "select holdfast.create_key(holdfast.uuid_v7(), 't', 'n', 'p', sha256('x'), array['read'], null, null,"
    " null, 'me')" + LOWER,
    "a bound key": "select holdfast.enqueue('x', idempotency_key => 'new', dedup_key => 'd')" + LOWER,
}

#: A function of the caller that records a job, under a setting that ends with the function; and a trigger.
FUNCTIONS = """
    create function pg_temp.record_off() returns void language sql set synchronous_commit = off
      as 'select holdfast.enqueue(''x'')';
    create function pg_temp.record_on() returns void language sql set synchronous_commit = on
      as 'select holdfast.enqueue(''x'')';
    create function pg_temp.late() returns trigger language plpgsql set synchronous_commit = off as
      'begin perform holdfast.enqueue(''x''); return null; end'"""


@pytest.mark.parametrize("case", AFTERWARDS)
async def test_changing_settings_after_a_write_does_not_make_it_volatile(conn: asyncpg.Connection, case: str) -> None:
    await enqueue(conn, "held", hold=True)
    await enqueue(conn, "x", dedup_key="d")
    await conn.execute("select pause_subject('queue', 'slow', 'me')")
    await run_one(conn, "work")
    await enqueue(conn, "waiting")
    await conn.execute("set search_path = public")
    await conn.execute(FUNCTIONS)
    async with conn.transaction():
        await conn.execute(AFTERWARDS[case])
        await conn.execute(WITNESS)
    assert await conn.fetchval("fetch from witness") == "on"


#: What the commit goes by: a cursor that outlives its transaction is filled by the commit, after all deferred triggers.
WITNESS = "declare witness cursor with hold for select current_setting('synchronous_commit')"


async def test_claims_queue_nothing_for_the_commit(conn: asyncpg.Connection) -> None:
    await enqueue(conn)
    async with conn.transaction():
        await claim(conn)
        assert await conn.fetchval("select current_setting('holdfast.commit_secured', true)") in (None, "")
    async with conn.transaction():
        await enqueue(conn)
        assert await conn.fetchval("select current_setting('holdfast.commit_secured')") == "on"
    assert await conn.fetchval("select current_setting('holdfast.commit_secured')") == ""


async def test_a_table_that_was_written_can_be_altered_by_the_same_migration(conn: asyncpg.Connection) -> None:
    """Deferred triggers would stand in the way."""
    async with conn.transaction():
        await conn.execute("set constraints all immediate")
        await enqueue(conn)
        await conn.execute("alter table jobs set (fillfactor = 80)")

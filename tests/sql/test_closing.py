"""A closed job type takes no new jobs, whichever function records them; jobs accepted before go on."""

from __future__ import annotations

import json

import asyncpg
import pytest

from tests.sql.factories import claim, enqueue, enqueue_row, job_in, settle
from tests.sql.test_budget import spent

#: Every function by which jobs come in; the last one runs an ended job again.
WAYS = {
    "enqueue": "select enqueue('work')",
    "enqueue_many": "select enqueue_many(array['open', 'work'], array['{}', '{}']::jsonb[])",
    "enqueue_plain": "select enqueue_plain('work', array['{}']::jsonb[], array[uuid_v7()])",
    "enqueue_plain alone": "select enqueue_plain('work', array['{}', '{}']::jsonb[], array[uuid_v7(), uuid_v7()],"
    " alone => true)",
    "submit": "select submit('{a}', '{me}', '{work}', array['{}']::jsonb[], array[null]::jsonb[], array[uuid_v7()])",
    "retry": "select request('retry', array(select id from jobs where state = 'success'))",
}


@pytest.mark.parametrize("way", WAYS)
async def test_every_way_to_enqueue_refuses_a_closed_type(conn: asyncpg.Connection, way: str) -> None:
    waiting = await enqueue(conn)
    await job_in(conn, "success", "work")
    await enqueue(conn, "work", tenant="a")
    before = await conn.fetchval("select count(*) from jobs")
    assert await conn.fetchval("select close_type('work', 'ada', 'a leak')")
    assert not await conn.fetchval("select close_type('work', 'eve', 'another')")
    with pytest.raises(
        asyncpg.PostgresError, match=r'takes no new jobs: it was closed by ada .+ \("a leak"\)'
    ) as fault:
        await conn.execute(WAYS[way])
    assert (fault.value.sqlstate, fault.value.as_dict()["constraint_name"]) == ("HF001", "type_closed")
    assert await conn.fetchval("select count(*) from jobs") == before
    leases = await claim(conn, limit=10)
    assert waiting in [lease.job_id for lease in leases]
    assert set(await settle(conn, "complete", leases)) == {"success"}
    assert await conn.fetchval("select open_type('work', 'ada')")
    await conn.execute(WAYS[way])


async def test_a_bound_key_is_answered_and_a_new_one_is_not_taken(conn: asyncpg.Connection) -> None:
    bound = await enqueue(conn, idempotency_key="k")
    await conn.execute("select close_type('work', 'ada')")
    row = await enqueue_row(conn, idempotency_key="k")
    assert (row["job_id"], row["outcome"]) == (bound, "existing")
    assert (await enqueue_row(conn, payload={"other": 1}, idempotency_key="k"))["outcome"] == "conflict"
    with pytest.raises(asyncpg.PostgresError, match="takes no new jobs"):
        await enqueue(conn, idempotency_key="new")
    await conn.execute("select open_type('work', 'ada')")
    assert (await enqueue_row(conn, payload={"other": 1}, idempotency_key="new"))["outcome"] == "created"


async def test_who_closed_and_opened_is_in_the_audit_log(conn: asyncpg.Connection) -> None:
    await conn.execute("select close_type('work', 'ada', 'a leak'), open_type('work', 'eve', 'mended')")
    rows = await conn.fetch("select actor, action, subject, detail from list_audit(null, null, 10)")
    found = [(row["actor"], row["action"], row["subject"], json.loads(row["detail"])["note"]) for row in rows]
    assert found == [("eve", "type.open", "work", "mended"), ("ada", "type.close", "work", "a leak")]
    for wrong in ("''", "'holdfast.cancel'", "null"):
        with pytest.raises(asyncpg.PostgresError) as fault:
            await conn.execute(f"select close_type({wrong}, 'ada')")
        assert fault.value.sqlstate == "HF002"


@pytest.mark.fresh_database
async def test_a_plain_job_pays_nothing_until_a_type_is_closed(conn: asyncpg.Connection) -> None:
    """It reads no page more where no type was ever closed. Else it reads a few, and still goes the short way."""
    await enqueue(conn)
    read = "select sum(pg_stat_get_blocks_fetched(c.oid)) from pg_class c where c.relname like 'closed_types%'"

    async def buffers() -> int:
        found: list[int] = []
        for _ in range(8):  # the first ones also pay for what a session looks up once
            plan = await spent(conn, "select enqueue_plain('work', array['{}']::jsonb[], array[uuid_v7()])")
            found.append(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])
        await conn.execute("select pg_stat_force_next_flush()")
        return min(found)

    await buffers()
    more: list[int] = []
    for _ in range(3):  # the server may look at the table by itself, too
        before = await conn.fetchval(read)
        without = await buffers()
        more.append(await conn.fetchval(read) - before)
    assert min(more) == 0
    await conn.execute("select close_type('another', 'ada')")
    assert await buffers() <= without + 3
    assert await conn.fetchval(read) > before

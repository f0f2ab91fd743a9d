"""The short way in records exactly what the long way does, refuses the same, and is cheap."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from holdfast.model.ids import new_job_ids
from tests.conftest import ConnectAs
from tests.sql.factories import claim, dump, enqueue, offences, publish, request

STATEMENT = "enqueue_plain($1, $2::text[]::jsonb[], $3::uuid[], $4, $5, $6, $7)"

#: How many jobs, and whether the statement stands alone: every way through the function.
WAYS = [(1, False), (1, True), (3, False), (3, True), (150, False)]
ways = pytest.mark.parametrize(("count", "alone"), WAYS)


async def plain(
    conn: asyncpg.Connection,
    ids: list[UUID],
    *,
    payloads: list[str] | None = None,
    job_type: str | None = "work",
    queue: str | None = None,
    tenant: str | None = "default",
    created_by: str | None = None,
    alone: bool = False,
) -> list[tuple[Any, ...]]:
    """What the function answers."""
    payloads = ['{"n": 1}'] * len(ids) if payloads is None else payloads
    arguments = (job_type, payloads, ids, queue, tenant, created_by, alone)
    return [tuple(row) for row in await conn.fetch(f"select * from {STATEMENT} order by item", *arguments)]


async def recorded(conn: asyncpg.Connection) -> list[dict[str, Any]]:
    """Jobs with their places in line, but for what differs from one to the next."""
    rows = await conn.fetch(
        "select j.*, r.rank, r.stream = j.stream and r.seq = j.seq as in_line, s.queue as stream_queue,"
        "  j.run_at = j.created_at as at_once "
        "from jobs j left join ready r on r.job_id = j.id join streams s on s.id = j.stream order by j.seq"
    )
    own = {"id", "seq", "stream", "created_at", "updated_at", "run_at"}
    return [{name: value for name, value in row.items() if name not in own} for row in rows]


@ways
@pytest.mark.parametrize("known", [False, True], ids=["first of its type", "known type"])
@pytest.mark.parametrize("queue", [None, "fast"])
async def test_enqueue_plain_records_the_same_as_enqueue_many(
    connect_as: ConnectAs, count: int, alone: bool, known: bool, queue: str | None
) -> None:
    conn, api = await connect_as("superuser"), await connect_as("api")
    await publish(conn, "work", queue="mail")
    streams = 1
    if known:
        await enqueue(conn, tenant="acme", queue=queue)
        await enqueue(conn, tenant="acme", queue="default")
        streams = 2
        await conn.execute("delete from ready; set session_replication_role = replica; delete from jobs")
    ids = new_job_ids(count)
    assert await plain(api, ids, queue=queue, tenant="acme", created_by="ada", alone=alone) == []
    assert [row["id"] for row in await conn.fetch("select id from jobs order by seq")] == ids
    short = await recorded(conn)
    await conn.execute("delete from ready; set session_replication_role = replica; delete from jobs")
    options = None if queue is None else [json.dumps({"queue": queue})] * count
    await conn.fetch(
        "select enqueue_many($1::text[], $2::text[]::jsonb[], $3::text[]::jsonb[], 'acme', 'ada', $4::uuid[])",
        ["work"] * count,
        ['{"n": 1}'] * count,
        options,
        ids,
    )
    assert short == await recorded(conn)
    assert short[0]["stream_queue"] == (queue or "mail")
    assert await conn.fetchval("select count(*) from streams") == streams
    assert await offences(conn) == []


@ways
async def test_only_jobs_that_already_existed_are_answered(conn: asyncpg.Connection, count: int, alone: bool) -> None:
    await enqueue(conn)
    ids = new_job_ids(count)
    assert await plain(conn, ids, alone=alone) == []
    again = await plain(conn, ids, alone=alone)
    assert again == [(item, job_id, "queued", "existing") for item, job_id in enumerate(ids, 1)]
    more = new_job_ids(count)
    assert await plain(conn, [*more, ids[0]], alone=alone) == [(count + 1, ids[0], "queued", "existing")]
    assert await conn.fetchval("select count(*) from ready") == 1 + 2 * count
    assert await offences(conn) == []


async def refusal(conn: asyncpg.Connection, ids: list[UUID], **arguments: Any) -> str:
    """The text with which it refuses; nothing may have been written."""
    before = await dump(conn)
    with pytest.raises(asyncpg.PostgresError) as refused:
        await plain(conn, ids, **arguments)
    assert refused.value.sqlstate == "HF002", str(refused.value)
    assert await dump(conn) == before
    return str(refused.value)


@ways
async def test_enqueue_plain_refuses_the_same_as_enqueue_many(
    conn: asyncpg.Connection, count: int, alone: bool
) -> None:
    assert await request(conn, "cancel", await enqueue(conn)) == "accepted"
    ids = new_job_ids(count)
    wrongs: list[tuple[dict[str, Any], str]] = [
        ({"job_type": ""}, "a job type must have 1 to 200 characters"),
        ({"job_type": None}, "a job type must have 1 to 200 characters"),
        ({"job_type": "x" * 201}, "a job type must have 1 to 200 characters"),
        ({"job_type": "holdfast.cancel"}, "are reserved: holdfast.cancel"),
        ({"job_type": "holdfast.cancel", "queue": "holdfast"}, "are reserved: holdfast.cancel"),
        ({"tenant": ""}, "tenant must have 1 to 200 characters"),
        ({"tenant": None}, "tenant must have 1 to 200 characters"),
        ({"tenant": "x" * 201}, "tenant must have 1 to 200 characters"),
        ({"queue": ""}, "queue must have 1 to 200 characters"),
        ({"queue": "x" * 201}, "queue must have 1 to 200 characters"),
        ({"queue": "holdfast"}, 'the queue "holdfast" is reserved'),
        ({"payloads": ["{}"] * (count - 1) + ["[]"]}, "the payload of work must be a JSON object"),
        ({"payloads": ["{}"] * (count - 1) + ["null"]}, "the payload of work must be a JSON object"),
        ({"payloads": ["{}"] * (count - 1) + [None]}, "the payload of work must be a JSON object"),
        ({"payloads": ["{}"] * (count + 1)}, "payloads and ids must have the same length"),
    ]
    for arguments, text in wrongs:
        assert text in await refusal(conn, ids, alone=alone, **arguments), arguments
    assert "ids of a batch must differ" in await refusal(conn, [*ids, ids[0]], alone=alone)
    taken = await enqueue(conn, "other")
    assert f"the id {taken} belongs to another job" in await refusal(conn, [*ids[1:], taken], alone=alone)


@ways
async def test_a_batch_is_claimed_in_its_order(conn: asyncpg.Connection, count: int, alone: bool) -> None:
    await enqueue(conn, "other")
    ids = new_job_ids(count)
    ids.reverse()
    await plain(conn, ids, alone=alone)
    assert [lease.job_id for lease in await claim(conn, limit=count)] == ids


async def test_while_one_call_notifies_workers_the_others_need_not(connect_as: ConnectAs) -> None:
    """Each notification makes commits wait for each other; those within longer transactions are always sent."""
    listener, slow, quick = [await connect_as("superuser") for _ in range(3)]
    await enqueue(slow)
    heard: asyncio.Queue[str] = asyncio.Queue()
    await listener.add_listener("holdfast.ready", lambda *told: heard.put_nowait(str(told[-1])))
    stream = str(await slow.fetchval("select id from streams"))
    for count in (1, 3):
        async with slow.transaction():
            await plain(slow, new_job_ids(count), alone=True)
            await plain(quick, new_job_ids(count), alone=True)
            await quick.execute("notify \"holdfast.ready\", 'nothing before'")
            assert await asyncio.wait_for(heard.get(), 10) == "nothing before"
            async with quick.transaction():
                await plain(quick, new_job_ids(count), alone=False)
            assert await asyncio.wait_for(heard.get(), 10) == stream
        assert await asyncio.wait_for(heard.get(), 10) == stream
    assert heard.empty()


@pytest.mark.parametrize("count", [1, 3, 500])
async def test_many_in_one_transaction_have_no_subtransactions(conn: asyncpg.Connection, count: int) -> None:
    """More than 64 of them in an open transaction slow down every other session."""
    if conn.get_server_version() < (16, 0):
        pytest.skip("only later releases tell how many there are")
    await enqueue(conn)
    async with conn.transaction():
        for _ in range(3):
            await plain(conn, new_job_ids(count))
        found = await conn.fetchval(
            "select max(s.subxact_count) from pg_stat_get_backend_idset() as b (id), "
            "pg_stat_get_backend_subxact(b.id) as s where pg_stat_get_backend_pid(b.id) = pg_backend_pid()"
        )
    assert found == 0


@pytest.mark.fresh_database
async def test_a_job_of_a_batch_is_four_records_of_wal(conn: asyncpg.Connection) -> None:
    """Row and key of the job, row and key of its place in line: `on conflict` would write a fifth."""
    await enqueue(conn)
    arguments = ("work", ["{}"] * 1000, new_job_ids(1000), None, "default", None, True)
    plan = await conn.fetchval(f"explain (analyze, wal, timing off, format json) select * from {STATEMENT}", *arguments)
    assert json.loads(plan)[0]["Plan"]["WAL Records"] <= 4400


async def test_the_long_way_is_planned_once(conn: asyncpg.Connection) -> None:
    """Planning for the arrays at hand would take three times as long as recording one job does."""
    rows = await conn.fetch("select proconfig from pg_proc where proname in ('record_jobs', 'check_enqueue')")
    assert ["plan_cache_mode=force_generic_plan" in row["proconfig"] for row in rows] == [True, True]


@pytest.mark.parametrize("alone", [False, True])
async def test_ids_that_are_missing_are_made_however_many_there_are(conn: asyncpg.Connection, alone: bool) -> None:
    await enqueue(conn)
    for count in (1, 2):
        answers = await plain(conn, [None] * count, alone=alone)  # type: ignore[list-item]
        assert [(item, outcome) for item, _, _, outcome in answers] == [(n + 1, "created") for n in range(count)]
        assert all(job_id is not None for _, job_id, _, _ in answers)


async def test_the_reserved_queue_is_refused_even_where_it_has_a_stream(conn: asyncpg.Connection) -> None:
    await conn.execute("insert into streams (tenant, queue, type) values ('default', 'holdfast', 'work')")
    with pytest.raises(asyncpg.PostgresError, match="reserved"):
        await plain(conn, new_job_ids(1), queue="holdfast")

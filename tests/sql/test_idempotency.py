"""One intent, one job, by a unique constraint, under any concurrency."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import asyncpg
import pytest

from tests.conftest import ConnectAs
from tests.sql.factories import (
    Wish,
    claim,
    enqueue,
    enqueue_many,
    enqueue_row,
    execute,
    job_in,
    offences,
    run_one,
    settle,
    state_of,
)

PROCESSES, CONNECTIONS, CALLS = 4, 10, 5

#: So slow an insert that two batches are sure to meet.
DAWDLE = """
    create function dawdle() returns trigger language plpgsql as $$ begin perform pg_sleep(0.001); return new; end $$;
    create trigger dawdle before insert on jobs for each row execute function dawdle()"""

CLIENT = """
import asyncio, json, sys
import asyncpg

async def call(conn, calls):
    rows = []
    for n in range(calls):
        rows += await conn.fetch(
            "select job_id, outcome from enqueue('pay', jsonb_build_object('order', 7), idempotency_key => 'k')")
    return [(str(row["job_id"]), row["outcome"]) for row in rows]

async def main(url, connections, calls):
    settings = {"search_path": "holdfast", "role": "holdfast_api"}
    conns = [await asyncpg.connect(url, server_settings=settings) for _ in range(connections)]
    print("ready", flush=True)
    sys.stdin.readline()
    answers = await asyncio.gather(*(call(conn, calls) for conn in conns))
    print(json.dumps([answer for some in answers for answer in some]))

asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
"""


async def test_200_concurrent_enqueues_of_one_key_from_several_processes_make_one_job(
    conn: asyncpg.Connection, database_url: str
) -> None:
    pipe = asyncio.subprocess.PIPE
    clients = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-c", CLIENT, database_url, str(CONNECTIONS), str(CALLS), stdin=pipe, stdout=pipe
        )
        for _ in range(PROCESSES)
    ]
    for client in clients:
        assert client.stdout is not None
        assert await client.stdout.readline() == b"ready\n"
    outputs = await asyncio.gather(*(client.communicate(b"go\n") for client in clients))
    answers = [answer for output, _ in outputs for answer in json.loads(output)]
    assert len(answers) == PROCESSES * CONNECTIONS * CALLS == 200
    assert len({job_id for job_id, _ in answers}) == 1
    assert sorted(outcome for _, outcome in answers) == ["created"] + 199 * ["existing"]
    assert await conn.fetchval("select count(*) from jobs") == 1
    assert await conn.fetchval("select count(*) from ready") == 1


async def test_the_same_key_with_another_type_or_payload_is_a_conflict(conn: asyncpg.Connection) -> None:
    first = await enqueue_row(conn, "pay", {"order": 7, "sum": 1}, idempotency_key="k")
    again = await enqueue_row(conn, "pay", {"sum": 1, "order": 7}, idempotency_key="k", priority=1)
    assert (again["job_id"], again["outcome"]) == (first["job_id"], "existing")
    for job_type, payload in (("pay", {"order": 8, "sum": 1}), ("refund", {"order": 7, "sum": 1}), ("pay", {})):
        other = await enqueue_row(conn, job_type, payload, idempotency_key="k")
        assert (other["job_id"], other["outcome"]) == (first["job_id"], "conflict")
    assert await conn.fetchval("select count(*) from jobs") == 1


async def test_keys_are_per_tenant(conn: asyncpg.Connection) -> None:
    ours = await enqueue_row(conn, idempotency_key="k", tenant="a")
    theirs = await enqueue_row(conn, "other", idempotency_key="k", tenant="b")
    assert (ours["outcome"], theirs["outcome"]) == ("created", "created")


@pytest.mark.parametrize("state", ["success", "dead", "canceled"])
async def test_the_key_of_an_ended_or_erased_job_still_answers(conn: asyncpg.Connection, state: str) -> None:
    job_id = await job_in(conn, state, idempotency_key="k")
    for erased in (False, True):
        if erased:
            assert await execute(conn, "delete", job_id) == "accepted"
            assert await conn.fetchval("select payload from jobs where id = $1", job_id) == "{}"
        row = await enqueue_row(conn, idempotency_key="k")
        assert tuple(row) == (job_id, state, "existing")
        assert (await enqueue_row(conn, payload={"n": 1}, idempotency_key="k"))["outcome"] == "conflict"
    assert await claim(conn) == []


async def test_duplicates_within_a_batch_make_one_job(conn: asyncpg.Connection) -> None:
    key: dict[str, Any] = {"idempotency_key": "k"}
    rows = await enqueue_many(
        conn, [("work", {}, key), ("work", {}, None), ("work", {}, key), ("work", {"n": 1}, key), ("work", {}, key)]
    )
    assert [row["outcome"] for row in rows] == ["created", "created", "existing", "conflict", "existing"]
    assert len({row["job_id"] for row in rows}) == 2
    assert await offences(conn) == []


async def test_dedup_key_answers_the_open_job_of_its_type_and_is_free_again_when_it_ended(
    conn: asyncpg.Connection,
) -> None:
    first = await enqueue(conn, dedup_key="d")
    hit = await enqueue_row(conn, payload={"other": 1}, dedup_key="d")
    assert tuple(hit) == (first, "queued", "existing")
    assert (await enqueue_row(conn, "other", dedup_key="d"))["outcome"] == "created"
    assert (await enqueue_row(conn, dedup_key="d", tenant="b"))["outcome"] == "created"
    (lease,) = await claim(conn, tenants=["default"])
    assert tuple(await enqueue_row(conn, dedup_key="d")) == (first, "running", "existing")
    assert await settle(conn, "complete", [lease]) == ["success"]
    second = await enqueue_row(conn, dedup_key="d")
    assert second["outcome"] == "created"
    await execute(conn, "cancel", second["job_id"])
    assert (await enqueue_row(conn, dedup_key="d"))["outcome"] == "created"
    dead = await run_one(conn, "mortal", dedup_key="d")
    await settle(conn, "fail", [dead], kinds=["fatal"])
    assert (await enqueue_row(conn, "mortal", dedup_key="d"))["outcome"] == "created"


async def test_a_key_whose_first_transaction_rolls_back_goes_to_the_next(connect_as: ConnectAs) -> None:
    first, second = await connect_as("api"), await connect_as("api")
    transaction = first.transaction()
    await transaction.start()
    await enqueue(first, "warm")
    lost = await enqueue(first, idempotency_key="k")
    waiting = asyncio.create_task(enqueue_row(second, idempotency_key="k"))
    assert not (await asyncio.wait([waiting], timeout=0.1))[0]
    await transaction.rollback()
    row = await waiting
    assert row["outcome"] == "created"
    assert row["job_id"] != lost
    assert await state_of(await connect_as("superuser"), lost) == "gone"


@pytest.mark.parametrize("option", ["idempotency_key", "dedup_key"])
async def test_batches_with_the_same_keys_in_other_orders_do_not_deadlock(connect_as: ConnectAs, option: str) -> None:
    sessions = [await connect_as("api") for _ in range(2)]
    await enqueue(sessions[0])
    await (await connect_as("superuser")).execute(DAWDLE)
    for turn in range(120):
        batch: list[Wish] = [("work", {}, {option: f"{turn}-{n}"}) for n in range(6)]
        answers = await asyncio.gather(enqueue_many(sessions[0], batch), enqueue_many(sessions[1], batch[::-1]))
        assert sum(row["outcome"] == "created" for rows in answers for row in rows) == 6
        assert [row["job_id"] for row in answers[0]] == [row["job_id"] for row in answers[1]][::-1]


async def test_a_key_that_meets_a_dedup_key_is_bound_to_the_job_that_was_there(conn: asyncpg.Connection) -> None:
    """It was forgotten: repeated later it made a second job, and with another payload it did not conflict."""
    first = await enqueue(conn, payload={"n": 1}, dedup_key="d")
    met = await enqueue_row(conn, payload={"n": 2}, idempotency_key="k", dedup_key="d")
    assert tuple(met) == (first, "queued", "existing")
    (lease,) = await claim(conn)
    assert await settle(conn, "complete", [lease]) == ["success"]
    repeated = await enqueue_row(conn, payload={"n": 2}, idempotency_key="k", dedup_key="d")
    assert tuple(repeated) == (first, "success", "existing")
    without = await enqueue_row(conn, payload={"n": 2}, idempotency_key="k")
    assert tuple(without) == (first, "success", "existing")
    # The fingerprint is that of the request, not of the job: that job's own payload conflicts.
    for payload in ({"n": 1}, {"n": 3}):
        assert (await enqueue_row(conn, payload=payload, idempotency_key="k"))["outcome"] == "conflict"
    assert await conn.fetchval("select count(*) from jobs") == 1
    assert await conn.fetchval("select idempotency_key from jobs") is None
    assert await offences(conn) == []


async def test_one_job_may_answer_many_keys(conn: asyncpg.Connection) -> None:
    rows = await enqueue_many(
        conn,
        [
            ("work", {"n": 1}, {"idempotency_key": "b", "dedup_key": "d"}),
            ("work", {"n": 2}, {"idempotency_key": "a", "dedup_key": "d"}),
            ("work", {"n": 2}, {"idempotency_key": "a"}),
            ("work", {"n": 9}, {"idempotency_key": "a", "dedup_key": "d"}),
            ("work", {"n": 1}, {"idempotency_key": "b", "dedup_key": "other"}),
        ],
    )
    assert [row["outcome"] for row in rows] == ["created", "existing", "existing", "conflict", "existing"]
    assert len({row["job_id"] for row in rows}) == 1
    assert await conn.fetchval("select idempotency_key from jobs") == "b"


async def test_a_key_lives_as_long_as_its_job(conn: asyncpg.Connection) -> None:
    first = await enqueue(conn, idempotency_key="made", dedup_key="d")
    await enqueue_row(conn, payload={"n": 1}, idempotency_key="met", dedup_key="d")
    other = await enqueue(conn, idempotency_key="other")
    (lease, _) = await claim(conn, limit=2)
    assert await settle(conn, "complete", [lease]) == ["success"]
    await conn.execute("update settings set value = '0' where name = 'RETENTION_DAYS'")
    await conn.fetch("select * from retire()")
    assert await state_of(conn, first) == "gone"
    kept = await conn.fetch("select key, job_id from idempotency_keys")
    assert [tuple(row) for row in kept] == [("other", other)]
    for key in ("made", "met"):
        assert (await enqueue_row(conn, payload={"n": 2}, idempotency_key=key))["outcome"] == "created"


async def test_a_key_whose_job_is_gone_goes_to_the_next(conn: asyncpg.Connection) -> None:
    """Retention may take the job away between the look at it and the commit that binds a key to it."""
    await conn.execute("insert into idempotency_keys values ('default', 'k', gen_random_uuid(), 'x')")
    row = await enqueue_row(conn, idempotency_key="k")
    assert row["outcome"] == "created"
    assert tuple(await enqueue_row(conn, idempotency_key="k")) == (row["job_id"], "queued", "existing")


async def test_a_key_that_a_savepoint_takes_back_is_free(conn: asyncpg.Connection) -> None:
    async with conn.transaction():
        savepoint = conn.transaction()
        await savepoint.start()
        lost = await enqueue(conn, idempotency_key="k", dedup_key="d")
        await savepoint.rollback()
        row = await enqueue_row(conn, payload={"n": 1}, idempotency_key="k", dedup_key="d")
        assert row["outcome"] == "created"
        assert row["job_id"] != lost
    assert await offences(conn) == []


async def test_a_given_id_keeps_its_key_when_it_is_sent_again(conn: asyncpg.Connection) -> None:
    job_id = await conn.fetchval("select uuid_v7()")
    statement = "select * from enqueue_many('{work}', array['{}']::jsonb[], array[$2::jsonb], ids => array[$1::uuid])"
    option = json.dumps({"idempotency_key": "k", "dedup_key": "d"})
    outcomes = [tuple(row)[1:] for _ in range(3) for row in await conn.fetch(statement, job_id, option)]
    assert outcomes == [(job_id, "queued", outcome) for outcome in ("created", "existing", "existing")]
    late = await conn.fetchrow(statement, job_id, json.dumps({"idempotency_key": "late"}))
    assert late is not None
    assert (late["job_id"], late["outcome"]) == (job_id, "existing")
    assert (await enqueue_row(conn, payload={"n": 1}, idempotency_key="late"))["outcome"] == "conflict"


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
async def test_a_key_that_a_snapshot_does_not_show_fails_to_serialize(connect_as: ConnectAs, level: str) -> None:
    """Never a second job, and never another error: a caller that gets this one tries again."""
    first, second = await connect_as("api"), await connect_as("api")
    await second.execute(f"set default_transaction_isolation = '{level}'")
    for option in ({"idempotency_key": "k"}, {"dedup_key": "d"}):
        transaction = second.transaction()
        await transaction.start()
        await second.fetchval("select count(*) from backlog()")
        made = await enqueue(first, **option)
        with pytest.raises(asyncpg.SerializationError):
            await enqueue_row(second, **option)
        await transaction.rollback()
        assert tuple(await enqueue_row(second, **option)) == (made, "queued", "existing")


async def test_keys_and_dedup_keys_crosswise_do_not_deadlock(connect_as: ConnectAs) -> None:
    sessions = [await connect_as("api") for _ in range(2)]
    conn = await connect_as("superuser")
    await enqueue(sessions[0])
    await conn.execute(DAWDLE)
    for turn in range(60):
        batch: list[Wish] = [
            ("work", {}, {"idempotency_key": f"{turn}-{n}", "dedup_key": f"{turn}-{5 - n}"}) for n in range(6)
        ]
        answers = await asyncio.gather(enqueue_many(sessions[0], batch), enqueue_many(sessions[1], batch[::-1]))
        assert [row["job_id"] for row in answers[0]] == [row["job_id"] for row in answers[1]][::-1]
    assert await offences(conn) == []


async def test_the_database_itself_refuses_a_second_job_for_a_key(conn: asyncpg.Connection) -> None:
    await enqueue(conn, idempotency_key="k")
    other = await enqueue(conn)
    statement = "insert into idempotency_keys (tenant, key, job_id, fingerprint) values ($1, 'k', $2, 'x')"
    with pytest.raises(asyncpg.UniqueViolationError):
        await conn.execute(statement, "default", other)
    await conn.execute(statement, "another tenant", other)

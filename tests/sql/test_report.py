"""What attempts report: fenced, counted once, stored once per key, and gone with their job."""

from __future__ import annotations

import asyncio
import hashlib
import json
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from holdfast.store.statements import queries
from tests.conftest import ConnectAs
from tests.sql.factories import (
    Lease,
    claim_by_id,
    dump,
    enqueue,
    execute,
    expire,
    job_row,
    make_due,
    offences,
    promote,
    request,
    run_one,
    settle,
    state_of,
    sweep,
)


async def report(
    conn: asyncpg.Connection, lease: Lease, seq: int = 1, items: Any = None, **more: Any
) -> asyncpg.Record:
    """Report by named arguments, as the worker "w1"."""
    if "cursor" in more:
        more["cursor"] = json.dumps(more["cursor"])
    names = "".join(
        f", {name} => ${i}{'::text::jsonb' if name in ('cursor', 'result') else ''}" for i, name in enumerate(more, 6)
    )
    row = await conn.fetchrow(
        f"select * from report($1, $2, $3, $4, $5::text::jsonb{names})",
        "w1", lease.job_id, lease.attempt, seq, None if items is None else json.dumps(items), *more.values(),
    )  # fmt: skip
    assert row is not None
    return row


def keyed(*keys: str) -> list[dict[str, Any]]:
    """Items with these keys."""
    return [{"key": key, "data": {"of": key}} for key in keys]


def counts(row: asyncpg.Record) -> tuple[int, int]:
    """How much was reported, and how much was stored."""
    return row["progress_count"], row["result_count"]


async def stored(conn: asyncpg.Connection, job_id: UUID) -> list[str]:
    """The keys of a job's items, in order."""
    return [row["key"] for row in await conn.fetch("select * from get_items($1, null, 1000)", job_id)]


async def again(conn: asyncpg.Connection, job_id: UUID) -> Lease:
    """The next attempt of a job that waits for one."""
    await make_due(conn, job_id)
    await promote(conn)
    lease = await claim_by_id(conn, job_id)
    assert lease is not None
    return lease


async def test_a_report_stores_counts_and_remembers_where_it_was(conn: asyncpg.Connection) -> None:
    lease = await run_one(conn, target_count=10)
    before = await job_row(conn, lease.job_id)
    first = await report(conn, lease, 1, keyed("b", "a", "b"), cursor={"page": 2})
    assert dict(first) == {
        "state": "running", "duplicate": False, "progress_count": 3, "result_count": 2, "target_count": 10,
        "target_reached": False,
    }  # fmt: skip
    second = await report(conn, lease, 2, keyed("a", "c"), progress=5)
    assert counts(second) == (10, 3)
    assert await stored(conn, lease.job_id) == ["a", "b", "c"]
    # Items are numbered within their job: what others have stored cannot be told from it.
    await report(conn, await run_one(conn), 1, keyed("a", "b", "c"))
    await report(conn, lease, 3, keyed("0"))
    numbers = [row["id"] for row in await conn.fetch("select * from get_items($1, null, 1000)", lease.job_id)]
    assert numbers == [1, 2, 5, 11]
    assert await stored(conn, lease.job_id) == ["a", "b", "c", "0"]
    (progress,) = await conn.fetch("select * from get_progress($1)", [lease.job_id])
    assert (json.loads(progress["cursor"]), progress["done_reason"]) == ({"page": 2}, None)
    assert await job_row(conn, lease.job_id) == before
    assert await settle(conn, "complete", [lease]) == ["success"]
    (progress,) = await conn.fetch("select * from get_progress($1)", [lease.job_id])
    assert progress["done_reason"] == "worker_done"


async def test_a_report_of_a_lost_attempt_changes_nothing(conn: asyncpg.Connection) -> None:
    stale = await run_one(conn)
    await report(conn, stale, 1, keyed("a"), cursor=1)
    await expire(conn, stale.job_id)
    await report(conn, stale, 2, keyed("b"))  # past its expiry, but the lease is still there
    await sweep(conn)
    before = await dump(conn)
    assert (await report(conn, stale, 3, keyed("x"), cursor=9))["state"] == "lease-lost"
    assert await dump(conn) == before
    fresh = await claim_by_id(conn, stale.job_id)
    assert fresh is not None
    before = await dump(conn)
    for ends in ("later", "at-target", "now"):
        assert (await report(conn, stale, 4, keyed("x"), cursor=9, ends=ends))["state"] == "lease-lost"
    assert await dump(conn) == before
    assert counts(await report(conn, fresh, 1, keyed("c"))) == (3, 3)
    assert (await report(conn, stale, 1, keyed("a")))["state"] == "lease-lost"
    assert await settle(conn, "complete", [fresh]) == ["success"]
    before = await dump(conn)
    for lease in (stale, fresh, Lease(stale.job_id, 99)):
        assert (await report(conn, lease, 50, keyed("x")))["state"] == "lease-lost"
    assert await dump(conn) == before


async def test_a_repeated_report_counts_once_whatever_the_order_and_the_gaps(conn: asyncpg.Connection) -> None:
    lease = await run_one(conn)
    for seq in (5, 1, 3, 2147483647):
        answer = await report(conn, lease, seq, keyed(f"k{seq}"), progress=1)
        assert not answer["duplicate"]
    before = await dump(conn)
    for seq in (1, 3, 5, 2147483647):
        answer = await report(conn, lease, seq, keyed("other"), progress=1, cursor="other")
        assert (answer["duplicate"], counts(answer)) == (True, (8, 4))
    assert await dump(conn) == before
    assert counts(await report(conn, lease, 2)) == (8, 4)
    assert await settle(conn, "complete", [lease]) == ["success"]
    late = await report(conn, lease, 3, keyed("other"))
    assert (late["state"], late["duplicate"]) == ("success", True)
    before_retry = await run_one(conn)
    await report(conn, before_retry, 1, progress=1)
    await settle(conn, "fail", [before_retry])
    following = await again(conn, before_retry.job_id)
    assert counts(await report(conn, following, 1, progress=1)) == (2, 0)


async def test_reports_with_many_gaps_keep_the_row_small(conn: asyncpg.Connection) -> None:
    lease = await run_one(conn)
    for seq in range(10, 10 + 3 * 400, 3):
        await report(conn, lease, seq, progress=1)
    size = await conn.fetchval("select max(pg_column_size(seqs)) from job_progress")
    assert size < 2100
    for seq in (10, 10 + 3 * 399, 10 + 3 * 398):
        assert (await report(conn, lease, seq, progress=1))["duplicate"]
    assert counts(await report(conn, lease, 10 + 3 * 399 - 1, progress=1)) == (401, 0)


async def test_collections_are_shared_within_a_tenant_and_apart_between_tenants(conn: asyncpg.Connection) -> None:
    mine, also_mine, theirs = [await run_one(conn, tenant=tenant) for tenant in ("a", "a", "b")]
    assert counts(await report(conn, mine, 1, keyed("x", "y"), collection="leads")) == (2, 2)
    assert counts(await report(conn, also_mine, 1, keyed("y", "z"), collection="leads")) == (2, 1)
    assert counts(await report(conn, theirs, 1, keyed("x", "y"), collection="leads")) == (2, 2)
    for n, lease in enumerate((mine, also_mine), 2):
        assert counts(await report(conn, lease, n, keyed("x")))[1] == (3 if lease is mine else 2)
    assert await stored(conn, also_mine.job_id) == ["z", "x"]
    # The id of a job, or of a correlation, is a name like any other, and not that job's own collection.
    named = str(mine.job_id)
    assert counts(await report(conn, theirs, 2, keyed("x"), collection=named)) == (3, 3)
    assert counts(await report(conn, also_mine, 9, keyed("x"), collection=named)) == (4, 3)
    assert counts(await report(conn, mine, 9, keyed("x", "own"), collection=named))[1] == 4
    rows = await conn.fetch("select collection, key from get_items($1)", also_mine.job_id)
    assert (named, "x") in {tuple(row) for row in rows}
    tenants = await conn.fetch(
        "select distinct i.tenant = j.tenant as same from job_items i join jobs j on j.id = job_id"
    )
    assert [row["same"] for row in tenants] == [True]


async def test_without_a_key_an_item_is_known_by_its_data(conn: asyncpg.Connection) -> None:
    lease = await run_one(conn)
    items = [{"data": {"a": 1, "b": 2}}, {"data": {"b": 2.0, "a": 1}}, {"key": None, "data": None}, {"data": [1]}]
    answer = await report(conn, lease, 1, items)
    assert counts(answer) == (4, 4)  # 2 and 2.0 are two texts
    assert counts(await report(conn, lease, 2, [{"data": {"b": 2, "a": 1}}])) == (5, 4)
    assert hashlib.sha256(b"[1]").hexdigest() in await stored(conn, lease.job_id)


async def test_the_target_ends_the_job_where_the_report_is_to_end_it(conn: asyncpg.Connection) -> None:
    lease = await run_one(conn, target_count=2)
    assert not (await report(conn, lease, 1, keyed("a", "a"), ends="at-target"))["target_reached"]
    done = await report(conn, lease, 2, keyed("b", "c"), ends="at-target", result='{"n": 3}', log_excerpt="bye")
    assert (done["state"], done["target_reached"], counts(done)) == ("success", True, (4, 3))
    job = await job_row(conn, lease.job_id)
    assert (job["state"], json.loads(job["result"])) == ("success", {"n": 3})
    repeated = await report(conn, lease, 2, keyed("b", "c"), ends="at-target")
    assert (repeated["state"], repeated["duplicate"], counts(repeated)) == ("success", True, (4, 3))

    by_the_caller = await run_one(conn, target_count=1)
    answer = await report(conn, by_the_caller, 1, keyed("a"))
    assert (answer["state"], answer["target_reached"]) == ("running", True)
    assert await settle(conn, "complete", [by_the_caller]) == ["success"]

    at_once = await run_one(conn)
    assert (await report(conn, at_once, 1, ends="now", done_reason="no_more_results"))["state"] == "success"
    rows = await conn.fetch(
        "select job_id, done_reason from get_progress($1)", [lease.job_id, by_the_caller.job_id, at_once.job_id]
    )
    assert {row["job_id"]: row["done_reason"] for row in rows} == {
        lease.job_id: "target_reached", by_the_caller.job_id: "target_reached", at_once.job_id: "no_more_results",
    }  # fmt: skip
    assert await offences(conn) == []


async def test_the_next_attempt_starts_from_the_last_cursor(conn: asyncpg.Connection) -> None:
    lease = await run_one(conn)
    await report(conn, lease, 1, cursor={"page": 2})
    await report(conn, lease, 2, keyed("a"), cursor={"page": 3})
    await report(conn, lease, 3, keyed("b"))
    await settle(conn, "snooze", [lease], delays=[0.0])
    stream = await conn.fetchval("select stream from jobs where id = $1", lease.job_id)
    row = await conn.fetchrow(
        queries("holdfast")["claim_jobs"], "w1", 1, None, [stream], [-1], [0], [2**31 - 1], 1, None, True
    )  # fmt: skip
    assert row is not None
    assert (row["attempt"], json.loads(row["cursor"])) == (2, {"page": 3})


async def reporters(conn: asyncpg.Connection, many: int) -> tuple[UUID, UUID]:
    """Two jobs that have ended; the first has stored this many items, the other one."""
    lease, other = await run_one(conn), await run_one(conn)
    for seq, start in enumerate(range(0, many, 10_000), 1):
        items = keyed(*(f"k{n}" for n in range(start, min(many, start + 10_000))))
        await report(conn, lease, seq, items, cursor="secret")
    await report(conn, other, 1, keyed("a"), cursor="kept")
    await settle(conn, "complete", [lease, other])
    return lease.job_id, other.job_id


async def left(conn: asyncpg.Connection, job_id: UUID) -> int:
    """How many items of a job there are."""
    return int(await conn.fetchval("select count(*) from job_items where job_id = $1", job_id))


async def test_items_are_erased_with_the_job(conn: asyncpg.Connection) -> None:
    for many, rounds in ((3, 1), (10_001, 2)):
        job, other = await reporters(conn, many)
        await execute(conn, "delete", job)
        for _ in range(rounds - 1):
            assert await left(conn, job) == many - 10_000
            asked = await conn.fetchval("select id from jobs where type = 'holdfast.delete' and state = 'scheduled'")
            await make_due(conn, asked)
            await promote(conn)
            await conn.execute("select execute_requests()")
        assert await left(conn, job) == 0
        assert await conn.fetch("select * from get_progress($1)", [job]) == []
        assert await conn.fetchval("select count(*) from job_events where job_id = $1 and event = 'erased'", job) == 1
        assert await stored(conn, other) == ["a"]
        assert await conn.fetchval("select cursor from get_progress($1)", [other]) == '"kept"'


async def test_items_are_deleted_before_their_job_in_small_batches(conn: asyncpg.Connection) -> None:
    job, other = await reporters(conn, 10_001)
    await conn.execute("update jobs set finished_at = now() - interval '8 days' where id = $1", job)
    first = await conn.fetchrow("select * from retire()")
    assert first is not None
    assert (first["deleted"], first["reached"] is None, await left(conn, job)) == (0, False, 1)
    assert await state_of(conn, job) == "success"
    second = await conn.fetchrow("select * from retire($1)", first["reached"])
    assert second is not None
    assert (second["deleted"], await left(conn, job), await state_of(conn, job)) == (1, 0, "gone")
    assert await conn.fetch("select * from job_progress where job_id = $1", job) == []
    assert await stored(conn, other) == ["a"]


async def test_a_job_that_is_run_again_has_neither_progress_nor_cursor(conn: asyncpg.Connection) -> None:
    lease = await run_one(conn, target_count=5)
    await report(conn, lease, 1, keyed("a"), cursor="there")
    await settle(conn, "complete", [lease])
    assert await request(conn, "retry", lease.job_id) == "new-job"
    new = await conn.fetchval("select id from jobs where retry_of = $1", lease.job_id)
    assert await conn.fetch("select * from get_progress($1)", [new]) == []
    following = await claim_by_id(conn, new)
    assert following is not None
    assert await conn.fetchval("select last_cursor($1)", new) is None
    assert counts(await report(conn, following, 1, keyed("a"))) == (1, 1)


async def test_invalid_reports_are_refused(conn: asyncpg.Connection) -> None:
    lease = await run_one(conn)
    before = await dump(conn)
    wrong: list[dict[str, Any]] = [
        {"seq": 0}, {"items": {"key": "a"}}, {"items": ["a"]}, {"items": [{"key": "a"}]},
        {"items": [{"key": 1, "data": 1}]}, {"items": [{"key": "", "data": 1}]},
        {"items": [{"key": "k" * 256, "data": 1}]}, {"items": [{"data": 1}] * 10_001}, {"collection": ""},
        {"collection": "c" * 201}, {"progress": -1}, {"done_reason": "bored"}, {"ends": "perhaps"},
    ]  # fmt: skip
    for fault in wrong:
        with pytest.raises(asyncpg.PostgresError) as raised:
            await report(conn, lease, **fault)
        assert raised.value.sqlstate == "HF002", fault
    assert await dump(conn) == before


async def test_progress_that_adds_up_to_too_much_is_refused(conn: asyncpg.Connection) -> None:
    most = 2**63 - 1
    lease = await run_one(conn)
    with pytest.raises(asyncpg.PostgresError, match="total progress of a job must be at most") as first:
        await report(conn, lease, 1, keyed("a"), progress=most)
    assert counts(await report(conn, lease, 1, keyed("a"), progress=most - 2)) == (most - 1, 1)
    with pytest.raises(asyncpg.PostgresError, match="total progress of a job must be at most") as second:
        await report(conn, lease, 2, keyed("b", "c"))
    assert {first.value.sqlstate, second.value.sqlstate} == {"HF002"}
    assert counts(await report(conn, lease, 2, progress=1)) == (most, 1)


async def test_reports_to_one_collection_never_wait_for_each_other_in_a_circle(connect_as: ConnectAs) -> None:
    conns = [await connect_as("superuser") for _ in range(4)]
    leases = [await run_one(conns[0]) for _ in conns]

    async def fill(number: int) -> None:
        for round_ in range(10):
            keys = [f"{round_}-{n}" for n in range(200)]
            items = keyed(*(keys if number % 2 else reversed(keys)))
            await report(conns[number], leases[number], round_ + 1, items, collection="shared")

    await asyncio.gather(*map(fill, range(len(conns))))
    rows = await conns[0].fetch("select * from get_progress($1)", [lease.job_id for lease in leases])
    assert sum(row["result_count"] for row in rows) == 2000
    assert await conns[0].fetchval("select count(*) from job_items") == 2000


async def test_a_report_and_the_sweep_of_its_lease_are_one_after_the_other(connect_as: ConnectAs) -> None:
    """While a report is under way its lease cannot be swept: what it stores counts, and belongs to the owner."""
    conn, reporting = await connect_as("superuser"), await connect_as("superuser")
    lease = await run_one(conn)
    await expire(conn, lease.job_id)
    async with reporting.transaction():
        await report(reporting, lease, 1, keyed("a"))
        assert await sweep(conn) == {}
    assert await sweep(conn) == {lease.job_id: "queued"}
    assert await stored(conn, lease.job_id) == ["a"]


async def test_plain_jobs_have_no_row_in_job_progress(conn: asyncpg.Connection) -> None:
    await enqueue(conn)
    await settle(conn, "complete", [await run_one(conn)])
    assert await conn.fetchval("select count(*) from job_progress") == 0

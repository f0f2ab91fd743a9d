"""The table of created, paused and held jobs follows every move, and bulk operations find them by it."""

from __future__ import annotations

import asyncio
from uuid import UUID, uuid4

import asyncpg
import pytest

from holdfast.model.states import State
from tests.conftest import ConnectAs
from tests.sql.factories import claim, elect, enqueue, enqueue_copies, execute, job_in, offences, run_one, settle
from tests.sql.test_bulk import counts, finish, preview, start

DORMANT = (State.CREATED, State.PAUSED, State.ERROR)


async def dormant(conn: asyncpg.Connection) -> set[UUID]:
    return {row["job_id"] for row in await conn.fetch("select job_id from dormant")}


@pytest.mark.parametrize("state", State)
async def test_a_job_has_a_row_while_it_is_dormant(conn: asyncpg.Connection, state: State) -> None:
    job_id = await job_in(conn, state, tenant="acme")
    rows = await conn.fetch("select job_id, tenant from dormant")
    assert [tuple(row) for row in rows] == ([(job_id, "acme")] if state in DORMANT else [])
    assert await offences(conn) == []


@pytest.mark.parametrize(
    ("state", "goal"),
    [
        ("created", "queued"), ("created", "scheduled"), ("created", "canceled"), ("paused", "queued"),
        ("paused", "scheduled"), ("paused", "canceled"), ("error", "queued"), ("error", "canceled"), ("error", "dead"),
        ("queued", "paused"), ("scheduled", "paused"), ("retry", "paused"), ("running", "paused"), ("running", "error"),
    ],
)  # fmt: skip
async def test_moves_by_hand_are_followed(conn: asyncpg.Connection, state: str, goal: str) -> None:
    """Hand-written SQL has nothing but the guard, which writes the row or takes it away."""
    job_id = await job_in(conn, state)
    await conn.execute("update jobs set state = $2 where id = $1", job_id, goal)
    assert await dormant(conn) == ({job_id} if goal in DORMANT else set())


async def test_an_insert_by_hand_is_followed(conn: asyncpg.Connection) -> None:
    job_id = await enqueue(conn)
    await conn.execute(
        "insert into jobs (id, seq, stream, state, tenant, type, queue, payload)"
        " select gen_random_uuid(), seq + 1, stream, 'created', tenant, type, queue, payload from jobs where id = $1",
        job_id,
    )
    assert await dormant(conn) == set(await conn.fetchval("select array_agg(id) from jobs where state = 'created'"))
    # A duplicate that is not recorded leaves no row.
    await enqueue(conn, hold=True, dedup_key="d")
    await enqueue(conn, hold=True, dedup_key="d")
    assert len(await dormant(conn)) == 2


async def test_what_is_missing_is_added_and_what_does_not_fit_is_dropped(conn: asyncpg.Connection) -> None:
    jobs = {state: await job_in(conn, state, target=state) for state in DORMANT}
    ended = await job_in(conn, State.SUCCESS)
    await conn.execute("delete from dormant")
    for stray in (ended, uuid4()):
        await conn.execute("insert into dormant values ($1, 'default')", stray)
    assert {job_id for _, job_id in await offences(conn)} >= {*jobs.values(), ended}
    repairs = await conn.fetch("select job_id, repair from reconcile_pages() where job_id is not null")
    assert {tuple(row) for row in repairs} == {(job_id, "dormant-without-row") for job_id in jobs.values()}
    assert tuple(await conn.fetchrow("select * from drop_stray_dormant()") or ()) == (2, None)
    assert await dormant(conn) == set(jobs.values())
    assert await offences(conn) == []


async def test_a_row_that_a_job_has_just_taken_again_is_not_dropped(
    conn: asyncpg.Connection, connect_as: ConnectAs
) -> None:
    """A stray row, a pause that is not committed yet, and the walk."""
    job_id = await enqueue(conn)
    await conn.execute("insert into dormant values ($1, 'default')", job_id)
    operator = await connect_as("owner")
    async with operator.transaction():
        await operator.execute("update jobs set state = 'paused' where id = $1", job_id)
        async with asyncio.timeout(10):
            assert (await conn.fetchval("select mended from drop_stray_dormant()")) == 0
    assert await dormant(conn) == {job_id}


async def test_jobs_from_before_are_noted_once_and_until_then_all_are_walked_over(conn: asyncpg.Connection) -> None:
    jobs = {await job_in(conn, state) for state in DORMANT}
    await enqueue_copies(conn, 5)
    await conn.execute("delete from dormant; insert into walks values ('dormant')")
    assert await conn.fetch("select from reconcile_pages() where job_id is not null") == []
    assert (await preview(conn, "cancel", "type:work"))[:2] == (8, True)
    bulk_id = await start(conn, "pause", "type:none")
    assert await conn.fetchval("select sources from bulks where id = $1", bulk_id) == [
        "due",
        "waiting",
        "ready",
        "leases",
    ]
    bulk_id = await start(conn, "resume", "type:work")
    assert await conn.fetchval("select sources from bulks where id = $1", bulk_id) == ["jobs"]
    steps = 0
    while (await conn.fetchval("select reached from note_dormant(null, 3)")) is not None:
        steps += 1
    assert steps >= 2
    assert await dormant(conn) == jobs
    assert await conn.fetchval("select count(*) from walks") == 0
    assert (await preview(conn, "cancel", "type:work"))[:2] == (8, True)
    assert await conn.fetchval("select bulk_sources(bulk_tree('resume', '{}', now()), null)") == ["dormant"]


@pytest.mark.parametrize("tenant", [None, "acme", "default"])
async def test_a_paused_job_of_a_target_is_found_once(conn: asyncpg.Connection, tenant: str | None) -> None:
    """It stands in the line of its target, too."""
    of = tenant or "default"
    ids = [await enqueue(conn, target="t", tenant=of) for _ in range(3)]
    await elect(conn)
    assert await claim(conn) != []
    await execute(conn, "pause", ids[1])
    assert await conn.fetchval("select turn from waiting where job_id = $1", ids[1]) == 0
    matches, exact, sample = await preview(conn, "cancel", "type:work", only_tenant=tenant)
    assert (matches, exact, set(sample)) == (3, True, set(ids))
    bulk_id = await start(conn, "cancel", "type:work", only_tenant=tenant)
    await finish(conn)
    assert await counts(conn, bulk_id) == ("done", 3, 3, 0, 0)


@pytest.mark.parametrize("tenant", ["acme", "default"])
async def test_jobs_of_a_tenant_are_found_where_they_wait(conn: asyncpg.Connection, tenant: str) -> None:
    """In several streams, parked, in line, due, running and dormant, in pages of any size, and none of others."""
    mine = set()
    for of in ("acme", "default", "other"):
        found = {await job_in(conn, state, tenant=of) for state in State if not state.terminal}
        for job_type in ("one", "two", "three"):
            found |= {await enqueue(conn, job_type, tenant=of) for _ in range(5)}
        found |= {await enqueue(conn, target="t", tenant=of) for _ in range(3)}
        mine |= found if of == tenant else set()
    await elect(conn)
    stream = await conn.fetchval("select id from streams where type = 'two' and tenant = $1", tenant)
    await conn.execute("update ready set stream = -stream where stream = $1", stream)
    # An entry whose stream is not there yet; it comes back within moments.
    gone = await conn.fetchval("select id from streams where type = 'three' and tenant = $1", tenant)
    await conn.execute("set session_replication_role = replica")
    await conn.execute("delete from streams where id = $1", gone)
    await conn.execute("set session_replication_role = default")
    for size in (1, 3, 1000):
        place, pages = None, []
        while True:
            page = await conn.fetchrow(
                "select p.* from (select bulk_tree('cancel', '{\"and\": []}', now()) as tree) t,"
                " bulk_page(t.tree, $1, bulk_sources(t.tree, $1), $2, $3, $3) p",
                tenant, place, size,
            )  # fmt: skip
            assert page is not None
            pages += page["ids"]
            place = page["reached"]
            if place is None:
                break
        assert sorted(pages) == sorted(mine)
    bulk_id = await start(conn, "cancel", "type:*", only_tenant=tenant)
    assert "jobs" not in await conn.fetchval("select sources from bulks")
    await finish(conn)
    assert (await counts(conn, bulk_id))[:3] == ("done", len(mine), len(mine))
    assert await conn.fetchval("select count(*) from bulk_jobs") == 0
    canceled = await conn.fetch(
        "select id from jobs where state = 'canceled' or id in (select job_id from leases where interrupt = 'cancel')"
    )
    assert {row["id"] for row in canceled} == mine


async def test_pages_of_a_tenant_tell_nothing_about_others(conn: asyncpg.Connection) -> None:
    """Where each page ends depends on the tenant's own jobs."""

    async def pages() -> list[tuple[int, bool]]:
        place, found = None, []
        while True:
            page = await conn.fetchrow(
                "select p.ids, p.reached from (select bulk_tree('cancel', '{\"and\": []}', now()) as tree) t,"
                " bulk_page(t.tree, 'acme', bulk_sources(t.tree, 'acme'), $1, 2, 2) p",
                place,
            )
            assert page is not None
            place = page["reached"]
            found.append((len(page["ids"]), place is None))
            if place is None:
                return found

    for state in State:
        if not state.terminal:
            await job_in(conn, state, tenant="acme")
    alone = await pages()
    for of in ("aaaa", "default", "zzzz"):
        for _ in range(5):
            await enqueue(conn, tenant=of)
            await enqueue(conn, tenant=of, delay=60.0)
            await enqueue(conn, tenant=of, hold=True)
            await run_one(conn, tenant=of)
    assert await pages() == alone


async def test_very_many_due_jobs_of_others_are_not_looked_through(conn: asyncpg.Connection) -> None:
    mine = await job_in(conn, State.SCHEDULED, tenant="acme")
    await conn.execute("set holdfast.search_due = 0")
    assert await conn.fetchval("select bulk_sources(bulk_tree('cancel', '{}', now()), 'acme')") == ["jobs"]
    assert await conn.fetchval("select bulk_sources(bulk_tree('resume', '{}', now()), 'acme')") == ["dormant"]
    assert await preview(conn, "cancel", "type:work", only_tenant="acme") == (1, True, [mine])


async def test_a_job_that_is_held_and_resumed_again_and_again_has_one_row(conn: asyncpg.Connection) -> None:
    lease = await run_one(conn)
    assert await settle(conn, "fail", [lease], kinds=["hold"]) == ["error"]
    for _ in range(3):
        await execute(conn, "resume", lease.job_id)
        assert await dormant(conn) == set()
        await execute(conn, "pause", lease.job_id)
        assert await dormant(conn) == {lease.job_id}
    assert await offences(conn) == []

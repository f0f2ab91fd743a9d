"""Rows left inconsistent on purpose: they are named, wedge nothing, and are mended."""

from __future__ import annotations

from uuid import UUID, uuid4

import asyncpg
import pytest

from holdfast.model.states import State
from tests.conftest import ConnectAs
from tests.sql.factories import (
    Lease,
    claim,
    claim_by_id,
    elect,
    enqueue,
    enqueue_copies,
    expire,
    job_in,
    job_row,
    make_due,
    offences,
    promote,
    publish,
    run_one,
    settle,
    state_of,
    sweep,
)


async def mend(conn: asyncpg.Connection) -> dict[UUID, str]:
    """One round of maintenance; what the walk repaired."""
    rows = await conn.fetch("select * from reconcile()")
    await conn.execute("select drop_strays(), headless_targets()")
    return {row["job_id"]: row["repair"] for row in rows if row["job_id"] is not None}


async def repairs(conn: asyncpg.Connection) -> dict[str, int]:
    """Repairs so far, by kind."""
    return {row["kind"]: row["count"] for row in await conn.fetch("select kind, count from repairs")}


async def goes_on(conn: asyncpg.Connection) -> None:
    """The hot functions work as if nothing were wrong."""
    fresh = await enqueue(conn, "fresh")
    (lease,) = await claim(conn, "fresh")
    assert lease.job_id == fresh
    assert await settle(conn, "fail", [lease]) == ["retry"]
    await make_due(conn, fresh)
    await promote(conn)
    await sweep(conn)
    await elect(conn)
    await conn.execute("select execute_requests(), age()")
    assert await settle(conn, "complete", await claim(conn, "fresh")) == ["success"]


async def ends(conn: asyncpg.Connection, job_id: UUID) -> None:
    """The job can be claimed and completed."""
    lease = await claim_by_id(conn, job_id)
    assert lease is not None
    assert await settle(conn, "complete", [lease]) == ["success"]
    assert await offences(conn) == []


async def test_a_ready_entry_without_job(conn: asyncpg.Connection) -> None:
    jobs = await enqueue_copies(conn, 3)
    gone, ghost = uuid4(), await job_in(conn, "success", "other")
    stream = await conn.fetchval("select stream from jobs where id = $1", jobs[0])
    for job_id in (gone, ghost, jobs[1]):
        await conn.execute("insert into ready values ($1, 1, nextval('places'), $2)", stream, job_id)
    found = await offences(conn)
    assert set(found) == {
        ("a ready entry belongs to a queued job", gone),
        ("a ready entry belongs to a queued job", ghost),
        ("a job stands in ready once", jobs[1]),
    }
    await goes_on(conn)
    leases = await claim(conn, limit=3) + await claim(conn, limit=10)
    assert sorted(lease.job_id for lease in leases) == sorted(jobs)
    assert await settle(conn, "complete", leases) == ["success"] * 3
    assert await offences(conn) == []
    assert await conn.fetchval("select count from repairs where kind = 'ready-dropped'") == 3


@pytest.mark.parametrize("target", [None, "t"])
async def test_a_queued_job_without_ready(conn: asyncpg.Connection, target: str | None) -> None:
    job_id = await enqueue(conn, target=target)
    await elect(conn)
    await conn.execute("delete from ready")
    assert await offences(conn) == [("open jobs have their side row", job_id)]
    await goes_on(conn)
    assert await claim(conn) == []
    assert await mend(conn) == {job_id: "queued-without-ready"}
    assert await offences(conn) == []
    assert await mend(conn) == {}
    await ends(conn, job_id)


async def test_a_job_in_line_without_its_entry(conn: asyncpg.Connection) -> None:
    first, second = await enqueue(conn, target="t"), await enqueue(conn, target="t")
    await elect(conn)
    await conn.execute("delete from waiting")
    assert await offences(conn) == [("open jobs have their side row", second)]
    assert await mend(conn) == {second: "queued-without-ready"}
    assert await offences(conn) == []
    await ends(conn, first)
    await ends(conn, second)


@pytest.mark.parametrize("target", [None, "t"])
async def test_a_running_job_without_lease(conn: asyncpg.Connection, target: str | None) -> None:
    lease = await run_one(conn, target=target)
    behind = await enqueue(conn, target=target)
    await elect(conn)
    await conn.execute("delete from leases")
    assert await offences(conn) == [("open jobs have their side row", lease.job_id)]
    await goes_on(conn)
    assert await settle(conn, "complete", [lease]) == ["lease-lost"]
    assert await mend(conn) == {lease.job_id: "running-without-lease"}
    assert await offences(conn) == []
    job = await job_row(conn, lease.job_id)
    assert (job["state"], job["failures"], job["attempt"]) == ("queued", 1, 1)
    await ends(conn, lease.job_id)
    await ends(conn, behind)


async def test_a_running_job_without_lease_obeys_its_budget_and_its_failure_policy(conn: asyncpg.Connection) -> None:
    await publish(conn, "held", on_failure="hold")
    spent, held = await run_one(conn, max_attempts=1), await run_one(conn, "held")
    await conn.execute("delete from leases")
    await mend(conn)
    assert (await state_of(conn, spent.job_id), await state_of(conn, held.job_id)) == ("dead", "error")
    assert await offences(conn) == []


@pytest.mark.parametrize("state", ["scheduled", "retry"])
async def test_a_waiting_job_without_due(conn: asyncpg.Connection, state: str) -> None:
    job_id = await job_in(conn, state)
    await conn.execute("delete from due")
    assert await offences(conn) == [("open jobs have their side row", job_id)]
    await goes_on(conn)
    assert await mend(conn) == {job_id: "waiting-without-due"}
    assert await offences(conn) == []
    await make_due(conn, job_id)
    assert await promote(conn) == 1
    await ends(conn, job_id)


async def test_a_due_entry_without_job_is_dropped_when_its_time_comes(conn: asyncpg.Connection) -> None:
    gone, ended, moved = uuid4(), await job_in(conn, "success"), await job_in(conn, "scheduled")
    for job_id in (gone, ended, moved):
        await conn.execute("insert into due values (now() - interval '1 second', $1)", job_id)
    offence = "a due entry belongs to a scheduled or retrying job"
    assert set(await offences(conn)) == {(offence, gone), (offence, ended), (offence, moved)}
    await promote(conn)
    assert await offences(conn) == []
    assert await state_of(conn, moved) == "scheduled"
    row = await conn.fetchrow("select * from promote()")
    assert row is not None
    assert row["promoted"] == 0
    assert row["next_in_seconds"] > 3000


@pytest.mark.parametrize("target", [None, "t"])
async def test_stray_entries_are_dropped_even_without_a_worker(conn: asyncpg.Connection, target: str | None) -> None:
    """Gone, ended, running, queued but elsewhere, and one that stands in three places."""
    job_id, elsewhere = await enqueue(conn, target=target), await enqueue(conn, "other", target="o")
    ghosts = [uuid4(), await job_in(conn, "success", "other"), (await run_one(conn, "third")).job_id, elsewhere]
    await elect(conn)
    entry = await conn.fetchrow("select stream, rank, seq from ready where job_id = $1", job_id)
    assert entry is not None
    for number, ghost in enumerate(ghosts):
        await conn.execute("insert into ready values ($1, 202, $2, $3)", entry["stream"], 10**6 + number, ghost)
    for stream, rank in ((entry["stream"], 7), (-entry["stream"], entry["rank"])):
        await conn.execute("insert into ready values ($1, $2, $3, $4)", stream, rank, entry["seq"], job_id)
    assert len(await offences(conn)) > 4
    assert tuple(await conn.fetchrow("select * from drop_stray_entries()") or ()) == (6, None)
    assert await offences(conn) == []
    assert tuple(await conn.fetchrow("select * from drop_stray_entries()") or ()) == (0, None)
    await ends(conn, job_id)
    await ends(conn, elsewhere)


@pytest.mark.parametrize("state", ["canceled", "paused"])
@pytest.mark.parametrize("target", [None, "t"])
async def test_a_queued_job_that_was_moved_by_hand_is_neither_counted_nor_claimed(
    conn: asyncpg.Connection, state: str, target: str | None
) -> None:
    moved, other = await enqueue(conn, target=target, dedup_key="d"), await enqueue(conn)
    await elect(conn)
    await conn.execute("update jobs set state = $2 where id = $1", moved, state)
    await conn.execute("select from drop_stray_entries(); select from reconcile_pages(); select from replace_heads()")
    assert await offences(conn) == []
    assert await conn.fetchval("select array_agg(waiting) from list_queues()") == [1]
    assert await conn.fetchval("select count from backlog() where measure = 'ready'") == 1
    assert [lease.job_id for lease in await claim(conn, limit=10)] == [other]
    # What has ended gives its dedup key to the next one, and is retired some day.
    again = await enqueue(conn, dedup_key="d")
    assert (again != moved, (await job_row(conn, moved))["finished_at"] is not None) == (state == "canceled",) * 2


async def test_stray_due_entries_are_dropped_long_before_their_time(conn: asyncpg.Connection) -> None:
    gone, ended, waiting = uuid4(), await job_in(conn, "success"), await job_in(conn, "scheduled")
    for job_id in (gone, ended, waiting):
        await conn.execute("insert into due values (now() + interval '1000 days', $1)", job_id)
    assert tuple(await conn.fetchrow("select * from drop_stray_due()") or ()) == (3, None)
    assert await offences(conn) == []
    assert tuple(await conn.fetchrow("select * from drop_stray_due()") or ()) == (0, None)
    await make_due(conn, waiting)
    assert await promote(conn) == 1


async def test_an_entry_that_somebody_claims_is_not_dropped(connect_as: ConnectAs) -> None:
    conn, other = await connect_as("superuser"), await connect_as("superuser")
    await enqueue_copies(conn, 3)
    async with other.transaction():
        assert len(await claim(other, limit=2)) == 2
        assert tuple(await conn.fetchrow("select * from drop_stray_entries()") or ()) == (0, None)
    assert tuple(await conn.fetchrow("select * from drop_stray_entries()") or ()) == (0, None)


@pytest.mark.parametrize("verb", ["show", "unpark", "park", "age"])
async def test_an_entry_that_is_already_at_its_new_place_stops_no_move(conn: asyncpg.Connection, verb: str) -> None:
    """A duplicate key would make the duty, the claim or the settlement fail, for good."""
    await publish(conn, limit_count=1, limit_key="key")
    first, second = await enqueue(conn), await enqueue(conn)
    copy = "insert into ready select {}, {}, seq, job_id, ready_at from ready where job_id = $1"
    leases = [] if verb == "park" else await claim(conn, limit=1)
    if verb == "show":
        await conn.execute(copy.format("-stream", "rank"), second)
    elif verb == "unpark":
        assert await claim(conn) == []
        await conn.execute(copy.format("-stream", "rank"), second)
    elif verb == "park":
        await conn.execute(copy.format("-stream", "rank"), second)
        leases = await claim(conn, limit=2)
        await conn.execute("delete from parked")
    else:
        await conn.execute(copy.format("stream", "0"), second)
        await conn.execute("update ready set ready_at = now() - interval '1 day'")
        assert await conn.fetchval("select age()") == 1
    assert await settle(conn, "complete", leases) == ["success"]
    assert leases[0].job_id == first
    await mend(conn)
    await conn.execute("select drop_stray_entries()")
    assert await offences(conn) == []
    await ends(conn, second)


async def test_a_lease_without_running_job(conn: asyncpg.Connection) -> None:
    gone, ended, queued = uuid4(), await job_in(conn, "success", "other"), await enqueue(conn)
    running = await run_one(conn, "other")
    for job_id in (gone, ended, queued):
        await conn.execute(
            "insert into leases values ($1, 7, 1, 30, now(), now(), now() + interval '1 hour', 'w9')", job_id
        )
    await conn.execute("update leases set attempt = 9 where job_id = $1", running.job_id)
    offence = "a lease belongs to a running attempt"
    found = await offences(conn)
    assert set(found) >= {(offence, gone), (offence, ended), (offence, queued), (offence, running.job_id)}
    assert await settle(conn, "complete", [Lease(gone, 7), Lease(ended, 7)], worker="w9") == ["lease-lost"] * 2
    await goes_on(conn)
    await expire(conn, queued)
    await sweep(conn)
    for _ in range(2):
        await mend(conn)
    assert await offences(conn) == []
    assert await state_of(conn, ended) == "success"
    await ends(conn, queued)
    await ends(conn, running.job_id)


@pytest.mark.parametrize("fate", ["gone", "ended", "none"])
async def test_a_head_whose_job_is_gone(conn: asyncpg.Connection, fate: str) -> None:
    head = {"gone": uuid4(), "ended": await job_in(conn, "success"), "none": None}[fate]
    waiting = await enqueue(conn, target="t")
    await conn.execute("insert into heads values ('default', 't', $1, 1, 1)", head)
    assert await offences(conn) == [("the head of a target has not ended", head)]
    await goes_on(conn)
    await mend(conn)
    assert await offences(conn) == []
    await ends(conn, waiting)


async def test_a_line_whose_call_was_lost(conn: asyncpg.Connection) -> None:
    first = await enqueue(conn, target="t")
    await enqueue(conn, target="t")
    await conn.execute("delete from calls")
    assert await offences(conn) == [("a line has a head, or was called for", first)]
    await elect(conn)
    assert await claim(conn) == []
    await mend(conn)
    assert await offences(conn) == []
    assert await repairs(conn) == {"target-without-head": 1}
    await ends(conn, first)


async def test_a_line_whose_call_is_not_answered_yet_is_not_a_fault(conn: asyncpg.Connection) -> None:
    first = await enqueue(conn, target="t")
    assert await conn.fetchval("select headless_targets()") == 0
    assert await claim(conn) == []
    assert await repairs(conn) == {}
    await elect(conn)
    await ends(conn, first)


async def test_an_ended_head_with_a_pending_call_is_not_a_fault(conn: asyncpg.Connection) -> None:
    ended, waiting = await job_in(conn, "success"), await enqueue(conn, target="t")
    await conn.execute("insert into heads values ('default', 't', $1, 1, 1)", ended)
    assert await conn.fetchval("select mended from replace_heads()") == 0
    await conn.execute("delete from calls")
    assert await conn.fetchval("select mended from replace_heads()") == 1
    assert await repairs(conn) == {"head-replaced": 1}
    await ends(conn, waiting)


async def test_nothing_is_a_fault_while_very_many_calls_wait(conn: asyncpg.Connection) -> None:
    uncalled = "select targets from uncalled('{default, default}', '{s, t}', $1)"
    await conn.execute("insert into calls (tenant, target) values ('default', 't'), ('other', 's'), ('other', 'u')")
    assert await conn.fetchval(uncalled, 3) == ["s"]
    assert await conn.fetchval(uncalled, 2) is None
    await conn.execute("delete from calls where target = 'u'")
    assert await conn.fetchval(uncalled, 2) == ["s"]


async def test_the_walk_is_bounded_and_goes_on_where_it_ended(conn: asyncpg.Connection) -> None:
    jobs = sorted(await enqueue_copies(conn, 25))
    await conn.execute("delete from ready")
    after: UUID | None = None
    mended: list[UUID] = []
    for _ in range(3):
        rows = await conn.fetch("select * from reconcile($1, 10)", after)
        mended += [row["job_id"] for row in rows if row["job_id"]]
        after = rows[-1]["last"]
    assert sorted(mended) == jobs
    assert after == jobs[-1]
    assert await conn.fetch("select * from reconcile($1, 10)", after) == []


async def test_verify_is_clean_while_everything_is_in_order(conn: asyncpg.Connection) -> None:
    for state in State:
        await job_in(conn, state)
        await job_in(conn, state, target=f"t-{state}")
    assert await offences(conn) == []
    assert await mend(conn) == {}
    assert await offences(conn) == []

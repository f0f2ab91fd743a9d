"""Rows that somebody has locked, for as long as they like, hold up nothing but themselves."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from uuid import UUID

import asyncpg
import pytest

from tests.conftest import ConnectAs
from tests.sql.factories import (
    blocked,
    claim,
    claim_by_id,
    elect,
    enqueue,
    enqueue_copies,
    job_in,
    make_due,
    offences,
    promote,
    publish,
    settle,
)

#: Whoever waits for a lock in these tests has failed.
_PATIENCE = "set statement_timeout = '5s'"

Locked = Callable[[Sequence[UUID]], AbstractAsyncContextManager[None]]


@pytest.fixture
async def conn(connect_as: ConnectAs) -> asyncpg.Connection:
    """A superuser's connection that waits for nobody."""
    conn = await connect_as("superuser")
    await conn.execute(_PATIENCE)
    return conn


@pytest.fixture
async def locked(connect_as: ConnectAs) -> Locked:
    """Lock rows of jobs for the length of a block."""
    other = await connect_as("superuser")

    @asynccontextmanager
    async def hold(ids: Sequence[UUID]) -> AsyncIterator[None]:
        async with other.transaction():
            await other.execute("select from jobs where id = any ($1) for update", list(ids))
            yield

    return hold


@pytest.mark.parametrize("wanted", [1, 3, 100])
async def test_a_claim_passes_over_jobs_that_somebody_has_locked(
    conn: asyncpg.Connection, locked: Locked, wanted: int
) -> None:
    jobs = await enqueue_copies(conn, 60)
    held, free = jobs[:40] + jobs[50:51], jobs[40:50] + jobs[51:]
    async with locked(held):
        leases = await claim(conn, limit=wanted)
        assert [lease.job_id for lease in leases] == free[:wanted]
    leases += await claim(conn, limit=100) + await claim(conn, limit=100)
    assert sorted(lease.job_id for lease in leases) == sorted(jobs)
    assert await settle(conn, "complete", leases) == ["success"] * len(jobs)
    assert await offences(conn) == []
    assert await conn.fetchval("select count(*) from repairs") == 0


async def test_priority_is_kept_among_what_is_not_locked(conn: asyncpg.Connection, locked: Locked) -> None:
    (first,) = await enqueue_copies(conn, 1, "a", priority=1)
    second, third = await enqueue_copies(conn, 2, "b", priority=2)
    (last,) = await enqueue_copies(conn, 1, "a", priority=3)
    async with locked([first, second]):
        leases = await claim(conn, "a", "b", limit=4)
        assert [lease.job_id for lease in leases] == [third, last]
    assert [lease.job_id for lease in await claim(conn, "a", "b", limit=4)] == [first, second]


async def test_a_job_that_was_locked_before_is_claimed(conn: asyncpg.Connection, locked: Locked) -> None:
    """Promotion leaves the mark of a lock in the row, and so does any session that locked it."""
    looked_at, promoted = await enqueue(conn), await enqueue(conn, delay=60.0)
    await make_due(conn, promoted)
    await promote(conn)
    async with locked([looked_at]):
        pass
    assert [lease.job_id for lease in await claim(conn, limit=5)] == [looked_at, promoted]


async def test_with_limits_a_locked_job_takes_no_permit(conn: asyncpg.Connection, locked: Locked) -> None:
    await publish(conn, limit_count=2)
    jobs = await enqueue_copies(conn, 4)
    async with locked(jobs[:1]):
        leases = await claim(conn, limit=4)
        assert [lease.job_id for lease in leases] == jobs[1:3]
        assert await claim(conn, limit=4) == []
    assert await settle(conn, "complete", leases) == ["success"] * 2
    assert len(await claim(conn, limit=4)) == 2


async def test_a_claim_by_id_of_a_locked_job_waits_for_nobody(conn: asyncpg.Connection, locked: Locked) -> None:
    job_id = await enqueue(conn)
    async with locked([job_id]):
        assert await claim_by_id(conn, job_id) is None
    assert await claim_by_id(conn, job_id) is not None


@pytest.mark.parametrize("delay", [None, 60.0])
async def test_a_claim_by_id_of_a_locked_job_takes_no_other_job(
    conn: asyncpg.Connection, locked: Locked, delay: float | None
) -> None:
    asked, *others = await enqueue_copies(conn, 3, delay=delay)
    await make_due(conn, asked, *others)
    await promote(conn)
    async with locked([asked]):
        assert await claim_by_id(conn, asked) is None
        assert await conn.fetchval("select count(*) from leases") == 0
    lease = await claim_by_id(conn, asked)
    assert lease is not None
    assert lease.job_id == asked
    assert [lease.job_id for lease in await claim(conn, limit=9)] == others
    assert await offences(conn) == []


async def test_a_locked_request_holds_up_no_other(conn: asyncpg.Connection, locked: Locked) -> None:
    jobs = await enqueue_copies(conn, 2)
    rows = await conn.fetch("select request_id from request('cancel', $1)", jobs)
    async with locked([rows[0]["request_id"]]):
        assert await conn.fetchval("select execute_requests()") == 1
        states = await conn.fetch("select state from jobs where id = any ($1) order by seq", jobs)
        assert [row["state"] for row in states] == ["queued", "canceled"]
    assert await conn.fetchval("select execute_requests()") == 1


#: A constraint is checked after a claim has seen that nobody has the row, and before it changes it.
_PAUSE = """
create function public.pause(state text) returns boolean
language plpgsql
set lock_timeout = 0
as $$
begin
  if state = 'running' then
    perform pg_advisory_xact_lock_shared(4711);
  end if;
  return true;
end
$$;
alter table jobs add constraint pause check (public.pause(state)) not valid
"""


@pytest.mark.fresh_database
async def test_a_lock_that_comes_in_between_ends_a_claim_soon(
    conn: asyncpg.Connection, connect_as: ConnectAs, locked: Locked
) -> None:
    """It cannot be passed over any more; the next claim does."""
    stopper = await connect_as("superuser")
    first, second = await enqueue_copies(conn, 2)
    await stopper.execute(_PAUSE)
    await stopper.execute("select pg_advisory_lock(4711)")
    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        claiming = tasks.create_task(_refused_claim(conn))
        await blocked(stopper, conn)
        async with locked([first]):
            await stopper.execute("select pg_advisory_unlock(4711)")
            assert 1.0 <= await claiming < 4.0
            assert [lease.job_id for lease in await claim(conn, limit=2)] == [second]
    assert [lease.job_id for lease in await claim(conn, limit=2)] == [first]
    assert await offences(conn) == []


async def _refused_claim(conn: asyncpg.Connection) -> float:
    """How long a claim takes until it fails for a lock."""
    began = time.monotonic()
    with pytest.raises(asyncpg.LockNotAvailableError):
        await claim(conn)
    return time.monotonic() - began


async def test_a_locked_target_holds_up_no_settlement_no_promotion_and_no_other_target(
    conn: asyncpg.Connection, connect_as: ConnectAs
) -> None:
    other = await connect_as("superuser")
    first, second = await enqueue_copies(conn, 2, target="locked")
    await elect(conn)
    leases = await claim(conn)
    due, plain = await enqueue(conn, target="locked", delay=60.0), await enqueue(conn, delay=60.0)
    await make_due(conn, due, plain)
    async with other.transaction():
        await other.execute("select from heads where target = 'locked' for update")
        aimed = await enqueue(conn, target="free")
        assert await settle(conn, "complete", leases) == ["success"]
        assert await promote(conn) == 2
        await elect(conn)
        assert {lease.job_id for lease in await claim(conn, limit=9)} == {plain, aimed}
    assert leases[0].job_id == first
    for job_id in (second, due):
        await elect(conn)
        (lease,) = await claim(conn, limit=9)
        assert lease.job_id == job_id
        assert await settle(conn, "complete", [lease]) == ["success"]
    assert await offences(conn) == []


@pytest.mark.parametrize("hold", ["select from heads {} for update", "update heads set seq = seq {}"])
async def test_any_number_of_locked_targets_is_waited_for_no_longer_than_one(
    conn: asyncpg.Connection, connect_as: ConnectAs, hold: str
) -> None:
    other = await connect_as("superuser")
    targets = [f"{kind}-{number}" for kind in ("free", "locked") for number in range(10)]
    waiting = [(await enqueue_copies(conn, 2, target=target))[1] for target in targets]
    await elect(conn)
    leases = await claim(conn, limit=20)
    async with other.transaction():
        await other.execute(hold.format("where target like 'locked%'"))
        assert await settle(conn, "complete", leases) == ["success"] * 20
        await elect(conn)
        assert {lease.job_id for lease in await claim(conn, limit=20)} == set(waiting[:10])
    await elect(conn)
    assert {lease.job_id for lease in await claim(conn, limit=20)} == set(waiting[10:])
    assert await offences(conn) == []


async def test_a_locked_job_whose_time_is_over_stays_and_the_others_go(
    conn: asyncpg.Connection, locked: Locked
) -> None:
    jobs = [await job_in(conn, "success") for _ in range(4)]
    await conn.execute("update settings set value = '0' where name = 'RETENTION_DAYS'")
    async with locked(jobs[1:2]):
        row = await conn.fetchrow("select deleted, kept from retire_from()")
        assert tuple(row or ()) == (3, jobs[1])
    assert await conn.fetchval("select deleted from retire_from()") == 1


async def test_a_locked_leader_goes_on_leading(conn: asyncpg.Connection, connect_as: ConnectAs) -> None:
    other = await connect_as("superuser")

    async def leads(candidate: str, seconds: float = 60.0) -> bool:
        return bool(await conn.fetchval("select leads from preside('maintenance', $1, $2)", candidate, seconds))

    assert await leads("a")
    async with other.transaction():
        await other.execute("select from leaders for update")
        assert await leads("a")
        assert not await leads("b")
    await conn.execute("select resign('maintenance', 'a')")
    async with other.transaction():
        await other.execute("select from leaders for update")
        assert await leads("b"), "the one that led is gone, and nobody can take its place"
    assert await leads("b")
    assert not await leads("a")

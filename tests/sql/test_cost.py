"""What a worker may not take costs it nothing: buffers and rows per claimed job stay within 1.1 of an empty system.

The counters are the server's own, so the figures do not depend on the machine. A million more rows make the
B-trees one level deeper, which is within the bound; nothing else may grow. `make test` has thousands instead.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pytest

from holdfast.model.states import State
from tests.conftest import CHAOS_SECONDS, ConnectAs
from tests.sql.factories import elect, enqueue, enqueue_copies, enqueue_many, execute, offences
from tests.sql.meter import TRIES, BareWorker, Cost, leave_alone, totals, undisturbed

pytestmark = [pytest.mark.usefixtures("one_at_a_time"), pytest.mark.fresh_database, pytest.mark.alone]

#: Jobs to measure, and those before them, which make B-trees of more than a page.
JOBS, BEFORE = (600, 5000) if CHAOS_SECONDS else (400, 2000)
MANY = 1_000_000 if CHAOS_SECONDS else 20_000
#: Targets with a line of jobs each that is blocked.
TARGETS, IN_LINE = (1000, 100) if CHAOS_SECONDS else (250, 20)
#: Batches of rows that die behind an open transaction.
DEAD = 12 if CHAOS_SECONDS else 4
BOUND = 1.1

#: So many jobs over the streams of other tenants, straight into the tables: {state} with its side rows.
FILL = """
    with numbered as (
      select ('018f{block}-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid as id, nextval('places') as seq,
        s.ids[1 + n % cardinality(s.ids)] as stream
      from (select array_agg(id) as ids from streams where tenant <> 'default') s, generate_series(1, $1::integer) n
    ), recorded as (
      insert into jobs (id, seq, stream, state, attempt, tenant, type, queue, payload, finished_at)
      select id, seq, stream, '{state}', {attempt}, 'some', 'other', 'default', '{{"n": 1}}', {finished} from numbered
    )
    {side}"""
READY = "insert into ready (stream, rank, seq, job_id) select stream, 202, seq, id from numbered"
ATTEMPTS = """
    insert into job_attempts (job_id, attempt, started_at, outcome, worker)
    select id, 1, now(), 'success', 'w0' from numbered"""
WAITING = FILL.format(block="0001", state="queued", attempt=0, finished="null", side=READY)
FINISHED = FILL.format(block="0002", state="success", attempt=1, finished="now()", side=ATTEMPTS)


@asynccontextmanager
async def quickly(conn: asyncpg.Connection) -> AsyncIterator[None]:
    """Fill tables without asking the guard row by row."""
    await conn.execute("set session_replication_role = replica")
    yield
    await conn.execute("set session_replication_role = default")


async def prepared(conn: asyncpg.Connection) -> BareWorker:
    """A worker for the type `mine` of one tenant, that has worked before: no B-tree is a single page any more."""
    await leave_alone(conn)
    worker = BareWorker(conn, ["mine"], ["default"])
    await enqueue_copies(conn, BEFORE, "mine")
    assert await worker.drain(BEFORE) == BEFORE
    return worker


async def measured(conn: asyncpg.Connection, worker: BareWorker) -> Cost:
    """The cost of one job, claimed and completed among many."""
    await enqueue_copies(conn, JOBS, "mine")
    before = await totals(conn)
    assert await worker.drain(JOBS) == JOBS
    return (await totals(conn) - before).per(JOBS)


async def measured_empty(conn: asyncpg.Connection, worker: BareWorker) -> Cost:
    """The cost in a system with nothing else in it: the least of a few."""
    costs = [await measured(conn, worker) for _ in range(TRIES // 3)]
    return min(costs, key=lambda cost: cost.buffers)


async def assert_within(conn: asyncpg.Connection, worker: BareWorker, empty: Cost, what: str) -> None:
    for _ in range(TRIES):
        found = await measured(conn, worker)
        if found.buffers <= BOUND * empty.buffers and found.rows <= BOUND * empty.rows:
            break
        await undisturbed(conn)
    print(f"{what}: buffers {found.buffers:.2f} of {empty.buffers:.2f}, rows {found.rows:.2f} of {empty.rows:.2f}")
    assert found.buffers <= BOUND * empty.buffers
    assert found.rows <= BOUND * empty.rows


async def block_targets(conn: asyncpg.Connection, targets: int, each: int) -> None:
    """Lines of jobs of the very stream that the worker takes from, each behind a paused head."""
    names = [f"t{n}" for n in range(targets)]
    heads = await enqueue_many(conn, [("mine", {}, {"target": name}) for name in names])
    await elect(conn)
    await elect(conn)
    await conn.execute("select request('pause', $1)", [row["job_id"] for row in heads])
    while await conn.fetchval("select execute_requests(1000)"):
        pass
    for _ in range(each):
        await enqueue_many(conn, [("mine", {}, {"target": name}) for name in names])
    while await conn.fetchval("select elect(10000)"):
        pass
    assert await conn.fetchval("select count(*) from waiting") == targets * each


@pytest.mark.timeout(600)
async def test_jobs_of_others_blocked_ones_and_finished_ones_cost_nothing(conn: asyncpg.Connection) -> None:
    for table in ("jobs", "ready", "job_attempts"):
        await conn.execute(f"alter table {table} set unlogged")
    worker = await prepared(conn)
    empty = await measured_empty(conn, worker)
    for n in range(50):
        await enqueue(conn, "other", tenant=f"tenant{n}")
        await enqueue(conn, "mine", tenant=f"tenant{n}")
    async with quickly(conn):
        await conn.execute(WAITING, MANY)
    await assert_within(conn, worker, empty, f"{MANY} jobs of other types and tenants")
    await block_targets(conn, TARGETS, IN_LINE)
    await assert_within(conn, worker, empty, f"{TARGETS * IN_LINE} jobs behind {TARGETS} targets")
    async with quickly(conn):
        await conn.execute(FINISHED, MANY)
    await assert_within(conn, worker, empty, f"{MANY} finished jobs")


@pytest.mark.parametrize("pin", ["snapshot", "transaction id"])
async def test_dead_rows_behind_an_open_transaction_cost_nothing(
    conn: asyncpg.Connection, connect_as: ConnectAs, pin: str
) -> None:
    other = await connect_as("superuser")
    worker = await prepared(conn)
    empty = await measured_empty(conn, worker)
    transaction = other.transaction(isolation="repeatable_read" if pin == "snapshot" else "read_committed")
    await transaction.start()
    await other.execute("select count(*) from jobs" if pin == "snapshot" else "select txid_current()")
    for _ in range(DEAD):
        await enqueue_copies(conn, 2000, "mine")
    assert await worker.drain(DEAD * 2000) == DEAD * 2000
    await conn.execute("vacuum ready")
    await assert_within(conn, worker, empty, f"dead rows pinned by a {pin}")
    await transaction.rollback()


async def test_scheduled_held_and_paused_jobs_cost_nothing(conn: asyncpg.Connection) -> None:
    worker = await prepared(conn)
    empty = await measured_empty(conn, worker)
    await enqueue_copies(conn, BEFORE, "mine", delay=3600)
    await enqueue_copies(conn, BEFORE, "mine", hold=True)
    for _ in range(20):
        assert await execute(conn, "pause", await enqueue(conn, "mine")) == "accepted"
    await assert_within(conn, worker, empty, "scheduled, held and paused jobs")
    assert await offences(conn) == []
    states = await conn.fetch("select distinct state from jobs where type = 'mine'")
    assert {row["state"] for row in states} == {State.SCHEDULED, State.CREATED, State.PAUSED, State.SUCCESS}

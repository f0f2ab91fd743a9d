"""Maintenance beside large tables: urgent duties are in time, faults are found, retention keeps up."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from uuid import UUID, uuid4

import asyncpg
import pytest

from holdfast.config import Config
from holdfast.maintenance.duties.retention import Retention
from holdfast.maintenance.duty import Next
from holdfast.maintenance.leader import Maintenance
from holdfast.store.maintenance import MaintenanceStore
from holdfast.telemetry.bus import Bus
from holdfast.telemetry.events import DutyFailed
from tests.conftest import ConnectAs
from tests.faults.conftest import CHAOS_SECONDS
from tests.harness.deeds import Deeds
from tests.harness.slowness import Slowness
from tests.harness.waiting import until
from tests.sql import crowd
from tests.sql.factories import claim_by_id, enqueue, enqueue_copies, offences, request, state_of
from tests.sql.meter import BareWorker

TARGETS, STREAMS, DUE, ENDED = (
    (300_000, 200_000, 1_000_000, 5_000_000) if CHAOS_SECONDS else (3000, 2000, 10_000, 20_000)
)
ROUNDS = 10 if CHAOS_SECONDS else 2
LEASE_SECONDS = 1.0
#: How long retention has to keep up with a drain at full speed, and for how long ended jobs are kept then.
DRAIN_SECONDS, KEPT_SECONDS = (600.0, 60.0) if CHAOS_SECONDS else (2.5, 0.5)
BACKLOG = 300_000 if CHAOS_SECONDS else 8_000
#: Jobs per second. They were 2500 at most before retention followed what falls due.
RETIRED_PER_SECOND = 5000
#: While there is a backlog, retention works for half of the time. The other rounds of maintenance may delay it.
WORKING_SHARE = 0.25


@asynccontextmanager
async def maintained(config: Config) -> AsyncIterator[list[str]]:
    """Maintenance in this process; what failed there."""
    bus, failed = Bus(), list[str]()
    bus.subscribe(lambda event: failed.append(f"{event.duty}: {event.fault}"), DutyFailed)
    service = Maintenance(config, bus)
    task = asyncio.create_task(service.run())
    yield failed
    service.stop()
    await task


async def fill(conn: asyncpg.Connection) -> None:
    await crowd.held_targets(conn, TARGETS)
    await crowd.ready_streams(conn, STREAMS)
    await crowd.due_later(conn, DUE)
    await crowd.permits(conn, TARGETS)
    for table in ("jobs", "heads", "waiting", "ready", "due", "permits"):
        await conn.execute(f"vacuum analyze {table}")


async def seconds_until(conn: asyncpg.Connection, job_id: UUID, state: str, bound: float) -> float:
    """How long it takes until the job is there."""
    began = time.monotonic()

    async def there() -> bool:
        return await state_of(conn, job_id) == state

    await until(there, seconds=bound, what=f"the job is {state}")
    return time.monotonic() - began


@pytest.mark.alone
@pytest.mark.timeout(1800 if CHAOS_SECONDS else 120)
async def test_nobody_waits_longer_because_tables_are_large(
    conn: asyncpg.Connection, config: Config, deeds: Deeds, slow: Slowness
) -> None:
    await fill(conn)
    async with maintained(config) as failed:
        figures: dict[str, float] = {"recovery": 0.0, "promotion": 0.0, "request": 0.0}
        async with asyncio.timeout(900):
            await asyncio.sleep(LEASE_SECONDS)  # no lease is judged before the leader has been there for one
            for _ in range(ROUNDS):
                for what, wait in (("recovery", recovery), ("promotion", promotion), ("request", canceled)):
                    figures[what] = max(figures[what], await wait(conn))
    sizes = f"{TARGETS} targets, {STREAMS} streams, {DUE} due jobs"
    deeds.say(f"{sizes}: " + ", ".join(f"{what} {seconds:.2f} s" for what, seconds in figures.items()))
    assert failed == []
    factor = 1.0 if CHAOS_SECONDS else slow.factor  # the short form runs beside all other tests
    assert figures["recovery"] <= LEASE_SECONDS + 5 * factor
    assert figures["promotion"] <= 1 * factor
    assert figures["request"] <= 1 * factor


@pytest.mark.timeout(1800 if CHAOS_SECONDS else 120)
async def test_faults_are_found_beside_very_many_ended_jobs(
    conn: asyncpg.Connection, config: Config, deeds: Deeds
) -> None:
    await crowd.ended(conn, ENDED)
    await crowd.ready_streams(conn, 1)
    await crowd.due_later(conn, 1000)
    await conn.execute("vacuum analyze jobs")
    forgotten = await conn.fetchval("select job_id from due offset 500 limit 1")
    await conn.execute("delete from due where job_id = $1", forgotten)
    # Besides a job that lost its entry, one that somebody wrote by hand, with an id that tells no time.
    stranger = uuid4()
    await conn.execute(
        "insert into jobs (id, seq, stream, state, tenant, type, queue, payload) "
        "select $1, nextval('places'), s.id, 'queued', s.tenant, s.type, s.queue, '{}' from streams s limit 1",
        stranger,
    )
    async with maintained(config) as failed:
        planted_at = time.monotonic()
        await until(lambda: mended(conn, forgotten), seconds=60, what="the job is due again")
        await until(lambda: in_line(conn, stranger), seconds=60, what="the job stands in line")
        deeds.say(f"{ENDED} ended jobs: two faults found within {time.monotonic() - planted_at:.1f} s")
        assert time.monotonic() - planted_at <= 60
        # The next one is found by a leader that has been everywhere.
        planted_at = time.monotonic()
        await conn.execute("delete from due where job_id = $1", forgotten)
        await until(lambda: mended(conn, forgotten), seconds=60, what="the job is due again")
        deeds.say(f"{ENDED} ended jobs: another one within {time.monotonic() - planted_at:.1f} s")
    assert failed == []


async def recovery(conn: asyncpg.Connection) -> float:
    """From the claim of a worker that is never heard of again."""
    job_id = await enqueue(conn, "work")
    assert await claim_by_id(conn, job_id) is not None
    await conn.execute(
        "update leases set lease_seconds = $2::double precision, "
        "expires_at = now() + make_interval(secs => $2::double precision) where job_id = $1",
        job_id,
        LEASE_SECONDS,
    )
    return await seconds_until(conn, job_id, "queued", 60)


async def promotion(conn: asyncpg.Connection) -> float:
    """From the moment at which a job is due."""
    job_id = await enqueue(conn, "work", delay=0.5)
    return await seconds_until(conn, job_id, "queued", 60) - 0.5


async def canceled(conn: asyncpg.Connection) -> float:
    """From the request to cancel a job that waits."""
    job_id = await enqueue(conn, "work")
    assert await request(conn, "cancel", job_id) == "accepted"
    return await seconds_until(conn, job_id, "canceled", 60)


async def mended(conn: asyncpg.Connection, job_id: UUID) -> bool:
    return bool(await conn.fetchval("select exists (select from due d join jobs j on j.id = d.job_id "
                                    "and j.run_at = d.run_at where j.id = $1)", job_id))  # fmt: skip


async def in_line(conn: asyncpg.Connection, job_id: UUID) -> bool:
    return bool(await conn.fetchval("select exists (select from ready r join jobs j on j.stream = r.stream "
                                    "and j.seq = r.seq where j.id = $1)", job_id))  # fmt: skip


class Rounds:
    """When each of retention's rounds began and ended; the first one waits until it may begin."""

    def __init__(self) -> None:
        self.noted: list[tuple[float, float]] = []
        self.wanted, self.allowed = asyncio.Event(), asyncio.Event()

    async def note(self, duty: Retention, store: MaintenanceStore) -> Next:
        self.wanted.set()
        await self.allowed.wait()
        began = time.monotonic()
        following = await _work(duty, store)
        self.noted.append((began, time.monotonic()))
        return following


_work = Retention.work


@pytest.fixture
def rounds(monkeypatch: pytest.MonkeyPatch) -> Rounds:
    rounds = Rounds()

    async def work(duty: Retention, store: MaintenanceStore) -> Next:
        return await rounds.note(duty, store)

    monkeypatch.setattr(Retention, "work", work)
    return rounds


@pytest.mark.alone
@pytest.mark.timeout(300 if CHAOS_SECONDS else 120)
async def test_retention_is_quick_beside_a_drain_at_full_speed(
    connect_as: ConnectAs, config: Config, deeds: Deeds, slow: Slowness, rounds: Rounds
) -> None:
    conn = await connect_as("superuser")
    await crowd.ended(conn, BACKLOG, age="1 day")
    await conn.execute("update settings set value = '0.5' where name = 'RETENTION_DAYS'")
    done = asyncio.Event()
    async with maintained(config) as failed, asyncio.TaskGroup() as group:
        # A new leader begins with its other duties: for seconds, which say nothing about how quick retention is.
        async with asyncio.timeout(60):
            await rounds.wanted.wait()
        began = time.monotonic()
        drained = group.create_task(drain(await connect_as("superuser"), done.is_set))
        await until(lambda: drain_runs(conn), what="the drain runs")
        rounds.allowed.set()
        await until(lambda: backlog_gone(conn), seconds=200, what="the backlog is gone")
        gone = time.monotonic()
        done.set()
    deleting = [(first, last) for first, last in rounds.noted if first < gone]
    seconds = deleting[-1][1] - deleting[0][0]
    worked = sum(last - first for first, last in deleting)
    deeds.say(f"a backlog of {BACKLOG} retired at {BACKLOG / seconds:.0f} jobs/s, {worked / seconds:.0%} of the time, "
              f"{drained.result() / (gone - began):.0f} jobs/s drained meanwhile")  # fmt: skip
    assert failed == []
    # The short form runs beside all other tests, which slow the rounds and not what is wrong between them.
    factor = 1.0 if CHAOS_SECONDS else slow.factor
    assert worked / seconds >= WORKING_SHARE
    assert BACKLOG / (worked / factor) >= RETIRED_PER_SECOND / WORKING_SHARE / 2
    assert not CHAOS_SECONDS or BACKLOG / seconds >= RETIRED_PER_SECOND


@pytest.mark.soak
@pytest.mark.timeout(900 if CHAOS_SECONDS else 120)
async def test_retention_keeps_up_with_a_drain_at_full_speed(
    conn: asyncpg.Connection, connect_as: ConnectAs, config: Config, deeds: Deeds
) -> None:
    await conn.execute("update settings set value = $1 where name = 'RETENTION_DAYS'", str(KEPT_SECONDS / 86400))
    async with maintained(config) as failed, asyncio.TaskGroup() as group:
        stop = time.monotonic() + DRAIN_SECONDS
        drained = group.create_task(drain(await connect_as("superuser"), lambda: time.monotonic() >= stop))
        behind = 0.0
        while not drained.done():
            behind = max(behind, await seconds_behind(conn))
            await asyncio.sleep(0.5)
        await until(lambda: nothing_left(conn), seconds=KEPT_SECONDS + 60, what="all ended jobs are gone")
    left = await conn.fetchval("select count(*) from job_attempts")
    deeds.say(f"{drained.result() / DRAIN_SECONDS:.0f} jobs/s drained for {DRAIN_SECONDS:.0f} s, retention "
              f"{behind:.1f} s behind at most")  # fmt: skip
    assert failed == []
    assert behind < 60 if CHAOS_SECONDS else behind < 20
    assert left == 0
    assert await offences(conn) == []


async def drain(conn: asyncpg.Connection, enough: Callable[[], bool]) -> int:
    """Enqueue and complete as fast as one connection can; how many."""
    worker, done = BareWorker(conn, ["work"]), 0
    while not enough():
        await enqueue_copies(conn, 1000)
        done += await worker.drain(1000, 200)
    return done


async def backlog_gone(conn: asyncpg.Connection) -> bool:
    return not await conn.fetchval("select exists (select from (select created_at from jobs order by id limit 1) j "
                                   "where created_at < now() - interval '1 hour')")  # fmt: skip


async def drain_runs(conn: asyncpg.Connection) -> bool:
    return bool(await conn.fetchval("select exists (select from jobs where created_at > now() - interval '1 hour' "
                                    "and state = 'success')"))  # fmt: skip


async def nothing_left(conn: asyncpg.Connection) -> bool:
    return not await conn.fetchval("select exists (select from jobs)")


async def seconds_behind(conn: asyncpg.Connection) -> float:
    """For how long the first jobs of the table should have been gone."""
    return float(await conn.fetchval(
        "select coalesce(extract(epoch from now() - min(j.finished_at)) - $1::double precision, 0)::double precision "
        "from (select finished_at from jobs order by id limit 1000) j", KEPT_SECONDS))  # fmt: skip

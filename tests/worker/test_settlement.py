"""Settlements that the database will not take: only what cannot be recorded waits or fails, and it says why."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from uuid import UUID

import asyncpg
import pytest

from holdfast import Context, Holdfast, Job
from holdfast.config import Config
from holdfast.errors import DatabaseUnavailable
from holdfast.model.hints import Hints
from holdfast.model.outcome import Outcome
from holdfast.store.database import Database
from holdfast.store.leases import LeaseStore, Settlement
from holdfast.telemetry.bus import Bus
from holdfast.telemetry.events import SettlementDelayed
from holdfast.worker.claimed import Claimed, ClaimedAttempts
from holdfast.worker.settlement import SettlementService
from tests.conftest import ConnectAs
from tests.harness.inprocess import reached, working
from tests.harness.waiting import until
from tests.worker import oversized
from tests.worker.children import opened


class Recording(LeaseStore):
    """Records the size of each batch."""

    def __init__(self, database: Database, worker: str) -> None:
        super().__init__(database, worker)
        self.sent: list[tuple[int, int]] = []

    async def _settle(self, batch: Sequence[Settlement]) -> dict[tuple[UUID, int], str]:
        self.sent.append((len(batch), sum(len(entry.outcome.result or "") for entry in batch)))
        return await super()._settle(batch)


@pytest.fixture
async def store(config: Config) -> AsyncIterator[Recording]:
    database = Database(config, role="worker", size=4)
    await database.open()
    yield Recording(database, "w1")
    await database.close()


@asynccontextmanager
async def locked(connect_as: ConnectAs, job_id: UUID) -> AsyncIterator[None]:
    """Somebody holds a job's row in an open transaction."""
    owner = await connect_as("superuser")
    async with owner.transaction():
        await owner.execute("select from jobs where id = $1 for update", job_id)
        yield


async def test_batches_are_bounded_by_bytes(hf: Holdfast, store: Recording) -> None:
    """A settlement of 1 GB is more than PostgreSQL takes, and was sent again for ever."""
    jobs = [ref.id for ref in await hf.enqueue_many([("big", {})] * 200)]
    settlement = await settling(store, len(jobs), result="x" * 60_000)
    await settlement.round()
    assert sum(count for count, _ in store.sent) == len(jobs)
    assert max(size for _, size in store.sent) < 5 * 2**20
    assert len(store.sent) == 3
    assert {(await hf.get(job)).state for job in jobs[::20]} == {"success"}


async def test_light_outcomes_do_not_wait_for_heavy_ones(hf: Holdfast, store: Recording) -> None:
    await hf.enqueue_many([("big", {})] * 6 + [("many", {})] * 6)
    settlement = await settling(store, 12, result="x", big="x" * 900_000)
    await settlement.round()
    assert sorted(store.sent[:2]) == [(1, 900_002), (6, 18)]
    assert [count for count, _ in store.sent[2:]] == [1] * 5


async def test_a_batch_that_is_never_answered_is_sent_in_parts(hf: Holdfast, store: Recording) -> None:
    """The server cuts the connection when a message is more than it takes: that looks like an outage."""
    jobs = [(await hf.enqueue("many", {})).id for _ in range(20)]
    plain = store._settle

    async def cut(batch: Sequence[Settlement]) -> dict[tuple[UUID, int], str]:
        if len(batch) > 4:
            raise DatabaseUnavailable("connection was closed in the middle of operation")
        return await plain(batch)

    store._settle = cut  # type: ignore[method-assign]
    settlement = await settling(store, len(jobs), result="x")
    task = asyncio.create_task(settlement.run())
    await asyncio.wait_for(settlement.empty.wait(), 20)
    settlement.stop()
    await task
    assert {(await hf.get(job)).state for job in jobs} == {"success"}


async def test_outcomes_that_find_no_memory_are_sent_again(hf: Holdfast, store: Recording) -> None:
    """Another handler uses all memory for the moment: that neither ends the worker nor loses an outcome."""
    jobs = [(await hf.enqueue("many", {})).id for _ in range(3)]
    plain, refusals = store._settle, [MemoryError(), MemoryError()]

    async def hungry(batch: Sequence[Settlement]) -> dict[tuple[UUID, int], str]:
        if refusals:
            raise refusals.pop()
        return await plain(batch)

    store._settle = hungry  # type: ignore[method-assign]
    settlement = await settling(store, len(jobs), result="x")
    task = asyncio.create_task(settlement.run())
    await until(lambda: task.done() or settlement.empty.is_set(), what="all is settled")
    settlement.stop()
    await task
    assert not refusals
    assert {(await hf.get(job)).state for job in jobs} == {"success"}


async def test_others_are_settled_beside_a_statement_that_takes_long(hf: Holdfast, store: Recording) -> None:
    await hf.enqueue_many([("big", {})] + [("many", {})] * 4)
    plain, go = store._settle, asyncio.Event()

    async def slow(batch: Sequence[Settlement]) -> dict[tuple[UUID, int], str]:
        if len(batch) == 4:
            await go.wait()
        return await plain(batch)

    store._settle = slow  # type: ignore[method-assign]
    settlement = await settling(store, 5, result="x", big="x" * 100_000)
    task = asyncio.create_task(settlement.run())
    await until(lambda: store.sent == [(1, 100_002)], what="the other one is settled")
    assert not settlement.empty.is_set()
    go.set()
    await asyncio.wait_for(settlement.empty.wait(), 20)
    settlement.stop()
    await task


@pytest.mark.usefixtures("warm_children")
async def test_a_result_that_is_too_large_fails_its_job_at_once(database_url: str) -> None:
    async with opened(database_url, oversized.hf) as hf:
        kinds = ["async", "thread", "process", "transaction", "process transaction"]
        big = [await hf.enqueue(kind, {"size": 1_100_000}) for kind in kinds]
        fits = [await hf.enqueue(kind, {"size": 1_000_000}) for kind in kinds]
        async with working(hf):
            for kind, job in zip(kinds, big, strict=True):
                dead = await reached(hf, job, "dead")
                assert_told(dead, kind, 1_100_002)
                assert [attempt.error_type for attempt in await hf.attempts(job)] == ["ResultTooLarge"], "it was sent"
            for job in fits:
                assert (await reached(hf, job, "success")).result == "x" * 1_000_000


async def test_a_result_is_measured_as_it_is_stored(hf: Holdfast) -> None:
    """1e308 has 5 characters here, and 309 digits there."""
    together = asyncio.Barrier(3)

    @hf.job("numbers")
    async def numbers(ctx: Context, count: int) -> list[float]:
        await together.wait()
        return [1e308] * count

    jobs = [await numbers.enqueue(count=count) for count in (1, 5000, 2)]
    async with working(hf):
        dead = await reached(hf, jobs[1], "dead")
        for job in (jobs[0], jobs[2]):
            await reached(hf, job, "success")
    assert_told(dead, "numbers", 5000 * 311)


async def test_the_limit_is_a_setting(hf: Holdfast, conn: asyncpg.Connection) -> None:
    await conn.execute("update settings set value = '2000000' where name = 'RESULT_MAX_BYTES'")
    async with opened(hf.config.database_url or "", oversized.hf) as app:
        big = await app.enqueue("async", {"size": 1_900_000})
        bigger = await app.enqueue("async", {"size": 2_100_000})
        async with working(app):
            await reached(app, big, "success")
            assert_told(await reached(app, bigger, "dead"), "async", 2_100_002, 2_000_000)


@pytest.mark.parametrize("timeout", [None, "300ms"])
async def test_a_lock_holds_up_only_the_job_that_it_is_on(
    hf: Holdfast, conn: asyncpg.Connection, connect_as: ConnectAs, timeout: str | None
) -> None:
    """The others of its batch are settled without it, those that come later are not held up, and its lease is kept."""
    if timeout:
        name = await conn.fetchval("select current_database()")
        await conn.execute(f"alter database {name} set statement_timeout = '{timeout}'")
    go, delayed = asyncio.Event(), asyncio.Event()

    @hf.job("wait")
    async def wait(ctx: Context) -> str:
        await go.wait()
        return "done"

    @hf.job("quick")
    async def quick(ctx: Context) -> str:
        return "quick"

    hf.events.subscribe(lambda _: delayed.set(), SettlementDelayed)
    jobs = [(await wait.enqueue()).id for _ in range(20)]
    async with working(hf, lanes="general=25"):
        for job in jobs:
            await reached(hf, job, "running")
        async with locked(connect_as, jobs[7]):
            go.set()
            assert (await hf.wait(await quick.enqueue(), timeout=5)).result == "quick"
            for job in jobs:
                if job != jobs[7]:
                    await hf.wait(job, timeout=15)
            await asyncio.wait_for(delayed.wait(), 15)
            assert (await hf.wait(await quick.enqueue(), timeout=2)).result == "quick"
            assert (await hf.get(jobs[7])).state == "running"
            expiry = await conn.fetchval("select expires_at from leases where job_id = $1", jobs[7])
            assert expiry is not None
        settled = await hf.wait(jobs[7], timeout=15)
    assert (settled.result, settled.attempt) == ("done", 1)


async def test_a_lease_is_kept_while_its_settlement_is_blocked(
    database_url: str, conn: asyncpg.Connection, connect_as: ConnectAs
) -> None:
    async with Holdfast(database_url) as hf:
        hf.config = Config.load({}, database_url=database_url, lease_sec_default=2, heartbeat_seconds=0.2)
        go = asyncio.Event()

        @hf.job("wait")
        async def wait(ctx: Context) -> str:
            await go.wait()
            return "done"

        job = (await wait.enqueue()).id
        async with working(hf):
            await reached(hf, job, "running")
            first = await conn.fetchval("select expires_at + interval '4 seconds' from leases")
            async with locked(connect_as, job):
                go.set()
                await until(
                    lambda: conn.fetchval("select expires_at > $1 from leases", first),
                    what="the lease was renewed twice",
                )
            assert (await hf.wait(job, timeout=15)).result == "done"
        assert (await hf.get(job)).attempt == 1


async def settling(store: Recording, count: int, *, result: str, big: str | None = None) -> SettlementService:
    """A settlement service that was given this many successful jobs."""
    streams = await store.streams(["big", "many"], None, None)
    claimed = ClaimedAttempts()
    settlement = SettlementService(store, claimed, Bus(), "w1")
    for claim in await store.claim(Hints.everything(list(streams)), streams, count, None):
        one = Claimed(claim, "general", 0.0)
        claimed.add(one)
        text = big if big is not None and claim.stream.type == "big" else result
        settlement.add(one, Outcome.success(f'"{text}"'))
    assert len(claimed) == count
    return settlement


def assert_told(job: Job, job_type: str, size: int, limit: int = 1_048_576) -> None:
    """The error says which value was too large, by how much, and what to do."""
    assert job.last_error is not None
    for part in (job_type, str(size), f"RESULT_MAX_BYTES ({limit})", "raise the limit"):
        assert part in job.last_error


async def test_what_is_handed_back_together_keeps_its_own_note(hf: Holdfast, store: Recording) -> None:
    await hf.enqueue_many([("many", {})] * 3)
    streams = await store.streams(["many"], None, None)
    claims = await store.claim(Hints.everything(list(streams)), streams, 3, None)
    reasons = ["the worker drained", "the lease was over", "the worker drained"]
    batch = [
        Settlement(claim.job_id, 1, Outcome.handed_back(reason), 1, None)
        for claim, reason in zip(claims, reasons, strict=True)
    ]
    assert await store.settle(batch) == ["queued"] * 3
    found = [(await hf.attempts(claim.job_id))[0].error_message for claim in claims]
    assert found == reasons

"""Tenants share promotion: the backlog of one delays no other, and none is promoted out of its order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from holdfast.maintenance.duties import promotion
from holdfast.maintenance.duties.promotion import Promotion
from holdfast.store.maintenance import MaintenanceStore
from holdfast.store.statements import queries
from holdfast.telemetry.bus import Bus
from holdfast.testing.upkeep import Certain
from tests.sql.factories import Wish, enqueue_many, offences, state_of

BATCH = 20


class Counted:
    """Statements over one connection, counted."""

    def __init__(self, conn: asyncpg.Connection) -> None:
        self._conn, self._sql = conn, queries("holdfast")
        self.calls: Counter[str] = Counter()

    async def rows(self, statement: str, *arguments: Any) -> Sequence[Any]:
        raise NotImplementedError

    async def row(self, statement: str, *arguments: Any) -> Any:
        self.calls[statement] += 1
        return await self._conn.fetchrow(self._sql[statement], *arguments)

    async def value(self, statement: str, *arguments: Any) -> Any:
        raise NotImplementedError


@pytest.fixture
def counted(conn: asyncpg.Connection) -> Counted:
    return Counted(conn)


@pytest.fixture
def store(counted: Counted) -> MaintenanceStore:
    return MaintenanceStore(counted)


@pytest.fixture
def duty() -> Promotion:
    duty = Promotion(Bus(), Certain())
    duty.batch.size = BATCH
    duty.batch.ended = lambda after_seconds: None  # type: ignore[method-assign]
    return duty


async def overdue(conn: asyncpg.Connection, tenant: str, count: int, seconds_ago: float, spread: float = 0.0) -> UUID:
    """Jobs that were due that long ago, a little apart; the last of them."""
    wishes: list[Wish] = [("work", {}, {"delay": 7200 - seconds_ago + spread * n}) for n in range(count)]
    jobs = [row["job_id"] for row in await enqueue_many(conn, wishes, tenant=tenant)]
    for table, name in (("due", "job_id"), ("jobs", "id")):
        await conn.execute(f"update {table} set run_at = run_at - interval '2 hours' where {name} = any ($1)", jobs)
    last: UUID = jobs[-1]
    return last


async def left(conn: asyncpg.Connection, tenant: str) -> int:
    count = "select count(*) from jobs where tenant = $1 and state = 'scheduled'"
    return int(await conn.fetchval(count, tenant))


async def finish(duty: Promotion, store: MaintenanceStore) -> None:
    while (await duty.work(store)).more:
        pass


async def in_order(conn: asyncpg.Connection, *tenants: str) -> bool:
    """Whether the jobs of each tenant got their places in the order of their time."""
    for tenant in tenants:
        rows = await conn.fetch("select run_at from jobs where tenant = $1 order by seq", tenant)
        if [row["run_at"] for row in rows] != sorted(row["run_at"] for row in rows):
            return False
    return True


@pytest.mark.parametrize("spread", [0.0, 0.1], ids=["at one moment", "one after the other"])
async def test_a_job_behind_the_backlog_of_another_tenant_is_promoted_within_a_few_calls(
    conn: asyncpg.Connection, duty: Promotion, store: MaintenanceStore, spread: float
) -> None:
    await overdue(conn, "large", 4000, 3600, spread)
    small = await overdue(conn, "small", 1, 1)
    while await state_of(conn, small) != "queued":
        await duty.work(store)
    assert await left(conn, "large") > 3600
    await finish(duty, store)
    assert await left(conn, "large") == 0
    assert await in_order(conn, "large")
    assert await offences(conn) == []


async def test_what_falls_due_during_a_backlog_of_another_tenant_is_found(
    conn: asyncpg.Connection, duty: Promotion, store: MaintenanceStore
) -> None:
    await overdue(conn, "large", 2000, 3600)
    while await left(conn, "large") > 1600:  # by then, everything was looked at
        await duty.work(store)
    small = await conn.fetchval("select job_id from enqueue('work', '{}', tenant => 'small', delay => 0.001)")
    while await state_of(conn, small) != "queued":
        await duty.work(store)
    assert await left(conn, "large") > 0


async def test_tenants_with_backlogs_take_turns(
    conn: asyncpg.Connection, duty: Promotion, store: MaintenanceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Full looks begin with the oldest, and come by the clock: on a slow machine there would be more of them.
    monkeypatch.setattr(promotion, "_FULL_LOOK_SECONDS", (60.0, 60.0))
    await overdue(conn, "first", 1500, 3600, 0.01)
    await overdue(conn, "second", 1500, 2400, 0.01)
    await overdue(conn, "third", 1500, 1200, 0.01)
    while await left(conn, "third") > 750:
        await duty.work(store)
    assert await left(conn, "first") > 300
    assert abs(await left(conn, "second") - 750) < 150
    await finish(duty, store)
    assert await in_order(conn, "first", "second", "third")
    assert await conn.fetchval("select count(*) from due") == 0
    assert await offences(conn) == []


async def test_tenants_that_stand_among_each_other_keep_their_order(
    conn: asyncpg.Connection, duty: Promotion, store: MaintenanceStore
) -> None:
    for number in range(30):
        await overdue(conn, f"t{number}", 20 + 10 * (number % 7), 3600 - 50 * number, 3.0)
    await overdue(conn, "large", 1500, 3000, 0.5)
    await finish(duty, store)
    assert await in_order(conn, "large", *(f"t{number}" for number in range(30)))
    assert await conn.fetchval("select count(*) from jobs where state <> 'queued'") == 0
    assert await offences(conn) == []


async def test_without_a_backlog_nobody_looks_further(
    conn: asyncpg.Connection, duty: Promotion, store: MaintenanceStore, counted: Counted
) -> None:
    await overdue(conn, "some", BATCH - 1, 60)
    await finish(duty, store)
    assert counted.calls == {"promote": 1}

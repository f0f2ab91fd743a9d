"""A year of schedules in zones whose clocks are moved, with leaders that are killed, frozen and doubled, connections
that are cut, clocks that are stepped, and definitions that are deployed.

The engine's clock stands still and is moved from moment to moment, so a year takes seconds. What must have fired is
computed from the calendar, not by the code under test.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import pytest

from holdfast.config import Config
from holdfast.definitions.schedule import schedule_definition
from holdfast.errors import DatabaseUnavailable, HoldfastError
from holdfast.maintenance.duties.schedules import FireSchedules, decision_on
from holdfast.store.database import Database
from holdfast.store.maintenance import MaintenanceStore
from tests.conftest import CHAOS_SECONDS, CHAOS_SEED
from tests.harness.deeds import Deeds
from tests.maintenance.schedules import Clockwork, at, clockwork

ZONES = ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Havana", "Africa/Casablanca")
#: The short form goes through the weeks in which those clocks are moved: each of them ahead, and each of them back.
SPANS = (
    {"year": ("2026-01-01 12:00", "2027-01-01 12:00")}
    if CHAOS_SECONDS
    else {"spring": ("2026-02-10 12:00", "2026-04-10 12:00"), "autumn": ("2026-09-28 12:00", "2026-11-06 12:00")}
)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
async def world(clockwork_config: Config) -> AsyncIterator[Clockwork]:
    async with clockwork(clockwork_config) as made:
        yield made


class Span(NamedTuple):
    """From when to when."""

    start: datetime
    end: datetime


def wall_fires(span: Span, zone: str, *times: time) -> list[datetime]:
    """Each time of each day, once: the first time, or the end of the gap that it is in."""
    place, day, found = ZoneInfo(zone), date(2025, 12, 31), set()
    while day <= date(2027, 1, 2):
        for each in times:
            local = datetime.combine(day, each, tzinfo=place)
            moment = local.astimezone(UTC)
            while moment.astimezone(place).replace(tzinfo=None) > local.replace(tzinfo=None) and (
                (moment - timedelta(minutes=1)).astimezone(place).replace(tzinfo=None) > local.replace(tzinfo=None)
            ):
                moment -= timedelta(minutes=1)
            found.add(moment)
        day += DAY
    return sorted(moment for moment in found if span.start < moment <= span.end)


class Year:
    """What happens in it, by chance."""

    def __init__(self, world: Clockwork, chance: random.Random, span: Span) -> None:
        self.world, self.chance, self.now, self.end = world, chance, span.start, span.end
        self.leaders = [world.leader() for _ in range(2)]
        self.databases: list[Database] = []
        self.frozen: list[Any] = []
        self.deeds: dict[str, int] = {}

    async def pass_by(self) -> None:
        """Go through the year in steps of chance."""
        stores = [MaintenanceStore(database) for database in self.databases]
        while self.now < self.end:
            self.now = min(self.end, self.now + self.chance.choice((HOUR / 3, 2 * HOUR, 7 * HOUR, DAY, 4 * DAY)))
            await self.world.set(self.now)
            deed = self.chance.choice(("lead", "double", "kill", "cut", "freeze", "thaw", "step", "deploy"))
            self.deeds[deed] = self.deeds.get(deed, 0) + 1
            await getattr(self, deed)(stores)
            if self.chance.random() < 0.7:
                await self.world.end_jobs()
        for store in stores:
            await self.work(self.leaders[0], store)

    async def lead(self, stores: list[MaintenanceStore]) -> None:
        await self.work(self.leaders[0], stores[0])

    async def double(self, stores: list[MaintenanceStore]) -> None:
        """Two believe that they lead."""
        await asyncio.gather(*(self.work(leader, store) for leader, store in zip(self.leaders, stores, strict=True)))

    async def kill(self, stores: list[MaintenanceStore]) -> None:
        """A leader dies in the middle of it; another one follows, who knows nothing."""
        task = asyncio.create_task(self.work(self.leaders[0], stores[0]))
        await asyncio.sleep(self.chance.random() * 0.02)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError, HoldfastError):
            await task
        self.leaders[0] = self.world.leader()

    async def cut(self, stores: list[MaintenanceStore]) -> None:
        """All connections of leaders are cut, as when the server is restarted."""
        task = asyncio.create_task(self.work(self.leaders[1], stores[1]))
        await asyncio.sleep(self.chance.random() * 0.02)
        await self.world.conn.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where datname = current_database() and pid <> pg_backend_pid()"
        )
        with contextlib.suppress(HoldfastError):
            await task

    async def deploy(self, stores: list[MaintenanceStore]) -> None:
        """Processes of two releases declare in turns, while leaders work."""

        async def declare() -> None:
            for worker in self.chance.choices(("old", "new"), k=3):
                for each in ("old", "new"):
                    await self.world.worker(each)
                await self.world.declare(worker, *definitions(1 if worker == "old" else 2))

        await asyncio.gather(self.double(stores), declare())

    async def freeze(self, stores: list[MaintenanceStore]) -> None:
        """A leader computes, and stands still before it says what it found."""
        due, *_ = await stores[1].due_schedules(100)  # a read, which is repeated
        self.frozen.append([decision_on(schedule) for schedule in due])

    async def thaw(self, stores: list[MaintenanceStore]) -> None:
        """All that stood still go on at once, however long it was."""
        calls = (stores[place % 2].fire_schedules(found) for place, found in enumerate(self.frozen))
        for answer in await asyncio.gather(*calls, return_exceptions=True):
            assert not isinstance(answer, BaseException) or isinstance(answer, DatabaseUnavailable), answer
        self.frozen.clear()

    async def step(self, stores: list[MaintenanceStore]) -> None:
        """The clock is set ahead or back, and right again; leaders hear of it, or are new."""
        by = self.chance.choice((-3 * DAY, -HOUR, HOUR, 2 * DAY, 9 * DAY))
        for moment in (self.now + by, self.now):
            await self.world.set(moment)
            for leader in self.leaders:
                leader.resume()
            await self.double(stores)

    @staticmethod
    async def work(leader: FireSchedules, store: MaintenanceStore) -> None:
        for _ in range(200):
            with contextlib.suppress(DatabaseUnavailable):  # the crew tries again, too
                if not (await leader.work(store)).more:
                    return


def definitions(release: int) -> Iterator[dict[str, Any]]:
    """What the code of a release declares: the second one says another payload, and another time for one of them."""
    for zone in ZONES:
        common: dict[str, Any] = {"job": "report", "tz": zone, "payload": {"release": release}}
        always: dict[str, Any] = {"overlap": "allow", "catch_up": 31 * 86_400}
        yield schedule_definition(f"night {zone[-6:]}", cron="30 2 * * *", **common, **always)
        yield schedule_definition(f"midnight {zone[-6:]}", cron="0 15 0,1 * * *", **common, **always)
        yield schedule_definition(f"window {zone[-6:]}", cron="0 */3 * * *", catch_up=7200, overlap="allow", **common)
        yield schedule_definition(f"alone {zone[-6:]}", cron="45 1,13 * * *", catch_up=31 * 86_400, **common)


@pytest.mark.parametrize("name", SPANS)
async def test_each_fire_time_of_a_year_is_decided_exactly_once(world: Clockwork, deeds: Deeds, name: str) -> None:
    span = Span(*map(at, SPANS[name]))
    await world.set(span.start)
    chance = random.Random(f"{CHAOS_SEED} schedules {name}")
    year = Year(world, chance, span)
    for _ in range(2):
        database = Database(world.config, role="worker", size=2)
        await database.open()
        year.databases.append(database)
    try:
        for worker in ("old", "new"):
            await world.worker(worker)
        await world.declare("old", *definitions(1))
        await year.pass_by()
    finally:
        for database in year.databases:
            await database.close()

    for zone in ZONES:
        for kind, times in (
            ("night", [time(2, 30)]), ("midnight", [time(0, 15), time(1, 15)]), ("alone", [time(1, 45), time(13, 45)]),
        ):  # fmt: skip
            fires = await fires_of(world, f"{kind} {zone[-6:]}", span.end)
            assert [fire_at for fire_at, _, _ in fires] == wall_fires(span, zone, *times), f"{kind} {zone[-6:]}"
            assert {outcome for _, outcome, _ in fires} <= ({"fired", "skipped"} if kind == "alone" else {"fired"})
        expected = wall_fires(span, zone, *(time(hour) for hour in range(0, 24, 3)))
        await check_window(world, f"window {zone[-6:]}", expected, span.end)
    doubles = "select count(*) - count(distinct job_id) from schedule_fires where job_id is not null"
    assert await world.conn.fetchval(doubles) == 0
    made = "select count(*) from schedule_fires where job_id is not null"
    assert await world.jobs() == await world.conn.fetchval(made), "each job has its fire time"
    assert await world.conn.fetchval("select count(*) from schedules where failures > 0") == 0
    deeds.say(f"{await world.jobs()} jobs; {year.deeds}")


async def fires_of(world: Clockwork, name: str, until: datetime) -> list[tuple[datetime, str, datetime]]:
    rows = await world.conn.fetch(
        "select f.fire_at, f.outcome, f.decided_at from schedule_fires f join schedules s on s.id = f.schedule_id"
        " where s.name = $1 and f.fire_at <= $2 order by f.fire_at",
        name,
        until,
    )
    return [(row["fire_at"], row["outcome"], row["decided_at"]) for row in rows]


async def check_window(world: Clockwork, name: str, expected: list[datetime], until: datetime) -> None:
    """Each fire time fired within the window, or a row says that it was missed; nothing else fired."""
    rows = await world.conn.fetch(
        "select f.* from schedule_fires f join schedules s on s.id = f.schedule_id"
        " where s.name = $1 and f.fire_at <= $2",
        name,
        until,
    )
    fired = {row["fire_at"]: row["decided_at"] for row in rows if row["outcome"] == "fired"}
    gaps = [(row["fire_at"], row["missed_to"]) for row in rows if row["missed_to"] is not None]
    assert fired.keys() <= set(expected)
    for moment in expected:
        assert moment in fired or any(since <= moment <= to for since, to in gaps), f"{name} lost {moment}"
    assert all(decided - moment <= timedelta(hours=2, minutes=1) for moment, decided in fired.items())

"""The crew: urgent duties begin at once and the others a moment later; only urgent statements delay a stop."""

from __future__ import annotations

import asyncio
import time
from itertools import pairwise
from typing import ClassVar, cast

import pytest

from holdfast.errors import DatabaseUnavailable
from holdfast.maintenance.crew import Crew
from holdfast.maintenance.duty import Duty, Next, Urgency
from holdfast.maintenance.patience import LeaseJudge
from holdfast.store.maintenance import MaintenanceStore
from holdfast.store.upkeep import UpkeepDatabase
from holdfast.telemetry.bus import Bus
from holdfast.telemetry.events import Event
from tests.harness.waiting import until


class StubDesk:
    """A desk whose statement is under way, or waits for a connection, until `answered`."""

    def __init__(self, *, under_way: bool) -> None:
        self.under_way = under_way
        self.answered = asyncio.Event()
        self.asked = asyncio.Event()

    async def value(self, _statement: str) -> None:
        self.asked.set()
        await self.answered.wait()


class StubDatabase:
    def __init__(self, desk: StubDesk) -> None:
        self._desk = desk

    def within(self, _seconds: float) -> StubDesk:
        return self._desk


class Errand(Duty):
    name = "errand"
    urgency: ClassVar[Urgency] = Urgency.URGENT
    interval_seconds = 60.0
    limit_seconds = 60.0
    done = False

    async def work(self, store: MaintenanceStore) -> Next:
        await store.forget_workers()
        self.done = True
        return self.later()


class Mending(Errand):
    name = "mending"
    urgency = Urgency.BACKGROUND


def crew_of(desk: StubDesk, kind: type[Errand]) -> tuple[Crew, Errand]:
    duty = kind(Bus(), cast("LeaseJudge", None))
    crew = Crew([duty], cast("UpkeepDatabase", StubDatabase(desk)), Bus())
    crew.start()
    crew.lead(True)
    return crew, duty


async def seconds_to_stop(crew: Crew) -> float:
    began = time.monotonic()
    async with asyncio.timeout(30):
        await crew.stop()
    return time.monotonic() - began


async def test_an_urgent_statement_that_is_under_way_is_waited_for() -> None:
    desk = StubDesk(under_way=True)
    crew, duty = crew_of(desk, Errand)
    await desk.asked.wait()
    asyncio.get_running_loop().call_later(0.1, desk.answered.set)
    assert await seconds_to_stop(crew) < 1.0, "and for nothing after its answer"
    assert duty.done


async def test_an_urgent_statement_that_takes_long_is_given_up() -> None:
    desk = StubDesk(under_way=True)
    crew, duty = crew_of(desk, Errand)
    await desk.asked.wait()
    assert await seconds_to_stop(crew) >= 2.0
    assert not duty.done


@pytest.mark.parametrize(
    ("kind", "under_way"), [(Errand, False), (Mending, False), (Mending, True)], ids=["queued", "idle", "mending"]
)
async def test_only_urgent_statements_are_waited_for(
    kind: type[Errand], under_way: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.maintenance.crew._SETTLING_SECONDS", 0.0)
    monkeypatch.setattr("holdfast.maintenance.crew._STOP_SECONDS", 60.0)
    desk = StubDesk(under_way=under_way)
    crew, duty = crew_of(desk, kind)
    await desk.asked.wait()
    assert await seconds_to_stop(crew) < 20.0
    assert not duty.done


async def test_duties_that_mend_begin_a_moment_after_the_urgent_ones() -> None:
    desk = StubDesk(under_way=True)
    began = time.monotonic()
    crew, _ = crew_of(desk, Mending)
    await desk.asked.wait()
    assert time.monotonic() - began >= 0.5
    crew.lead(False)
    desk.answered.set()
    await crew.stop()


async def test_a_crew_that_leads_for_a_moment_mends_nothing() -> None:
    desk = StubDesk(under_way=True)
    crew, _ = crew_of(desk, Mending)
    for _ in range(5):
        await asyncio.sleep(0)
    await crew.stop()
    assert not desk.asked.is_set()


async def test_duties_that_mend_take_their_first_looks_one_after_the_other() -> None:
    """All at once, they would cost a new leader with a backlog several connections and a part of its first seconds."""
    began = time.monotonic()
    looks: list[float] = []

    class Looking(Mending):
        async def work(self, store: MaintenanceStore) -> Next:
            looks.append(time.monotonic() - began)
            return self.later()

    duties = [Looking(Bus(), cast("LeaseJudge", None)) for _ in range(3)]
    crew = Crew(duties, cast("UpkeepDatabase", StubDatabase(StubDesk(under_way=False))), Bus())
    crew.start()
    crew.lead(True)
    await until(lambda: len(looks) == 3, what="all have looked")
    await crew.stop()
    assert [round(later - sooner, 1) >= 0.3 for sooner, later in pairwise(looks)] == [True, True]


async def test_that_the_database_is_away_is_told_once_and_not_by_every_duty() -> None:
    told: list[Event] = []
    away = True

    class Failing(Errand):
        interval_seconds = 0.01

        async def work(self, store: MaintenanceStore) -> Next:
            if away:
                raise DatabaseUnavailable("no server there")
            self.done = True
            return self.later()

    bus = Bus()
    bus.subscribe(told.append)
    duties = [Failing(bus, cast("LeaseJudge", None)) for _ in range(3)]
    crew = Crew(duties, cast("UpkeepDatabase", StubDatabase(StubDesk(under_way=False))), bus)
    crew.start()
    crew.lead(True)
    try:
        await until(lambda: all(post.failures > 2 for post in crew._posts), what="all have failed again and again")
        assert crew.sick == {"errand": "no server there"}
        away = False
        await until(lambda: all(duty.done for duty in duties), what="all are done")
    finally:
        await crew.stop()
    assert [type(event).__name__ for event in told] == ["DatabaseLost", "DatabaseBack"]

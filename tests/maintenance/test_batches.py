"""Batches shrink when a time limit strikes, and no urgent duty waits for another one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, ClassVar, cast

import pytest

from holdfast.errors import DatabaseBusy
from holdfast.maintenance.crew import SLOTS, Crew
from holdfast.maintenance.duty import BatchSize, Duty, Next, Urgency
from holdfast.store.maintenance import MaintenanceStore
from holdfast.store.upkeep import UpkeepDatabase
from holdfast.telemetry.bus import Bus
from holdfast.testing.upkeep import Certain

pytestmark = pytest.mark.timeout(20)


class NoDatabase:
    """These duties need none."""

    under_way = False

    def within(self, seconds: float) -> NoDatabase:
        return self


@asynccontextmanager
async def leading(duties: Sequence[Duty]) -> AsyncIterator[Crew]:
    crew = Crew(duties, cast("UpkeepDatabase", NoDatabase()), Bus())
    crew.start()
    crew.lead(True)
    try:
        yield crew
    finally:
        await crew.stop()


class Heavy(Duty):
    """Takes too long unless it does a little at once."""

    name = "heavy"
    urgency = Urgency.URGENT
    interval_seconds = 0.01
    limit_seconds = 5.0
    most: ClassVar[int] = 1000

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.done = asyncio.Event()
        self.sizes: list[int] = []

    async def work(self, store: MaintenanceStore) -> Next:
        self.sizes.append(self.batch.size)
        if self.batch.size > 100:
            raise DatabaseBusy("it took too long")
        self.done.set()
        return self.later()


class Stuck(Duty):
    """Never ends."""

    name = "stuck"
    urgency = Urgency.URGENT
    interval_seconds = 5.0
    limit_seconds = 60.0

    async def work(self, store: MaintenanceStore) -> Next:
        await asyncio.Event().wait()
        return self.later()


async def test_a_duty_that_takes_too_long_does_less_at_once_until_it_gets_done() -> None:
    heavy = Heavy(Bus(), Certain())
    async with leading([heavy]):
        await heavy.done.wait()
    assert heavy.sizes[:5] == [1000, 500, 250, 125, 62]


def test_a_batch_grows_again_while_work_is_quick_but_not_up_to_where_it_was_struck() -> None:
    batch = BatchSize(1000, 5.0)
    batch.struck(2.0)
    assert batch.size == 500
    batch.ended(1.5)
    assert batch.size == 500, "half of the time after which it was struck is over"
    for _ in range(20):
        batch.ended(0.1)
    assert batch.size == 1000
    for _ in range(20):
        batch.struck(2.0)
    assert batch.size == 1


async def test_an_urgent_duty_waits_for_no_other() -> None:
    sick = [Stuck(Bus(), Certain()) for _ in range(SLOTS)]
    heavy = Heavy(Bus(), Certain())
    async with leading([*sick, heavy]):
        await asyncio.wait_for(heavy.done.wait(), 10)

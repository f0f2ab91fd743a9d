"""Walks over whole tables leave the time to others: those that nobody waits for take at most a fiftieth of it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast.maintenance.duties.reconciliation import Reconciliation
from holdfast.maintenance.duties.strays import StrayDue, StrayEntries
from holdfast.maintenance.duties.walks import Walk
from holdfast.store.maintenance import MaintenanceStore
from holdfast.telemetry.bus import Bus
from holdfast.testing.upkeep import Certain

STEP_SECONDS = 0.03


class SlowTable:
    """Every step takes a while and finds nothing, and there is always more."""

    async def rows(self, statement: str, *arguments: Any) -> list[Any]:
        return [await self.row(statement)]

    async def row(self, statement: str, *arguments: Any) -> Any:
        await asyncio.sleep(STEP_SECONDS)
        return {"mended": 0, "reached": ["1"], "open_jobs": 0}

    async def value(self, statement: str, *arguments: Any) -> Any:
        raise AssertionError(f"{statement} is no step of a walk")


@pytest.mark.parametrize("walk", [StrayEntries, StrayDue])
async def test_walks_over_stray_entries_take_a_fiftieth_of_the_time(walk: type[Walk]) -> None:
    following = await walk(Bus(), Certain()).work(MaintenanceStore(SlowTable()))
    assert following.more
    assert following.seconds >= 49 * STEP_SECONDS


async def test_a_small_table_is_reconciled_at_leisure_and_a_large_one_within_the_time() -> None:
    duty = Reconciliation(Bus(), Certain())
    assert (await duty.work(MaintenanceStore(SlowTable()))).seconds >= 20 * STEP_SECONDS
    duty._steps = 1000
    assert (await duty.work(MaintenanceStore(SlowTable()))).seconds < 0.5

"""Lanes of one's own: their slots run their types only, general slots run anything."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from holdfast import Context, Holdfast, InvalidInput
from holdfast.telemetry.events import WorkerChanged
from tests.harness.inprocess import reached, working


class Running:
    """Handlers that run until they may go on, counted by type."""

    def __init__(self, hf: Holdfast, **lanes: str) -> None:
        self.count: Counter[str] = Counter()
        self._begun, self.go_on = asyncio.Semaphore(0), asyncio.Event()
        for name, lane in lanes.items():

            @hf.job(name, lane=lane)
            async def run(ctx: Context) -> None:
                self.count[ctx.type] += 1
                self._begun.release()
                await self.go_on.wait()

    async def begun(self, count: int) -> None:
        """Wait until this many have begun."""
        async with asyncio.timeout(30):
            for _ in range(count):
                await self._begun.acquire()


async def test_slots_of_a_lane_run_its_types_only_and_general_ones_anything(hf: Holdfast) -> None:
    """A flood of other jobs leaves the lane's slots free, and its jobs take general ones, too."""
    running = Running(hf, report="reports", plain="general", quick="fast")
    await hf.enqueue_many([("plain", {})] * 20)
    async with working(hf, lanes="fast=1,general=2,reports=2"):
        await running.begun(2)
        assert running.count == {"plain": 2}
        await hf.enqueue_many([("report", {})] * 10 + [("quick", {})] * 10)
        await running.begun(3)
        assert running.count == {"plain": 2, "report": 2, "quick": 1}
        lanes = {lane.name: lane for lane in await (await hf.operations()).lanes()}
        assert {name: lane.slots for name, lane in lanes.items()} == {"fast": 1, "general": 2, "reports": 2}
        running.go_on.set()
        await running.begun(35)


async def test_general_slots_run_a_lane_without_slots_and_take_turns_with_its_own(hf: Holdfast) -> None:
    running = Running(hf, report="reports")
    await hf.enqueue_many([("report", {})] * 10)
    async with working(hf, lanes="general=2"):
        await running.begun(2)
        running.go_on.set()
        await running.begun(8)
    running.go_on.clear()
    jobs = await hf.enqueue_many([("report", {})] * 10)
    async with working(hf, lanes="general=1,reports=2"):
        await running.begun(3)
        running.go_on.set()
        for job in jobs:
            await reached(hf, job.id, "success")


async def test_a_lane_has_its_own_timeout_else_that_of_the_general_lane(hf: Holdfast) -> None:
    settings = (await hf.operations()).settings
    await settings.set("LANE_TIMEOUTS", "reports=0.1s", by="ada")
    await settings.set("GENERAL_TIMEOUT_SECONDS", 0.2, by="ada")
    Running(hf, report="reports", other="others")
    late = {name: await hf.enqueue(name, max_attempts=1) for name in ("report", "other")}
    async with working(hf, lanes="general=2"):
        for name, seconds in (("report", "0.1 s"), ("other", "0.2 s")):
            assert f"longer than {seconds}" in ((await reached(hf, late[name].id, "dead")).last_error or "")


async def test_a_worker_says_that_none_of_its_types_is_in_a_lane(hf: Holdfast) -> None:
    told: list[WorkerChanged] = []
    hf.events.subscribe(told.append, WorkerChanged)
    Running(hf, report="reports")
    async with working(hf, lanes="general=1,reports=1,imports=1"):
        pass
    assert [event.detail for event in told if "none of its job types" in event.change] == ["imports"]


@pytest.mark.parametrize(
    ("lane", "says"), [("fsat", "did you mean fast"), ("my lane", "is named by"), ("", "is named by")]
)
def test_a_name_that_is_no_lane_is_refused_where_it_is_declared(lane: str, says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        Holdfast("postgresql://127.0.0.1:1/nothing").job("work", lane=lane)(_work)


async def _work(ctx: Context) -> None:
    """Does nothing."""

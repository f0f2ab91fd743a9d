"""However a handler misbehaves, in whatever executor: its attempt is settled, and nobody else is harmed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast import Holdfast, Job
from holdfast.worker.worker import Worker
from tests.harness.waiting import until
from tests.worker import ways
from tests.worker.children import children, opened
from tests.worker.ways import leaving
from tests.worker.ways.running import in_a_loop_of_ours, possessions
from tests.worker.ways.table import EVERYWHERE

CELLS = [
    *((theme, executor, "auto") for theme in ways.THEMES for executor in EVERYWHERE if ways.THEMES[theme].of(executor)),
    ("looping", "async", "asyncio"),
]
#: Where each way takes its time, or a new process.
SIDE_BY_SIDE = ("waiting", "ending")


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Handlers in processes have little time to clean up."""
    monkeypatch.setattr("holdfast.worker.processes.pool.GRACE_SECONDS", 1.5)


@pytest.mark.usefixtures("quiet", "effects", "hasty", "warm_children")
@pytest.mark.parametrize(("theme", "executor", "loop"), CELLS)
async def test_every_attempt_is_settled_and_the_next_job_is_unharmed(
    hf: Holdfast, theme: str, executor: str, loop: str
) -> None:
    await in_a_loop_of_ours(asyncio.sleep(0))  # the first of them has something that is kept for the others
    before = possessions()
    first = await hf.enqueue(f"{executor} innocent")
    tried = []
    for way in ways.THEMES[theme].of(executor):
        name = f"{executor} brief" if way.brief else executor
        job = await hf.enqueue(name, {"theme": theme, "way": way.name})
        tried.append((way, job, await hf.enqueue(f"{executor} innocent")))
    worker = await in_a_loop_of_ours(_worked_off(hf, 4 if theme in SIDE_BY_SIDE else 1), loop)
    unharmed = (await hf.get(first)).result
    assert unharmed
    faults: list[Any] = []
    for way, job, after in tried:
        faults += await _ended(hf, way, await hf.get(job)) + _met(way, await hf.get(after), unharmed)
    assert not faults, "\n".join(map(str, faults))
    assert (worker._slots.used, len(worker._claimed), children(worker)) == (0, 0, set())
    await until(lambda: possessions() <= before, seconds=5, what=f"threads and descriptors are given back, {before}")


async def _worked_off(hf: Holdfast, slots: int) -> Worker:
    """A worker that has worked off everything."""
    try:
        async with opened(hf.config.database_url or "", ways.hf) as app, asyncio.timeout(100):
            return await app.run_worker(burst=True, lanes={"general": slots}, stuck_after_seconds=20)
    finally:
        leaving.release()


async def _ended(hf: Holdfast, way: ways.Way, job: Job) -> list[Any]:
    outcomes = [attempt.outcome for attempt in await hf.attempts(job.id)]
    state = "success" if way.outcome == "success" else "dead"
    if (job.state, outcomes[-1:]) != (state, [way.outcome]):
        return [(way.name, job.state, outcomes, job.last_error)]
    if way.outcome != "success" and (not job.last_error or way.says not in job.last_error):
        return [(way.name, "does not say", way.says, job.last_error)]
    return []


def _met(way: ways.Way, after: Job, unharmed: dict[str, Any]) -> list[Any]:
    if after.state != "success" or after.attempt != 1:
        return [(way.name, "harms the next", after.state, after.attempt, after.last_error)]
    found = after.result or {}
    changed = {what: (found.get(what), before) for what, before in unharmed.items() if found.get(what) != before}
    return [(way.name, "meets the next", changed)] if changed else []

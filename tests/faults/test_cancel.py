"""A cancel reaches a handler in another process: at once by notification, and without one by the next heartbeat.

Times are of the monotonic clock, from asking for the cancel to the handler's own note that it was stopped. While other
tests share the machine, the bound is one that only a lost notification exceeds; `make chaos` measures.
"""

from __future__ import annotations

import statistics
import time
from uuid import UUID

import pytest

from holdfast import Holdfast
from tests.faults.conftest import CHAOS_SECONDS, NewFleet
from tests.harness.deeds import Deeds
from tests.harness.fleet import Fleet
from tests.harness.waiting import until

#: How handlers run, and how many of each are canceled; a process has to be started anew each time.
EXECUTORS = (
    {"async": 20, "thread": 10, "process": 3} if not CHAOS_SECONDS else {"async": 20, "thread": 20, "process": 20}
)
#: Long enough that nothing is found in time by looking.
HEARTBEAT_SECONDS = 5.0
AT_ONCE = 0.1 if CHAOS_SECONDS else 1.0
SLACK = 0.2 if CHAOS_SECONDS else 2.0


@pytest.mark.alone
async def test_a_cancel_reaches_another_process_at_once(
    new_fleet: NewFleet, database_url: str, hf: Holdfast, deeds: Deeds
) -> None:
    fleet = _steered(new_fleet, database_url, heartbeat_seconds=HEARTBEAT_SECONDS)
    fleet.spawn()
    for executor, times in EXECUTORS.items():
        took = sorted([await _canceled(fleet, hf, executor) for _ in range(times)])
        middle = statistics.median(took)
        deeds.say(f"{executor}: median {middle * 1000:.0f} ms, longest {took[-1] * 1000:.0f} ms")
        assert middle < AT_ONCE, executor


@pytest.mark.alone
async def test_without_notifications_a_cancel_arrives_with_the_heartbeat(
    new_fleet: NewFleet, database_url: str, hf: Holdfast, monkeypatch: pytest.MonkeyPatch, deeds: Deeds
) -> None:
    monkeypatch.setenv("DEAF", "1")
    heartbeat = 2.0
    fleet = _steered(new_fleet, database_url, heartbeat_seconds=heartbeat)
    fleet.spawn()
    took = [await _canceled(fleet, hf, *EXECUTORS) for _ in range(20 if CHAOS_SECONDS else 3)]
    deeds.say(f"the longest of {len(took)} rounds: {max(took) * 1000:.0f} ms")
    assert max(took) < heartbeat + SLACK
    assert max(took) > 0.3, "it was not deaf"


def _steered(new_fleet: NewFleet, url: str, **settings: object) -> Fleet:
    return new_fleet(url, module="tests.faults.steered", lease_sec_default=60, **settings)


async def _canceled(fleet: Fleet, hf: Holdfast, *executors: str) -> float:
    """How long it took until handlers, one of each kind, were stopped; the longest."""
    jobs = [(await hf.enqueue(executor)).id for executor in executors]
    await until(lambda: all(_at(fleet, "started", job) for job in jobs), what="the handlers begin")
    asked = {}
    for job in jobs:
        asked[job] = time.monotonic()
        await hf.cancel(job)
    for job in jobs:
        assert (await hf.wait(job, timeout=30)).state == "canceled"
    return max(_at(fleet, "ended", job) - asked[job] for job in jobs)


def _at(fleet: Fleet, kind: str, job_id: UUID) -> float:
    return next((fact.at for fact in fleet.history.facts() if fact.kind == kind and fact.job_id == job_id), 0.0)

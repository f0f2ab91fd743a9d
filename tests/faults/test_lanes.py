"""Slow jobs in thousands delay no fast one, and none of them ever takes a fast slot.

How long a fast job waits is measured twice in the same run, before the flood and in it. While other tests share the
machine, the bound is one that only a missing lane exceeds; `make chaos` measures.
"""

from __future__ import annotations

import pytest

from holdfast import Holdfast
from tests.faults.conftest import CHAOS_SECONDS, NewFleet
from tests.faults.waiting import late, most_at_once, waits
from tests.harness.deeds import Deeds
from tests.harness.waiting import until

FAST_SLOTS, GENERAL_SLOTS = 2, 3
FLOOD = 5000
FAST_JOBS = 100
#: Without lanes, a slot falls free once in so many seconds divided by the slots.
SLOW_SECONDS = 4.0


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.timeout(240)
async def test_a_flood_of_slow_jobs_delays_no_fast_one(
    new_fleet: NewFleet, database_url: str, hf: Holdfast, deeds: Deeds
) -> None:
    lanes = f"fast={FAST_SLOTS},general={GENERAL_SLOTS}"
    fleet = new_fleet(database_url, module="tests.faults.steered", lanes=lanes, lease_sec_default=30)
    fleet.spawn()
    await fleet.ready()
    await waits(fleet, hf, "fast", number=10, every=0.02)
    quiet = late(await waits(fleet, hf, "fast", number=FAST_JOBS, every=0.02))

    refs = await hf.enqueue_many([("slow", {"seconds": SLOW_SECONDS})] * FLOOD)
    flood = {ref.id for ref in refs}
    await until(lambda: most_at_once(fleet, flood) >= GENERAL_SLOTS, what="the flood runs")
    flooded = late(await waits(fleet, hf, "fast", number=FAST_JOBS, every=0.02))

    deeds.say(f"95 % of fast jobs waited at most {quiet * 1000:.1f} ms, {flooded * 1000:.1f} ms in the flood")
    assert flooded <= (max(1.5 * quiet, quiet + 0.01) if CHAOS_SECONDS else quiet + SLOW_SECONDS / 8)
    assert most_at_once(fleet, flood, per_process=True) == GENERAL_SLOTS
    assert (await hf.client.backlog())["ready"] > FLOOD / 2

"""Limits under eight processes that are killed: from the handlers' own logs, never more, and as many again soon."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from typing import Any
from uuid import UUID

import pytest

from holdfast import Holdfast
from tests.faults.conftest import CHAOS_SECONDS, NewFleet
from tests.faults.limited import AT_ONCE, PER_CUSTOMER, PER_SECOND
from tests.faults.waiting import assert_rate, most_at_once
from tests.harness.deeds import Deeds
from tests.harness.fleet import Fleet, judge
from tests.harness.waiting import until

WORKERS = 8 if CHAOS_SECONDS else 4
CUSTOMERS = ("ada", "grace", "mary")
LIMITS = {"few": AT_ONCE, **dict.fromkeys(CUSTOMERS, PER_CUSTOMER)}
#: How long handlers take: what they hold is given back, and taken again, so often.
HANDLER_SECONDS = [0.05, 0.2, 0.4] if CHAOS_SECONDS else [0.1, 0.5, 1.0]
#: The lease, the next sweep, and another leader if the killed one was it, who waits for a lease before it judges: nine
#: seconds and the start of a process, on a machine that does other things as well.
SWEPT_WITHIN = 30.0


@pytest.mark.slow
@pytest.mark.timeout(300 + 2 * CHAOS_SECONDS)
async def test_a_limit_is_never_exceeded_and_reached_again_after_kills(
    new_fleet: NewFleet, database_url: str, hf: Holdfast, chance: random.Random, deeds: Deeds
) -> None:
    fleet = new_fleet(database_url, module="tests.faults.limited", lanes="general=4")
    load = Load(hf, fleet, chance)
    for _ in range(WORKERS):
        fleet.spawn()
    await fleet.ready()
    await until(load.fills_up, what="all limits are reached")

    end = time.monotonic() + CHAOS_SECONDS
    recoveries: list[float] = []
    for kills in itertools.count():
        if kills >= 2 and time.monotonic() > end:
            break
        load.kill_some()
        killed_at = time.monotonic()
        load.since = killed_at
        await until(load.fills_up, seconds=SWEPT_WITHIN, what="all limits are reached again")
        recoveries.append(time.monotonic() - killed_at)

    deeds.say(f"limits reached again {len(recoveries)} times, at most {max(recoveries):.1f} s after a kill")
    await until(load.is_done, seconds=120, what="all jobs end")
    await fleet.drained()
    _, attempts = await judge(hf, fleet.history)
    assert any(attempt.outcome == "lost" for attempt in attempts)
    for name, limit in LIMITS.items():
        assert most_at_once(fleet, load.jobs[name]) == limit, name
    starts = [f.at for f in fleet.history.facts() if f.kind == "started" and f.job_id in load.jobs["rated"]]
    assert_rate(starts, PER_SECOND)


class Load:
    """More jobs than the limits allow, always."""

    def __init__(self, hf: Holdfast, fleet: Fleet, chance: random.Random) -> None:
        self.hf, self.fleet, self.chance = hf, fleet, chance
        self.since = 0.0
        self.jobs: dict[str, set[UUID]] = {name: set() for name in ("few", "rated", *CUSTOMERS)}

    async def fills_up(self) -> bool:
        """Whether every limit was reached since a moment; there is always enough to do."""
        await asyncio.sleep(0.1)  # a look at all facts takes long
        began = {fact.job_id for fact in self.fleet.history.facts() if fact.kind == "started"}
        for name, ids in self.jobs.items():
            if len(ids - began) < 12:
                await self._enqueue(name, 24)
        return all(
            most_at_once(self.fleet, self.jobs[name], since=self.since) >= limit for name, limit in LIMITS.items()
        )

    def kill_some(self) -> None:
        """Two processes that hold something."""
        busy = {fact.process for fact in self.fleet.history.facts() if fact.kind == "started"}
        living = [process for process in self.fleet.living if process.pid in busy]
        for process in self.chance.sample(living, min(2, len(living))):
            process.kill()
            self.fleet.spawn()

    async def is_done(self) -> bool:
        backlog = await self.hf.client.backlog()
        return not any(backlog[part] for part in ("ready", "running", "due", "waiting"))

    async def _enqueue(self, name: str, number: int) -> None:
        wishes: list[tuple[str, dict[str, Any]]] = []
        for _ in range(number):
            seconds = self.chance.choice(HANDLER_SECONDS)
            if name in CUSTOMERS:
                wishes.append(("keyed", {"customer": name, "seconds": seconds}))
            else:
                wishes.append((name, {} if name == "rated" else {"seconds": seconds}))
        for ref in await self.hf.enqueue_many(wishes):
            self.fleet.history.enqueued(ref.id)
            self.jobs[name].add(ref.id)

"""Limits under eight processes that are killed: from the handlers' own logs, never more, and as many again soon."""

from __future__ import annotations

import itertools
import random
import time
from typing import Any
from uuid import UUID

import pytest

from holdfast import Holdfast
from holdfast.testing.harness import Fleet, judge, until
from holdfast.testing.history import Fact
from tests.faults.conftest import CHAOS_SECONDS, NewFleet
from tests.faults.limited import AT_ONCE, PER_CUSTOMER, PER_SECOND
from tests.faults.waiting import most_at_once

WORKERS = 8
CUSTOMERS = ("ada", "grace", "mary")
LEASE_SECONDS = 2.0
#: The lease, the next sweep, and another leader if the killed one was it.
SWEPT_WITHIN = 10.0 if CHAOS_SECONDS else 30.0


@pytest.mark.slow
@pytest.mark.timeout(300 + 2 * CHAOS_SECONDS)
async def test_a_limit_is_never_exceeded_and_reached_again_after_kills(
    new_fleet: NewFleet, database_url: str, hf: Holdfast
) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    fleet = new_fleet(database_url, module="tests.faults.limited", lease_sec_default=LEASE_SECONDS, lanes="general=4")
    load = Load(hf, fleet, random.Random(seed))
    for _ in range(WORKERS):
        fleet.spawn()
    await fleet.ready()
    await until(load.is_full, what="all limits are reached")

    end = time.monotonic() + CHAOS_SECONDS
    for kills in itertools.count():
        if kills >= 2 and time.monotonic() > end:
            break
        load.kill_some()
        killed_at = time.monotonic()
        await until(load.is_full, seconds=SWEPT_WITHIN, what="all limits are reached again")
        print(f"full again {time.monotonic() - killed_at:.1f} s after the kill")

    await until(load.is_done, seconds=120, what="all jobs end")
    await fleet.drained()
    _, attempts = await judge(hf, fleet.history)
    assert any(attempt.outcome == "lost" for attempt in attempts)
    assert {name: most_at_once(fleet, ids) for name, ids in load.jobs.items() if name != "rated"} == {
        "few": AT_ONCE,
        **dict.fromkeys(CUSTOMERS, PER_CUSTOMER),
    }
    _assert_rate([f.at for f in fleet.history.facts() if f.kind == "started" and f.job_id in load.jobs["rated"]])


class Load:
    """More jobs than the limits allow, always."""

    def __init__(self, hf: Holdfast, fleet: Fleet, chance: random.Random) -> None:
        self.hf, self.fleet, self.chance = hf, fleet, chance
        self.jobs: dict[str, set[UUID]] = {name: set() for name in ("few", "rated", *CUSTOMERS)}

    async def is_full(self) -> bool:
        """Whether as many run as may; what is missing is enqueued."""
        facts = self.fleet.history.facts()
        began = {fact.job_id for fact in facts if fact.kind == "started"}
        for name, ids in self.jobs.items():
            if len(ids - began) < 12:
                await self._enqueue(name, 24)
        running = _running(facts)
        return len(running & self.jobs["few"]) >= AT_ONCE and all(
            len(running & self.jobs[customer]) >= PER_CUSTOMER for customer in CUSTOMERS
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
            seconds = self.chance.choice([0.05, 0.2, 0.4])
            if name in CUSTOMERS:
                wishes.append(("keyed", {"customer": name, "seconds": seconds}))
            else:
                wishes.append((name, {} if name == "rated" else {"seconds": seconds}))
        for ref in await self.hf.enqueue_many(wishes):
            self.fleet.history.enqueued(ref.id)
            self.jobs[name].add(ref.id)


def _running(facts: list[Fact]) -> set[UUID | None]:
    """What runs, in processes that live."""
    dead = {fact.process for fact in facts if fact.kind == "killed"}
    ended = {(fact.job_id, fact.attempt) for fact in facts if fact.kind == "ended"}
    return {
        fact.job_id
        for fact in facts
        if fact.kind == "started" and fact.process not in dead and (fact.job_id, fact.attempt) not in ended
    }


def _assert_rate(starts: list[float]) -> None:
    """A start is noted a moment after it was granted: a window may hold one second's worth more, not two."""
    starts = sorted(starts)
    for first, last in itertools.combinations(range(len(starts)), 2):
        assert last - first + 1 <= PER_SECOND * (starts[last] - starts[first] + 2)

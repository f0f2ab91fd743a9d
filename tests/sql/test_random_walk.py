"""Random operations over few targets: whatever happens, the invariants hold and every target goes on."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from holdfast.model.states import TERMINAL, State
from tests.sql.factories import (
    Lease,
    claim,
    claim_by_id,
    elect,
    enqueue,
    execute,
    expire,
    make_due,
    offences,
    promote,
    settle,
    sweep,
)

STEPS = 300
ONE_AT_A_TIME = """
    select target from jobs where target is not null and state = 'running'
    group by tenant, target having count(*) > 1"""


ENDINGS: list[tuple[str, dict[str, Any]]] = [
    ("complete", {}), ("fail", {}), ("fail", {"kinds": ["fatal"]}), ("fail", {"kinds": ["hold"]}), ("release", {}),
    ("snooze", {"delays": [60.0]}), ("snooze", {"delays": [0.0]}), ("stop", {"outcomes": ["paused"]}),
    ("stop", {"outcomes": ["canceled"]}),
]  # fmt: skip


class Walk:
    """A world of three targets in which anything may happen next."""

    def __init__(self, conn: asyncpg.Connection, dice: random.Random) -> None:
        self.conn, self.dice = conn, dice
        self.jobs: list[UUID] = []
        self.leases: list[Lease] = []
        self.deeds: list[Callable[[], Awaitable[object]]] = [
            self.enqueue, self.enqueue, self.claim, self.claim, self.claim_by_id, self.settle, self.settle,
            self.settle, self.request, self.request, self.lapse, self.become_due, self.maintain, self.release_held,
        ]  # fmt: skip

    async def enqueue(self) -> None:
        choices: list[dict[str, Any]] = [{}, {}, {"delay": 60.0}, {"hold": True}, {"priority": 5}]
        options = self.dice.choice(choices)
        target = self.dice.choice(["a", "b", "c", None])
        self.jobs.append(await enqueue(self.conn, target=target, **options))

    async def claim(self) -> None:
        self.leases += await claim(self.conn, limit=self.dice.randint(1, 4))

    async def claim_by_id(self) -> None:
        lease = await claim_by_id(self.conn, self.dice.choice(self.jobs)) if self.jobs else None
        self.leases += [lease] if lease else []

    async def settle(self) -> None:
        """Any ending of any attempt, sometimes of one that is over."""
        if not self.leases:
            return
        lease = self.dice.choice(self.leases)
        verb, more = self.dice.choice(ENDINGS)
        await settle(self.conn, verb, [lease], **more)

    async def request(self) -> None:
        if self.jobs:
            verb = self.dice.choice(["cancel", "pause", "resume", "resume", "retry", "delete"])
            await execute(self.conn, verb, self.dice.choice(self.jobs))

    async def lapse(self) -> None:
        if self.leases:
            await expire(self.conn, self.dice.choice(self.leases).job_id)
            await sweep(self.conn)

    async def become_due(self) -> None:
        due = [row["job_id"] for row in await self.conn.fetch("select job_id from due")]
        if due:
            await make_due(self.conn, self.dice.choice(due))
            await promote(self.conn)

    async def maintain(self) -> None:
        await elect(self.conn)
        await self.conn.execute("select execute_requests(), age(), drop_strays(), headless_targets()")

    async def release_held(self) -> None:
        held = await self.conn.fetch("select id from jobs where state = 'created'")
        await self.conn.execute("select release_held($1)", [row["id"] for row in held][:1])

    async def finish(self) -> None:
        """Resume what is held, run what is open, until everything has ended."""
        for _ in range(200):
            await self.maintain()
            await self.conn.execute("select release_held(array(select id from jobs where state = 'created'))")
            await make_due(self.conn, *[row["job_id"] for row in await self.conn.fetch("select job_id from due")])
            await promote(self.conn)
            for row in await self.conn.fetch("select id from jobs where state in ('paused', 'error')"):
                await execute(self.conn, "resume", row["id"])
            await expire(self.conn, *[row["job_id"] for row in await self.conn.fetch("select job_id from leases")])
            await sweep(self.conn)
            await settle(self.conn, "complete", await claim(self.conn, limit=50))
            open_jobs = "select count(*) from jobs where state <> all ($1)"
            if not await self.conn.fetchval(open_jobs, [str(state) for state in TERMINAL]):
                return
        raise AssertionError("some jobs never end")


@pytest.mark.parametrize("seed", range(2))
async def test_whatever_happens_the_invariants_hold_and_every_job_can_end(conn: asyncpg.Connection, seed: int) -> None:
    walk = Walk(conn, random.Random(seed))
    deeds: list[str] = []
    for _ in range(STEPS):
        deed = walk.dice.choice(walk.deeds)
        deeds.append(deed.__name__)
        await deed()
        assert await offences(conn) == [], deeds[-5:]
        assert await conn.fetch(ONE_AT_A_TIME) == [], deeds[-5:]
    await walk.finish()
    assert await offences(conn) == []
    assert await conn.fetchval("select coalesce(sum(count), 0) from repairs") == 0
    for table in ("ready", "leases", "due", "waiting", "heads", "calls"):
        assert await conn.fetchval(f"select count(*) from {table}") == 0, table
    assert {State(row["state"]) for row in await conn.fetch("select distinct state from jobs")} <= TERMINAL

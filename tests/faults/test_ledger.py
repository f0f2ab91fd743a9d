"""kill -9 of workers whose handlers end their jobs in their own transactions: both effects, or none, at any time."""

from __future__ import annotations

import random
import time

import asyncpg
import pytest

from holdfast import Holdfast
from tests.faults.conftest import CHAOS_SECONDS
from tests.harness.deeds import Deeds
from tests.harness.fleet import Fleet
from tests.harness.waiting import until

#: For how long jobs arrive, and how often somebody is killed meanwhile.
SECONDS, KILLED_PER_BATCH = (CHAOS_SECONDS, 0.3) if CHAOS_SECONDS else (1.5, 0.5)
#: In one statement, so in one snapshot: jobs whose state and line do not tell the same.
DISAGREEING = """
    select count(*)
    from holdfast.jobs j
    where j.type = 'ledger'
      and (j.state = 'success')::integer is distinct from (
        select count(*)::integer from public.ledger l where l.job_id = j.id)
"""


@pytest.mark.slow
@pytest.mark.timeout(240 + 2 * CHAOS_SECONDS)
async def test_line_and_success_are_there_together_or_not_at_all(
    fleet: Fleet, hf: Holdfast, conn: asyncpg.Connection, chance: random.Random, deeds: Deeds
) -> None:
    await conn.execute("create table public.ledger (job_id uuid, attempt integer)")
    for _ in range(2):
        fleet.spawn()
    await fleet.ready()

    end = time.monotonic() + SECONDS
    recorded = killed = 0
    while time.monotonic() < end or killed < 4:
        pauses = {part: chance.choice([0, 0, 0.002, 0.02]) for part in ("before", "inside", "after")}
        targets = [f"target {chance.randrange(6)}" if chance.random() < 0.3 else None for _ in range(40)]
        await hf.enqueue_many([("ledger", pauses, {"target": target}) for target in targets])
        recorded += len(targets)
        working = [process for process in fleet.living if process.started]
        if working and chance.random() < KILLED_PER_BATCH:
            chance.choice(working).kill()
            killed += 1
            fleet.spawn()
        assert await conn.fetchval(DISAGREEING) == 0
        await until(lambda: _few_wait(hf), what="the workers keep up")

    await until(lambda: _all_ended(conn), seconds=90, what="all jobs end")
    assert await conn.fetchval(DISAGREEING) == 0
    lost = await conn.fetchval("select count(*) from holdfast.job_attempts where outcome = 'lost'")
    deeds.say(f"{recorded} jobs with a ledger, {lost} leases lost and recovered")
    assert await conn.fetchval("select count(*) from public.ledger") == recorded
    assert await conn.fetchval("select count(*) from holdfast.verify()") == 0
    await fleet.drained()


async def _few_wait(hf: Holdfast) -> bool:
    backlog = await hf.client.backlog()
    return backlog["ready"] + backlog["waiting"] < 100


async def _all_ended(conn: asyncpg.Connection) -> bool:
    return bool(await conn.fetchval("select count(*) = 0 from holdfast.jobs where state <> 'success'"))

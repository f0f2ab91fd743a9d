"""A setting that is changed under load is in force in every process within five seconds."""

from __future__ import annotations

import asyncio
from datetime import datetime

import asyncpg

from holdfast import Holdfast
from tests.faults.conftest import CHAOS_SECONDS, NewFleet
from tests.harness.fleet import judge
from tests.harness.waiting import until

PROCESSES = 8
#: Handlers that run for longer than the new timeout, so many that every process gets some.
SLOW = 12 * PROCESSES
#: What arrives ten times a second, twice over.
LOAD = 20 if CHAOS_SECONDS else 8


async def test_a_setting_changed_under_load_is_in_force_in_eight_processes_within_five_seconds(
    new_fleet: NewFleet, database_url: str, hf: Holdfast, conn: asyncpg.Connection
) -> None:
    """Heartbeats are those of production: two seconds apart."""
    fleet = new_fleet(database_url, heartbeat_seconds=2, lease_sec_default=30)
    for _ in range(PROCESSES):
        fleet.spawn()
    await fleet.ready()
    settings = (await hf.operations()).settings
    loading = asyncio.create_task(_load(hf))
    try:
        changed = await settings.set("GENERAL_TIMEOUT_SECONDS", 1, by="ada")
        assert changed.updated_at is not None
        told = await until(
            lambda: (
                (found := [_told(process.lines("WorkerChanged")) for process in fleet.processes])
                and all(found)
                and [at for at in found if at is not None]
            ),
            what="every process follows the setting",
        )
        assert max((at - changed.updated_at).total_seconds() for at in told) < 5
        late = await hf.enqueue_many([("work", {"seconds": 30}, {"max_attempts": 1})] * SLOW)
        for job in late:
            await hf.wait(job.id, timeout=120)
    finally:
        loading.cancel()
        await asyncio.gather(loading, return_exceptions=True)
    # Jobs that were claimed ahead of the slots are handed back, which costs nothing.
    ended = [attempt for job in late for attempt in await hf.attempts(job.id)]
    attempts = [attempt for attempt in ended if attempt.outcome != "released"]
    assert {attempt.outcome for attempt in attempts} == {"timeout"}
    assert len({attempt.worker for attempt in attempts}) == PROCESSES

    async def over() -> bool:
        return not await conn.fetchval("select exists (select from ready) or exists (select from leases)")

    await until(over, seconds=120, what="the load is done")
    await fleet.drained()
    await judge(hf, fleet.history)


async def _load(hf: Holdfast) -> None:
    while True:
        await hf.enqueue_many([("quick", {}), ("work", {"seconds": 0.01})] * LOAD)
        await asyncio.sleep(0.1)


def _told(lines: list[dict[str, object]]) -> datetime | None:
    """When a process said that it follows the new value."""
    for line in lines:
        if line.get("change") == "follows settings" and "GENERAL_TIMEOUT_SECONDS=1" in str(line.get("detail")):
            return datetime.fromisoformat(str(line["time"]))
    return None

"""Schedules with real leaders that are killed and frozen, a server that crashes, and a clock that is set."""

from __future__ import annotations

import itertools
import time
from datetime import datetime, timedelta

import asyncpg
import pytest

from holdfast import Holdfast
from holdfast.store.embedded import EmbeddedPostgres
from tests.faults.conftest import CHAOS_SECONDS, NewFleet, crash
from tests.faults.test_clock import LIBRARY, SetClock, shifted
from tests.faults.test_leader import leader_of
from tests.harness.deeds import Deeds
from tests.harness.fleet import Fleet, WorkerProcess, judge
from tests.harness.waiting import until

__all__ = ["shifted"]

SECOND = timedelta(seconds=1)
#: Longer than a leader's term: another one takes over.
FROZEN_SECONDS = 20.0 if CHAOS_SECONDS else 17.0

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


async def test_each_second_fires_once_whatever_becomes_of_leaders_and_server(
    server: EmbeddedPostgres, new_fleet: NewFleet, deeds: Deeds
) -> None:
    """`every=1`: no second is left out and none fires twice, while three processes lead in turns."""
    fleet = new_fleet(server.url, heartbeat_seconds=0.3, lease_sec_default=4)
    for _ in range(3):
        fleet.spawn()
    await fleet.ready()
    async with Holdfast(server.url) as app:
        schedules = (await app.operations()).schedules
        await schedules.put("each second", every=1, job="quick", overlap="allow", by="ada")
        await until(lambda: _fired(server.url, 3), what="it fires")

        frozen = await until(lambda: leader_of(fleet), what="one leads")
        frozen.freeze()
        end = time.monotonic() + FROZEN_SECONDS
        await until(lambda: time.monotonic() > end, what="another one leads")
        frozen.thaw()
        await _fires_again(server.url)

        killed = await until(lambda: _other_leader(fleet, frozen.pid), what="another one leads")
        killed.kill()
        fleet.spawn()
        await _fires_again(server.url)

        await crash(server)
        await _fires_again(server.url)

        await schedules.pause("each second", by="ada")
        rows = await _rows(server.url)
        moments = [row["fire_at"] for row in rows]
        assert {row["outcome"] for row in rows} == {"fired"}
        assert {after - before for before, after in itertools.pairwise(moments)} == {SECOND}
        assert len({row["job_id"] for row in rows}) == len(rows)
        for row in rows:
            assert (await app.wait(row["job_id"], timeout=60)).state == "success"
        deeds.say(f"{len(rows)} seconds, a job each")
        await fleet.drained()
        jobs, _ = await judge(app, fleet.history)
        assert len(jobs) == len(rows)


@pytest.mark.skipif(LIBRARY is None, reason="libfaketime is not installed (scripts/system-packages)")
@pytest.mark.parametrize("steps", [[60, -60], [-3600, 3600], [3600, -7200]], ids=str)
async def test_a_schedule_goes_on_after_steps_of_the_servers_clock_and_repeats_nothing(
    shifted: tuple[str, SetClock], new_fleet: NewFleet, steps: list[int], deeds: Deeds
) -> None:
    """What a clock ahead has fired does not fire again when its time really comes, and stops nothing else."""
    url, clock = shifted
    fleet = new_fleet(url, heartbeat_seconds=0.5, lease_sec_default=4)
    fleet.spawn()
    await fleet.ready()
    async with Holdfast(url) as app:
        schedules = (await app.operations()).schedules
        await schedules.put("each second", every=1, job="quick", overlap="allow", catch_up=30, by="ada")
        await until(lambda: _fired(url, 3), what="it fires")
        told = []
        for step in steps:
            clock.step(step)
            began = time.monotonic()
            since = await _clock(url)
            beyond = {row["fire_at"] for row in await _rows(url) if row["fire_at"] > since}
            await until(lambda: _fired(url, 3, since, beyond), seconds=120, what="new fire times")  # noqa: B023
            told.append(f"{step:+d} s: {time.monotonic() - began:.1f} s")
        await schedules.pause("each second", by="ada")
        rows = [row for row in await _rows(url) if row["job_id"] is not None]
        assert len({row["job_id"] for row in rows}) == len(rows)
        for row in rows:
            assert (await app.wait(row["job_id"], timeout=60)).state == "success"
        assert (await schedules.get("each second")).failures == 0
    deeds.say("fires again after steps by " + ", ".join(told))


async def _rows(url: str) -> list[asyncpg.Record]:
    conn = await asyncpg.connect(url)
    try:
        return list(await conn.fetch("select fire_at, outcome, job_id from holdfast.schedule_fires order by fire_at"))
    finally:
        await conn.close()


async def _clock(url: str) -> datetime:
    conn = await asyncpg.connect(url)
    try:
        now: datetime = await conn.fetchval("select clock_timestamp()")
        return now
    finally:
        await conn.close()


async def _fired(url: str, count: int, since: datetime | None = None, known: set[datetime] | None = None) -> bool:
    """Whether so many fire times made jobs, after a moment, besides those that are known."""
    try:
        rows = await _rows(url)
    except (OSError, asyncpg.PostgresError):
        return False
    fired = [row["fire_at"] for row in rows if row["outcome"] == "fired"]
    return len([at for at in fired if (since is None or at > since) and at not in (known or ())]) >= count


async def _fires_again(url: str) -> None:
    """Wait until the fire times are those of now again."""

    async def caught_up() -> bool:
        try:
            rows, now = await _rows(url), await _clock(url)
        except (OSError, asyncpg.PostgresError):
            return False
        return bool(rows[-1]["fire_at"] > now - 2 * SECOND)

    await until(caught_up, seconds=90, what="it fires on time again")


def _other_leader(fleet: Fleet, but: int) -> WorkerProcess | None:
    leader = leader_of(fleet)
    return leader if leader is not None and leader.pid != but else None

"""The clock of a real server is set, ahead and back: no lease ends by it, and recovery goes on.

libfaketime shifts the server's clock, and only that; it reads by how much from a file.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from uuid import UUID

import asyncpg
import pytest

from holdfast import Holdfast
from holdfast.store.embedded import EmbeddedPostgres
from tests.faults.conftest import CHAOS_SECONDS, NewFleet
from tests.harness.deeds import Deeds
from tests.harness.homes import copy_home, new_folder
from tests.harness.waiting import until

LIBRARY = next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"), None)
LEASE = 4.0
STEPS = [1, -1, 60, -60, 3600, -3600] if CHAOS_SECONDS else [60, -3600]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(LIBRARY is None, reason="libfaketime is not installed (scripts/system-packages)"),
]


class SetClock:
    """The file that says how far the server's clock is ahead."""

    def __init__(self, path: Path) -> None:
        self._path, self._ahead = path, 0
        self.step(0)

    def step(self, seconds: int) -> None:
        """Set the clock, ahead or back."""
        self._ahead += seconds
        new = self._path.with_suffix(".new")
        new.write_text(f"{self._ahead:+d}\n")
        new.chmod(0o644)
        new.replace(self._path)


@pytest.fixture
async def shifted(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[str, SetClock]]:
    """The URL of a server of the test's own, and its clock."""
    home = new_folder("hf-clock-")
    home.chmod(0o755)
    clock = SetClock(home / "ahead")
    server = EmbeddedPostgres(copy_home(home / "server"))
    with monkeypatch.context() as environment:
        environment.setenv("LD_PRELOAD", str(LIBRARY))
        environment.setenv("FAKETIME_TIMESTAMP_FILE", str(home / "ahead"))
        environment.setenv("FAKETIME_DONT_FAKE_MONOTONIC", "1")
        environment.setenv("FAKETIME_NO_CACHE", "1")
        await asyncio.to_thread(server.start)
    yield server.url, clock
    await asyncio.to_thread(server.stop)
    shutil.rmtree(home, ignore_errors=True)


@pytest.mark.parametrize("leader", ["alive", "dead"])
async def test_a_step_of_the_servers_clock_costs_healthy_jobs_no_attempt(
    shifted: tuple[str, SetClock], new_fleet: NewFleet, leader: str, deeds: Deeds
) -> None:
    url, clock = shifted
    admin = await asyncpg.connect(url, server_settings={"search_path": "holdfast"})
    fleet = new_fleet(url, lease_sec_default=LEASE, heartbeat_seconds=0.5)
    fleet.spawn()
    await fleet.ready()
    took = []
    async with Holdfast(url) as hf:
        for step in STEPS:
            healthy = await hf.enqueue("work", {"seconds": 3 * LEASE}, max_attempts=1)
            await until(partial(_is, admin, healthy.id, "running"), what="it runs")
            lost = await _ghost(admin)
            if leader == "dead":
                await admin.execute("update leaders set holder = 'dead', expires_at = now() + interval '5 seconds'")
            before = await admin.fetchval("select clock_timestamp()")
            clock.step(step)
            stepped = time.monotonic()
            moved = (await admin.fetchval("select clock_timestamp()") - before).total_seconds()
            assert abs(moved - step) < 1, "the clock was set"
            later = await hf.enqueue("work", {"seconds": 0.01}, delay=0.3)
            aimed = await hf.enqueue("work", {"seconds": 0.01}, target=f"target {step}")
            for job_id in (later.id, aimed.id, lost):
                assert (await hf.wait(job_id, timeout=3 * LEASE + 20)).state == "success"
            done = await hf.wait(healthy.id, timeout=60)
            assert (done.state, done.attempt, done.failures) == ("success", 1, 0)
            took.append(f"{step:+d} s: {time.monotonic() - stepped:.1f} s")
    await admin.close()
    deeds.say("all of it after steps by " + ", ".join(took))


async def _ghost(admin: asyncpg.Connection) -> UUID:
    """A job whose worker has died."""
    async with admin.transaction():
        job_id: UUID = await admin.fetchval("select job_id from enqueue('work', '{\"seconds\": 0.01}')")
        assert await admin.fetchval("select attempt from claim_by_id('ghost', $1, $2)", job_id, LEASE)
    return job_id


async def _is(admin: asyncpg.Connection, job_id: object, state: str) -> bool:
    return bool(await admin.fetchval("select state = $2 from jobs where id = $1", job_id, state))

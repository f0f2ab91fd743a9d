"""A worker whose handlers misbehave for a long time does not grow."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from holdfast import Holdfast
from tests.conftest import CHAOS_SECONDS
from tests.harness.deeds import Deeds
from tests.harness.waiting import until
from tests.worker.ways import THEMES

JOBS, BATCH = (200_000, 500) if CHAOS_SECONDS else (1_000, 250)
#: Of so many jobs one misbehaves.
EVERY = 10
#: In so many parts; what the worker has after the first of them is what it may have after the last.
PARTS = 4
#: Those that leave nothing behind but what they did themselves, and take neither long nor much.
THEMES_TRIED = ("raising", "returning", "logging")
HEAVY = {"large", "deep", "wide-group", "many-arguments", "notes-many", "huge", "large-list", "large-escapes", "many"}


@pytest.mark.slow
@pytest.mark.timeout(120 + CHAOS_SECONDS * 20)
async def test_memory_and_descriptors_stay_flat_though_every_tenth_job_misbehaves(
    database_url: str, conn: asyncpg.Connection, deeds: Deeds
) -> None:
    tried = itertools.cycle(
        [
            (executor, {"theme": theme, "way": way.name})
            for theme in THEMES_TRIED
            for way in THEMES[theme].values()
            for executor in way.executors
            if way.name not in HEAVY
        ]
    )
    seen: list[tuple[int, int]] = []
    async with Holdfast(database_url) as hf:
        with _worker(database_url) as worker:
            for _ in range(PARTS):
                for _ in range(JOBS // PARTS // BATCH):
                    jobs: list[Any] = [next(tried) if n % EVERY == 0 else ("plain", {}) for n in range(BATCH)]
                    await hf.enqueue_many(jobs)
                await until(lambda: _idle(conn, worker), seconds=90 + 20 * CHAOS_SECONDS, what="all jobs have ended")
                seen.append(_possessions(worker.pid))
                print(f"{seen[-1][0] / 2**20:.1f} MiB, {seen[-1][1]} descriptors")
        rows = await conn.fetch("select state, count(*) from jobs group by state")
        states: dict[str, int] = {row["state"]: row["count"] for row in rows}
    deeds.say(f"{sum(states.values())} jobs, {states.get('dead', 0)} of them dead")
    assert states.keys() == {"success", "dead"}
    (memory, descriptors), (last_memory, last_descriptors) = seen[0], seen[-1]
    assert last_memory < memory * 1.2 + 2**24, seen
    assert last_descriptors < descriptors + 8, seen


@contextmanager
def _worker(url: str) -> Iterator[subprocess.Popen[bytes]]:
    environment = {**os.environ, "HOLDFAST_DATABASE_URL": url, "HOLDFAST_LOG_LEVEL": "ERROR"}
    command = [sys.executable, "-m", "holdfast", "worker", "--app", "tests.worker.ways:hf", "--lanes", "general=4"]
    worker = subprocess.Popen(command, env=environment, cwd=Path(__file__).parents[2], stderr=subprocess.DEVNULL)
    try:
        yield worker
        worker.terminate()
        assert worker.wait(60) == 0
    finally:
        worker.kill()
        worker.wait()


async def _idle(conn: asyncpg.Connection, worker: subprocess.Popen[bytes]) -> bool:
    assert worker.poll() is None, "the worker has ended"
    return bool(
        await conn.fetchval(
            "select not exists (select from ready) and not exists (select from leases) and not exists (select from due)"
        )
    )


def _possessions(pid: int) -> tuple[int, int]:
    """How much memory a process has, in bytes, and how many descriptors."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE"), len(list(Path(f"/proc/{pid}/fd").iterdir()))

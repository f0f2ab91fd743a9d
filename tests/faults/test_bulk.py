"""A bulk operation goes on when its leader is killed, and runs every dead job again once, whoever else asks for it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import asyncpg

from holdfast import Holdfast
from holdfast.client.bulk import Bulks
from holdfast.model.bulk import Bulk
from tests.faults.conftest import CHAOS_SECONDS
from tests.faults.test_leader import leader_of
from tests.harness.fleet import Fleet
from tests.harness.waiting import until
from tests.sql.factories import claim, enqueue_copies, offences, settle

LETTERS = 50_000 if CHAOS_SECONDS else 5_000
PORTION = 2_500
#: A type that no worker of the fleet has, so that what was requeued waits.
TYPE = "nobody's"


async def bury(conn: asyncpg.Connection, count: int) -> None:
    for _ in range(count // PORTION):
        await enqueue_copies(conn, PORTION, TYPE)
        leases = await claim(conn, TYPE, limit=PORTION)
        assert len(leases) == PORTION
        await settle(conn, "fail", leases, kinds=["fatal"] * PORTION)


class Watch:
    """Looks at bulk operations again and again; their counters never go back."""

    def __init__(self, bulks: Bulks) -> None:
        self._bulks = bulks
        self._seen: dict[object, Bulk] = {}

    async def look(self) -> list[Bulk]:
        found = list(await self._bulks.list())
        for bulk in found:
            before = self._seen.get(bulk.id, bulk)
            assert (bulk.matched, bulk.done, bulk.skipped, bulk.failed) >= (before.matched, 0, 0, 0)
            assert bulk.done >= before.done
            assert bulk.skipped >= before.skipped
            assert bulk.done + bulk.skipped + bulk.failed <= bulk.matched
            self._seen[bulk.id] = bulk
        return found


async def test_every_dead_job_runs_again_once_when_the_leader_is_killed_half_way(
    fleet: Fleet, hf: Holdfast, conn: asyncpg.Connection
) -> None:
    await bury(conn, LETTERS)
    for _ in range(2):
        fleet.spawn()
    await fleet.ready()
    bulks = (await hf.operations()).bulk
    watch = Watch(bulks)
    for by in ("ada", "bob"):
        await bulks.start("requeue", f'type:"{TYPE}"', by=by, note="mended")

    async def done_at_least(count: int) -> bool:
        return sum(bulk.done for bulk in await watch.look()) >= count

    async def ended() -> bool:
        return all(bulk.ended for bulk in await watch.look())

    await _until(lambda: done_at_least(LETTERS // 3))
    leader = await until(lambda: leader_of(fleet), what="one leads")
    leader.kill()
    assert not await ended(), "it was killed too late"
    (follower,) = fleet.living
    before = _resident(follower.pid)
    await _until(ended)
    assert _resident(follower.pid) < before + 20 * 2**20, "its memory grows with the operation"

    both = await watch.look()
    assert {bulk.state for bulk in both} == {"done"}
    assert sum(bulk.done for bulk in both) == LETTERS
    assert [bulk.matched for bulk in both] == [bulk.done + bulk.skipped for bulk in both]
    # One new job for each dead one, and no dead one without.
    made = await conn.fetchval("select array[count(*), count(distinct retry_of)] from jobs where retry_of is not null")
    assert made == [LETTERS, LETTERS]
    assert await conn.fetchval("select count(*) from dead_letters where requeued_as is null") == 0
    assert await conn.fetchval("select count(*) from bulk_jobs") == 0
    assert await offences(conn) == []


def _resident(pid: int) -> int:
    """Bytes of memory that a process has."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def _until(holds: Callable[[], Awaitable[bool]], seconds: float = 60 + LETTERS / 100) -> None:
    async with asyncio.timeout(seconds):
        while not await holds():
            await asyncio.sleep(0.02)

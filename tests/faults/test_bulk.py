"""A bulk operation goes on whoever is killed, and runs every dead job again once, whoever else asks for it."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import asyncpg
import pytest

from holdfast import DatabaseUnavailable, Holdfast
from holdfast.client.bulk import Bulks
from holdfast.model.bulk import Bulk
from holdfast.store.embedded import EmbeddedPostgres
from tests.faults.conftest import CHAOS_SECONDS, NewFleet
from tests.faults.test_leader import leader_of
from tests.harness.deeds import Deeds
from tests.harness.fleet import Fleet, WorkerProcess
from tests.harness.waiting import until
from tests.sql.factories import claim, enqueue_copies, offences, settle

LETTERS = 50_000 if CHAOS_SECONDS else 1_000
PORTION = 250
PATIENCE = 60 + LETTERS / 50
#: So much that a leader may use beyond what it had half-way; a job in memory takes a kilobyte or more.
GROWTH = 20 * 2**20
#: A type that no worker of the fleet has, so that what was requeued waits; and one that they run.
WAITS, RUNS = "nobody's", "work"
#: Who is killed while ids are being fixed, and who half-way: a new leader is not there for five seconds.
FIXING = ["leader", "worker", "server"] if CHAOS_SECONDS else ["leader"]
HALF_WAY = ["worker", "server", "leader"] if CHAOS_SECONDS else ["worker", "server"]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240 + 4 * PATIENCE)]


@pytest.fixture
async def own(server: EmbeddedPostgres) -> AsyncIterator[Holdfast]:
    """A client of that server."""
    async with Holdfast(server.url) as app:
        yield app


async def test_every_dead_job_runs_again_once_whoever_is_killed(
    server: EmbeddedPostgres, own: Holdfast, new_fleet: NewFleet, deeds: Deeds
) -> None:
    await _bury(server)
    fleet = new_fleet(server.url)
    for _ in range(3):
        fleet.spawn()
    await fleet.ready()
    watch = Watch((await own.operations()).bulk)
    kill = Killer(fleet, server, deeds)

    async with _session(server) as conn:
        # Whoever notes ids waits here, in the midst of a portion.
        await conn.execute("begin; lock table bulk_jobs in exclusive mode")
        for by in ("ada", "bob"):
            await watch.bulks.start("requeue", "", by=by, note="mended")
        for whom in FIXING:
            await until(lambda: _somebody_waits(server), what="ids are being fixed")
            await kill(whom)
            assert {bulk.state for bulk in await watch.look()} <= {"fixing"}
        with contextlib.suppress(asyncpg.PostgresError, asyncpg.InterfaceError, ConnectionError):
            await conn.execute("rollback")

    for number, whom in enumerate(HALF_WAY, 1):
        await _until(watch.done_at_least(number * LETTERS // (len(HALF_WAY) + 2)))
        await kill(whom)
        assert not await watch.ended(), "it was killed too late"
    leader = await until(lambda: leader_of(fleet), what="one leads")
    before = _resident(leader)
    await _until(watch.ended)
    if leader.alive:
        grown = _resident(leader) - before
        deeds.say(f"the leader's memory grew by {grown // 2**20} MB")
        assert grown < GROWTH, "its memory grows with the operation"

    both = await watch.look()
    assert {bulk.state for bulk in both} == {"done"}
    assert sum(bulk.done for bulk in both) == LETTERS
    assert [bulk.matched for bulk in both] == [bulk.done + bulk.skipped for bulk in both]
    async with _session(server) as conn:
        await _each_runs_once(conn)


async def _each_runs_once(conn: asyncpg.Connection) -> None:
    """One new job for each dead one, and no dead one without; those that workers have run ended well."""
    made = await conn.fetchval("select array[count(*), count(distinct retry_of)] from jobs where retry_of is not null")
    assert made == [LETTERS, LETTERS]
    assert await conn.fetchval("select count(*) from dead_letters where requeued_as is null") == 0
    assert await conn.fetchval("select count(*) from bulk_jobs") == 0

    async def all_ran() -> bool:
        open_jobs = "select count(*) from jobs where type = $1 and retry_of is not null and state <> 'success'"
        return bool(await conn.fetchval(open_jobs, RUNS) == 0)

    await _until(all_ran)
    assert await offences(conn) == []
    audit = await conn.fetch("select actor, action from list_audit()")
    assert sorted((row["actor"], row["action"]) for row in audit) == [("ada", "bulk.start"), ("bob", "bulk.start")]


class Watch:
    """Looks at bulk operations again and again; their counters never go back."""

    def __init__(self, bulks: Bulks) -> None:
        self.bulks = bulks
        self._seen: dict[object, Bulk] = {}

    async def look(self) -> list[Bulk]:
        """All of them, as soon as somebody answers."""
        found: list[Bulk] = await until(self._answer, what="the database answers")
        for bulk in found:
            before = self._seen.get(bulk.id, bulk)
            for counter in ("matched", "done", "skipped", "failed"):
                assert getattr(bulk, counter) >= getattr(before, counter), f"{counter} goes back"
            assert bulk.done + bulk.skipped + bulk.failed <= bulk.matched
            self._seen[bulk.id] = bulk
        return found

    async def ended(self) -> bool:
        """Whether nothing is left to do."""
        return all(bulk.ended for bulk in await self.look())

    def done_at_least(self, count: int) -> Callable[[], Awaitable[bool]]:
        """Whether this many letters were requeued."""

        async def holds() -> bool:
            return sum(bulk.done for bulk in await self.look()) >= count

        return holds

    async def _answer(self) -> list[Bulk] | None:
        try:
            return list(await self.bulks.list())
        except DatabaseUnavailable:
            return None


class Killer:
    """kill -9 of one process; another one takes the place of a worker that was killed."""

    def __init__(self, fleet: Fleet, server: EmbeddedPostgres, deeds: Deeds) -> None:
        self._fleet, self._server, self._deeds = fleet, server, deeds

    async def __call__(self, whom: str) -> None:
        """Kill the leader, a worker that does not lead, or PostgreSQL itself."""
        self._deeds.say(f"{whom} killed")
        if whom == "server":
            crashed = self._server.postmaster_pid()
            assert crashed is not None
            os.kill(crashed, signal.SIGKILL)
            await until(lambda: self._server.postmaster_pid() not in (None, crashed), what="PostgreSQL starts anew")
            return
        leader = await until(lambda: leader_of(self._fleet), what="one leads")
        victim = leader if whom == "leader" else next(p for p in self._fleet.living if p is not leader)
        victim.kill()
        self._fleet.spawn()


async def _bury(server: EmbeddedPostgres) -> None:
    async with _session(server) as conn:
        for n in range(LETTERS // PORTION):
            kind = RUNS if n == 0 else WAITS
            await enqueue_copies(conn, PORTION, kind)
            leases = await claim(conn, kind, limit=PORTION)
            assert len(leases) == PORTION
            await settle(conn, "fail", leases, kinds=["fatal"] * PORTION)


async def _somebody_waits(server: EmbeddedPostgres) -> bool:
    async with _session(server) as conn:
        sql = "select exists (select from pg_locks where not granted and relation = 'bulk_jobs'::regclass)"
        return bool(await conn.fetchval(sql))


@contextlib.asynccontextmanager
async def _session(server: EmbeddedPostgres) -> AsyncIterator[asyncpg.Connection]:
    conn = await asyncpg.connect(server.url, server_settings={"search_path": "holdfast"})
    try:
        yield conn
    finally:
        conn.terminate()


def _resident(process: WorkerProcess) -> int:
    """Bytes of memory that a process has."""
    return int(Path(f"/proc/{process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def _until(holds: Callable[[], Awaitable[bool]]) -> None:
    await until(holds, seconds=PATIENCE)

"""Remote workers while everything breaks: every item exactly once, no cursor ahead of its items, no job lost."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import asyncpg
import pytest

from holdfast import Holdfast
from holdfast.store.embedded import EmbeddedPostgres
from holdfast.web.server import address, listen
from tests.faults.conftest import CHAOS_SECONDS
from tests.faults.cutting import Cutter
from tests.faults.scraping import LEASE, PER_PAGE
from tests.harness import warm
from tests.harness.deeds import Deeds
from tests.harness.waiting import until
from tests.sql.factories import offences

SECONDS, WORKERS, SERVERS, PAGES = CHAOS_SECONDS or 4.0, 4, 2, 6
ITEMS = PAGES * (PER_PAGE - 1) + 1
AHEAD = """
select p.job_id from holdfast.job_progress p
where (p.cursor::text)::integer * ($1 - 1) + 1 > (select count(*) from holdfast.job_items i where i.job_id = p.job_id)
"""


class Team:
    """Processes that are killed and started again."""

    def __init__(self, start: Callable[[int], warm.Process], count: int) -> None:
        self._start = start
        self.processes = [start(number) for number in range(count)]
        self.killed = 0

    def kill_one(self, chance: random.Random) -> None:
        """Kill -9, and start another one under the same name."""
        number = chance.randrange(len(self.processes))
        self.processes[number].kill()
        self.processes[number].wait()
        self.processes[number] = self._start(number)
        self.killed += 1

    def end(self) -> None:
        """Kill all."""
        for process in self.processes:
            process.kill()
            process.wait()


@asynccontextmanager
async def api(url: str, listener: socket.socket) -> AsyncIterator[Team]:
    """API processes that share a listener."""
    number = listener.fileno()
    with os.fdopen(2, "wb", closefd=False) as stderr:

        def start(_: int) -> warm.Process:
            environment = {**os.environ, "HOLDFAST_DATABASE_URL": url}
            arguments = ["-m", "tests.faults.serving", str(number), "0"]
            return warm.Process(arguments, pass_fds=[number], env=environment, stdout=stderr)

        team = Team(start, SERVERS)
        try:
            yield team
        finally:
            team.end()


@asynccontextmanager
async def scrapers(url: str) -> AsyncIterator[Team]:
    """Remote workers."""
    with os.fdopen(2, "wb", closefd=False) as stderr:

        def start(number: int) -> warm.Process:
            return warm.Process(["-m", "tests.faults.scraping", url, f"w{number}"], env=os.environ, stdout=stderr)

        team = Team(start, WORKERS)
        try:
            yield team
        finally:
            team.end()


async def freeze_one(workers: Team, chance: random.Random) -> None:
    """A zombie: it stops for longer than its lease, and then goes on as if nothing had been."""
    process = chance.choice(workers.processes)
    process.send_signal(signal.SIGSTOP)
    await asyncio.sleep(LEASE * 1.5)
    process.send_signal(signal.SIGCONT)


async def restart(server: EmbeddedPostgres) -> None:
    """PostgreSQL stops and comes back."""
    await asyncio.to_thread(server.stop)
    await asyncio.to_thread(server.start)


async def look(url: str) -> None:
    """Whether a cursor is ever ahead of its items."""
    while True:
        with suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError):
            conn = await asyncpg.connect(url, timeout=2)
            try:
                while True:
                    assert await conn.fetch(AHEAD, PER_PAGE) == []
                    await asyncio.sleep(0.1)
            finally:
                conn.terminate()
        await asyncio.sleep(0.1)


async def all_ended(url: str) -> bool:
    """Whether no job is open."""
    conn = await asyncpg.connect(url)
    try:
        return not await conn.fetchval("select exists (select from holdfast.jobs where finished_at is null)")
    finally:
        await conn.close()


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.timeout(240 + 2 * CHAOS_SECONDS)
async def test_every_item_counts_once_whatever_is_killed_cut_or_frozen(
    server: EmbeddedPostgres, chance: random.Random, deeds: Deeds
) -> None:
    ids: list[Any] = []
    async with Holdfast(server.url) as hf:

        async def feed() -> None:
            ref = await hf.enqueue("scrape", {"pages": PAGES}, max_attempts=10_000)
            ids.append(ref.id)

        with listen("127.0.0.1", 0) as listener:
            host, _, port = address(listener).rpartition("/")[2].partition(":")
            cutter = Cutter(host, int(port), chance)
            async with (
                api(server.url, listener) as apis,
                cutter.running(),
                scrapers(cutter.url) as workers,
                hf.maintaining(),
            ):
                for _ in range(20):
                    await feed()
                looking = asyncio.create_task(look(server.url))
                end = asyncio.get_running_loop().time() + SECONDS
                restarts = freezes = 0
                frozen: list[asyncio.Task[None]] = []
                while asyncio.get_running_loop().time() < end or not restarts or not freezes:
                    await asyncio.sleep(0.2)
                    with suppress(Exception):  # the database may be away: then there is one job less
                        await feed()
                    workers.kill_one(chance)
                    if chance.random() < 0.3:
                        apis.kill_one(chance)
                    if chance.random() < 0.02 or not restarts:
                        await restart(server)
                        restarts += 1
                    if chance.random() < 0.1 or not freezes:
                        frozen.append(asyncio.create_task(freeze_one(workers, chance)))
                        freezes += 1
                await asyncio.gather(*frozen)
                cutter.sharp = False

                await until(lambda: all_ended(server.url), seconds=60, what="all jobs have ended")
                looking.cancel()
                with suppress(asyncio.CancelledError):
                    await looking
        deeds.say(
            f"{len(ids)} jobs; {workers.killed} workers and {apis.killed} servers killed, {cutter.cuts} connections "
            f"cut, {freezes} workers frozen, PostgreSQL restarted {restarts} times"
        )
    conn = await asyncpg.connect(server.url, server_settings={"search_path": "holdfast"})
    try:
        rows = await conn.fetch(
            "select j.state, p.progress_count, p.result_count, (select count(*) from job_items i where i.job_id = j.id)"
            " from jobs j join job_progress p on p.job_id = j.id where j.id = any ($1)",
            ids,
        )
        assert len(rows) == len(ids)
        assert {tuple(row) for row in rows} == {("success", PAGES * PER_PAGE, ITEMS, ITEMS)}
        assert await offences(conn) == []
        assert await conn.fetchval("select count(*) from repairs") == 0
    finally:
        await conn.close()

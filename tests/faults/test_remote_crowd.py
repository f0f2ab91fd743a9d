"""A crowd of remote workers that wait at one API process: what it costs, and how soon a job reaches one of them.

`make test` has 200 of them, `make chaos` 2,000 that work, and 1,000 idle ones. Run alone, it says what it has measured.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import time
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from holdfast import Context, Holdfast
from holdfast.web.server import address, listen, raise_descriptors
from tests.conftest import CHAOS_SECONDS
from tests.faults.test_intake import servers
from tests.harness.deeds import Deeds

CROWD, IDLE, JOBS = (2000, 1000, 500) if CHAOS_SECONDS else (200, 200, 20)


class Caller:
    """A worker on a connection of its own, as small as it can be: a test has thousands."""

    def __init__(self, host: str, port: int, number: int) -> None:
        self._host, self._port, self.worker_id = host, port, f"w{number}"
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def call(self, verb: str, **body: Any) -> dict[str, Any]:
        """The answer to a call. An idle connection may have been closed."""
        while True:
            with suppress(asyncio.IncompleteReadError, ConnectionError):
                return await self._call(verb, json.dumps({"worker_id": self.worker_id} | body).encode())
            await self.close()
            self._streams = None

    async def _call(self, verb: str, text: bytes) -> dict[str, Any]:
        if self._streams is None:
            self._streams = await asyncio.open_connection(self._host, self._port)
        reader, writer = self._streams
        head = f"POST /worker/{verb} HTTP/1.1\r\nHost: {self._host}\r\nContent-Type: application/json\r\n"
        writer.write(f"{head}Content-Length: {len(text)}\r\n\r\n".encode() + text)
        headers = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        size = int(headers.partition("content-length: ")[2].partition("\r\n")[0])
        answer = await reader.readexactly(size)
        assert " 200 " in headers.partition("\r\n")[0], answer
        return dict(json.loads(answer))

    async def close(self) -> None:
        """Go away."""
        if self._streams is not None:
            self._streams[1].close()
            with suppress(ConnectionError):
                await self._streams[1].wait_closed()


def memory_mb(pid: int) -> float:
    """What a process has in memory."""
    pages = int(Path(f"/proc/{pid}/statm").read_text("ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def cpu_seconds(pids: list[int]) -> float:
    """The processor time of processes that still live."""
    total = 0
    for pid in pids:
        with suppress(OSError):
            total += int(Path(f"/proc/{pid}/schedstat").read_text("ascii").split()[0])
    return total / 1e9


async def at_work(pid: int) -> bool:
    """Whether a process takes more than a tenth of a processor, as of half a second."""
    before = cpu_seconds([pid])
    await asyncio.sleep(0.5)
    return cpu_seconds([pid]) - before > 0.05


async def backends(conn: asyncpg.Connection) -> list[int]:
    """The server's processes for this database, without this connection."""
    rows = await conn.fetch(
        "select pid from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
    )
    return [row["pid"] for row in rows]


async def crowd(url: str, count: int, stack: AsyncExitStack) -> list[Caller]:
    """Workers that are known to the server."""
    host, _, port = url.rpartition("/")[2].partition(":")
    callers = [Caller(host, int(port), number) for number in range(count)]
    for caller in callers:
        stack.push_async_callback(caller.close)
    for start in range(0, count, 50):
        await asyncio.gather(*(caller.call("pull", types=["work"]) for caller in callers[start : start + 50]))
    return callers


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.timeout(300)
async def test_a_crowd_waits_at_one_process_and_a_job_reaches_one_of_them_at_once(
    database_url: str, conn: asyncpg.Connection, deeds: Deeds
) -> None:
    raise_descriptors()
    arrived: dict[str, float] = {}
    taken: set[str] = set()

    async def work(caller: Caller) -> None:
        while len(taken) < JOBS:
            for job in (await caller.call("pull", types=["work"], wait_sec=30))["jobs"]:
                arrived[job["job_id"]] = time.monotonic()
                await caller.call("report", job_id=job["job_id"], attempt=job["attempt"], done=True)
                taken.add(job["job_id"])

    with listen("127.0.0.1", 0) as listener:
        async with servers(listener, database_url, [0]) as (server,), AsyncExitStack() as stack:
            before = memory_mb(server.pid)
            callers = await crowd(address(listener), CROWD, stack)
            tasks = [asyncio.create_task(work(caller)) for caller in callers]
            async with asyncio.timeout(60):
                while (descriptors := len(os.listdir(f"/proc/{server.pid}/fd"))) < CROWD:  # noqa: PTH208 - counted
                    await asyncio.sleep(0.1)
            while await at_work(server.pid):
                pass
            connections = len(await backends(conn))
            used = memory_mb(server.pid) - before
            async with Holdfast(database_url) as hf:
                sent: dict[str, float] = {}
                for _ in range(JOBS):
                    began = time.monotonic()
                    sent[str((await hf.enqueue("work", {})).id)] = began
                    await asyncio.sleep(0.02)
                async with asyncio.timeout(30):
                    while len(taken) < JOBS:
                        await asyncio.sleep(0.01)
            delays = sorted(arrived[job] - sent[job] for job in sent)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    median = statistics.median(delays) * 1000
    deeds.say(
        f"{CROWD} waiting workers: {used:.0f} MB, {descriptors} descriptors, {connections} database connections; "
        f"from enqueue to worker {median:.1f} ms at the median, {delays[int(len(delays) * 0.95)] * 1000:.1f} ms at 95 %"
    )
    assert used < CROWD * 0.1 + 30, f"{used:.0f} MB"
    assert descriptors < CROWD + 64
    assert connections <= 16
    assert median < 50 or not CHAOS_SECONDS, f"{median:.1f} ms"
    assert median < 200, f"{median:.1f} ms"


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.timeout(300)
async def test_idle_workers_cost_the_database_no_more_than_one_python_worker(
    database_url: str, conn: asyncpg.Connection, deeds: Deeds
) -> None:
    raise_descriptors()
    seconds = 40.0 if CHAOS_SECONDS else 4.0

    async def cost() -> float:
        pids = await backends(conn)
        began = cpu_seconds(pids)
        await asyncio.sleep(seconds)
        return (cpu_seconds(pids) - began) / seconds * 1000

    async with Holdfast(database_url) as hf:

        @hf.job("work")
        async def work(_ctx: Context) -> None:
            """Never called."""

        running = asyncio.create_task(hf.run_worker(maintenance=False))
        await hf.wait(await hf.enqueue("work", {}), timeout=20)  # so that there is a stream to look at
        await asyncio.sleep(1)
        python = await cost()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    with listen("127.0.0.1", 0) as listener:
        async with servers(listener, database_url, [0]), AsyncExitStack() as stack:
            callers = await crowd(address(listener), IDLE, stack)

            async def wait(caller: Caller) -> None:
                number = 0
                while True:
                    number += 1
                    await caller.call("pull", types=["work"], wait_sec=20 + number % 7, request_id=f"r{number}")

            tasks = [asyncio.create_task(wait(caller)) for caller in callers]
            await asyncio.sleep(2)
            remote = await cost()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    deeds.say(f"{IDLE} idle remote workers cost the database {remote:.2f} ms/s, one Python worker {python:.2f} ms/s")
    assert remote < python * (1.5 if CHAOS_SECONDS else 3) + 0.5


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.timeout(300)
async def test_pulls_and_reports_in_batches(database_url: str, conn: asyncpg.Connection, deeds: Deeds) -> None:
    count, at_once, workers = (10_000, 50, 8) if CHAOS_SECONDS else (1_000, 50, 4)
    async with Holdfast(database_url) as hf:
        await hf.enqueue_many([("work", {})] * count)
    done = 0

    async def work(caller: Caller) -> None:
        nonlocal done
        number = 0
        while done < count - workers:  # the crowd was given one each
            number += 1
            pulled = await caller.call("pull", types=["work"], max=at_once, request_id=f"r{number}")
            reports = [{"job_id": job["job_id"], "attempt": job["attempt"], "done": True} for job in pulled["jobs"]]
            if reports:
                told = (await caller.call("report", reports=reports))["results"]
                assert {one["state"] for one in told} == {"success"}
                done += len(reports)

    with listen("127.0.0.1", 0) as listener:
        async with servers(listener, database_url, [0]) as (server,), AsyncExitStack() as stack:
            callers = await crowd(address(listener), workers, stack)
            pids, began = await backends(conn), time.monotonic()
            before = cpu_seconds([server.pid]), cpu_seconds(pids)
            await asyncio.gather(*(work(caller) for caller in callers))
            seconds = time.monotonic() - began
            server_us, database_us = ((a - b) * 1e6 / count for a, b in zip(
                (cpu_seconds([server.pid]), cpu_seconds(pids)), before, strict=True
            ))  # fmt: skip
    deeds.say(
        f"{workers} workers, pulls and reports of {at_once}: {count / seconds:.0f} jobs/s; a job takes processor time: "
        f"{server_us:.0f} µs of the API process and {database_us:.0f} µs of the database"
    )
    assert await conn.fetchval("select count(*) from jobs where state = 'success'") >= count - workers

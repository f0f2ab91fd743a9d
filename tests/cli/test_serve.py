"""`holdfast serve` as a process: how it stops, and what many open streams cost."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import time
from pathlib import Path

import asyncpg
import httpx

from holdfast import Holdfast
from tests.cli.conftest import Running, Start
from tests.harness.waiting import until

STREAMS, DELAY_SECONDS = 200, 3


async def server_of(serve: Running) -> str:
    """Wait until it serves; its URL."""
    await serve.wrote("serves on")
    found = re.search(r"http://127\.0\.0\.1:\d+", serve.text)
    assert found is not None
    return found[0]


async def ready(url: str) -> int:
    """What a load balancer sees, which opens a connection for each look."""
    async with httpx.AsyncClient(base_url=url) as client:
        return (await client.get("/readyz")).status_code


def memory(process: int) -> int:
    """How many bytes it has in memory."""
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * 4096


async def test_before_a_server_stops_it_says_so_and_ends_its_streams(
    start: Start, hf: Holdfast, conn: asyncpg.Connection
) -> None:
    job = await hf.enqueue("nobody.runs.this", {}, delay=3600)
    serve = start("serve", "--port", 0, HOLDFAST_SHUTDOWN_DELAY_SECONDS=str(DELAY_SECONDS))
    url = await server_of(serve)
    limits = httpx.Limits(max_connections=None)
    heard: list[str] = []

    async def hear() -> None:
        async with client.stream("GET", f"/jobs/{job.id}/events") as stream:
            assert stream.status_code == 200
            number = len(heard)
            heard.append("")
            async for text in stream.aiter_text():
                heard[number] += text

    async with httpx.AsyncClient(base_url=url, limits=limits, timeout=30) as client, asyncio.TaskGroup() as group:
        assert (await client.post("/jobs", json={"jobType": "x"})).status_code == 202
        assert await ready(url) == 200
        before = memory(serve.process.pid)
        for _ in range(STREAMS):
            group.create_task(hear())
        await until(lambda: sum("data: " in text for text in heard) == STREAMS, what="all streams have begun")
        assert memory(serve.process.pid) - before < STREAMS * 300_000
        ours = "select count(*) from pg_stat_activity where datname = current_database() and application_name = $1"
        assert await conn.fetchval(ours, "holdfast client") <= 4

        serve.process.send_signal(signal.SIGTERM)
        told = time.monotonic()
        while await ready(url) != 503:  # raises if it stops accepting first
            pass
        late = await client.post("/jobs", json={"jobType": "x"})
        assert late.status_code == 202
        assert not any(text.count("data: ") != 1 for text in heard)
    # The streams ended as they should, or the group would have raised: and not before the delay was over.
    assert DELAY_SECONDS - 0.1 < time.monotonic() - told < DELAY_SECONDS + 8
    assert await serve.ended() == 0
    for text in heard:
        assert text.endswith("\n\n")
        (data,) = re.findall(r"data: (.*)\n\n", text)
        assert json.loads(data)["status"] == "PENDING"
    assert (await hf.get(late.json()["jobId"])).state == "queued"


async def test_a_second_signal_ends_the_delay(start: Start) -> None:
    serve = start("serve", "--port", 0, HOLDFAST_SHUTDOWN_DELAY_SECONDS="600")
    url = await server_of(serve)
    serve.process.send_signal(signal.SIGTERM)
    async with asyncio.timeout(10):
        while await ready(url) != 503:
            await asyncio.sleep(0.01)
    serve.process.send_signal(signal.SIGTERM)
    assert await serve.ended(10) == 0

"""A server without room: its disk, its WAL's disk, or its connections. Accepted jobs stay, and it recovers."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg
import httpx
import pytest

from holdfast import Holdfast
from holdfast.errors import DatabaseUnavailable
from holdfast.store.embedded import EmbeddedPostgres
from holdfast.web import health
from tests.faults.test_hostile_server import an_app, served
from tests.harness.homes import copy_home, new_folder
from tests.harness.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


@pytest.fixture(autouse=True)
def _readiness_is_always_new(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "_FRESH_SECONDS", 0.0)


@pytest.fixture
def home() -> Iterator[Path]:
    """A folder of the test's own, which the server's user may enter."""
    folder = new_folder("hf-full-")
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def small(home: Path) -> Iterator[Path]:
    """A small file system."""
    folder = home / "small"
    folder.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=160m", "tmpfs", str(folder)], capture_output=True, text=True, check=False
    )
    if made.returncode:
        pytest.skip(f"a small file system can be made by root alone: {made.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=False)


async def test_running_out_of_connections_is_reported_and_recovered_from(home: Path) -> None:
    few = {"max_connections": "16", "superuser_reserved_connections": "0"}
    server = EmbeddedPostgres(copy_home(home), settings=few)
    async with running(server):
        app = an_app(server.url)
        async with app, served(app) as client:
            worker = asyncio.create_task(app.run_worker(poll_interval=0.2))
            first = await client.post("/jobs", json={"jobType": "work", "payload": {"number": 1}})
            await app.wait(first.json()["jobId"], timeout=20)
            others = []
            with contextlib.suppress(asyncpg.TooManyConnectionsError):
                while True:
                    others.append(await asyncpg.connect(server.url))
            # Sessions that have a connection go on with it.
            answers = await asyncio.gather(
                *(client.post("/jobs", json={"jobType": "work", "payload": {"number": n}}) for n in range(20))
            )
            assert {answer.status_code for answer in answers} == {202}
            with pytest.raises(DatabaseUnavailable, match="no connection left") as told:
                async with Holdfast(server.url):
                    pass
            assert told.value.reason == "connections"
            for other in others:
                await other.close()
            last = answers[-1].json()["jobId"]
            assert (await app.wait(last, timeout=20)).result == 19
            await _end(worker)


async def test_a_full_disk_is_reported_and_recovered_from(small: Path) -> None:
    server = EmbeddedPostgres(copy_home(small / "home"))
    async with running(server, wal=small.parent / "wal"):
        app = an_app(server.url)
        async with app, served(app) as client:
            accepted = [await _post(client, "before")]
            assert (await client.get("/readyz")).status_code == 200
            filler = _fill(small)

            async def said() -> bool:
                # A statement that runs out of time first is refused as well: it is not known then what became of it.
                refused = await _refused(client, accepted)
                assert refused is None or refused.status_code == 503
                return refused is not None and "disk is full" in refused.json()["detail"]

            await until(said, what="there is no room")

            async def told() -> bool:
                await _refused(client, accepted)  # what little was left, or fell free, is used up
                ready = await client.get("/readyz")
                return ready.status_code == 503 and "disk is full" in ready.text

            await until(told, seconds=10, what="it is not ready")
            filler.unlink()
            began = time.monotonic()
            accepted.append(await until(lambda: _post(client, "after"), seconds=30))
            assert time.monotonic() - began < 10
            assert (await client.get("/readyz")).status_code == 200
            assert {job.id for job in await app.find(limit=1000)} >= {_id(job) for job in accepted}


async def test_a_full_wal_disk_is_reported_and_recovered_from(small: Path) -> None:
    server = EmbeddedPostgres(copy_home(small.parent / "home"), settings={"min_wal_size": "32MB", "wal_recycle": "off"})
    async with running(server, wal=small / "wal"):
        app = an_app(server.url)
        async with app, served(app) as client:
            accepted = [await _post(client, "before")]
            filler = _fill(small)
            await until(lambda: _refused(client, accepted), what="there is no room", seconds=60)

            async def unready() -> bool:
                return (await client.get("/readyz")).status_code == 503

            await until(unready, what="it is not ready")
            words: list[str] = []

            async def clear() -> bool:
                try:
                    await app.enqueue("large")
                except DatabaseUnavailable as fault:
                    words.append(str(fault))
                return any("is it running?" in word for word in words)

            await until(clear, what=f"the server that is gone is named: {words}")
            assert not any("Errno" in word for word in words)
            filler.unlink()
            accepted.append(await until(lambda: _post(client, "after"), seconds=60))
            assert (await client.get("/readyz")).status_code == 200
            assert {job.id for job in await app.find(limit=1000)} >= {_id(job) for job in accepted}


@contextlib.asynccontextmanager
async def running(server: EmbeddedPostgres, wal: Path | None = None) -> AsyncIterator[None]:
    """The server with the engine in it, its WAL elsewhere if wanted."""
    if wal is not None:
        data = server._data / "pg_wal"
        subprocess.run(["cp", "-a", str(data), str(wal)], check=True)
        shutil.rmtree(data)
        data.symlink_to(wal)
    await asyncio.to_thread(server.start)
    try:
        yield
    finally:
        await asyncio.to_thread(server.stop)


def _fill(folder: Path) -> Path:
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(os.urandom(65536))
    return filler


async def _post(client: httpx.AsyncClient, key: str) -> httpx.Response | None:
    answer = await client.post("/jobs", json={"jobType": "work", "payload": {"number": 1}, "idempotencyKey": key})
    return answer if answer.status_code == 202 else None


async def _refused(client: httpx.AsyncClient, accepted: list[httpx.Response | None]) -> httpx.Response | None:
    """Jobs with much in them, until one is refused."""
    text = os.urandom(200_000).hex()
    answer = await client.post("/jobs", json={"jobType": "large", "payload": {"text": text}})
    if answer.status_code != 202:
        return answer
    accepted.append(answer)
    return None


def _id(answer: httpx.Response | None) -> UUID:
    assert answer is not None
    return UUID(answer.json()["jobId"])


async def _end(worker: asyncio.Task[Any]) -> None:
    worker.cancel()
    await asyncio.gather(worker, return_exceptions=True)

"""A job answered with 202 exists, exactly once, whichever process is killed: a server, or PostgreSQL."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import httpx
import pytest

from holdfast import Holdfast, HttpClient
from holdfast.store.embedded import EmbeddedPostgres
from holdfast.web.server import address, listen
from tests.conftest import CHAOS_SECONDS
from tests.faults.conftest import crash
from tests.harness import warm
from tests.harness.deeds import Deeds

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

CRASHES = 3 if CHAOS_SECONDS else 2


@contextlib.asynccontextmanager
async def servers(listener: socket.socket, url: str, deaths: list[int]) -> AsyncIterator[list[warm.Process]]:
    """API processes that share a listener; each dies after this many commits (0: never)."""
    number = listener.fileno()
    with os.fdopen(2, "wb", closefd=False) as stderr:
        processes = [
            warm.Process(
                ["-m", "tests.faults.serving", str(number), str(death)],
                pass_fds=[number],
                env={**os.environ, "HOLDFAST_DATABASE_URL": url},
                stdout=stderr,
            )
            for death in deaths
        ]
    try:
        await _ready(address(listener))
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.wait()


async def _ready(url: str) -> None:
    async with httpx.AsyncClient(base_url=url, timeout=5) as client, asyncio.timeout(60):
        while True:
            with contextlib.suppress(httpx.TransportError):
                if (await client.get("/readyz")).status_code == 200:
                    return
            await asyncio.sleep(0.05)


async def post(client: httpx.AsyncClient, body: dict[str, Any]) -> str:
    """As a careful client does: the same again until there is an answer."""
    async with asyncio.timeout(90):
        while True:
            with contextlib.suppress(httpx.TransportError):
                answer = await client.post("/jobs", json=body)
                if answer.status_code == 202:
                    return str(answer.json()["jobId"])
                assert answer.status_code == 503, answer.text
            await asyncio.sleep(0.05)


async def test_five_hundred_of_one_key_with_servers_killed_between_commit_and_answer(
    hf: Holdfast, database_url: str, deeds: Deeds
) -> None:
    body = {"jobType": "pay", "payload": {"amount": 7}, "idempotencyKey": "order-1"}
    # Each with few connections: to choose among its own, a client looks at all of them for every request.
    limits = httpx.Limits(max_connections=20)
    with listen("127.0.0.1", 0) as listener:
        url = address(listener)
        async with servers(listener, database_url, [1, 3, 0]) as processes:
            async with contextlib.AsyncExitStack() as stack:
                clients = [
                    await stack.enter_async_context(httpx.AsyncClient(base_url=url, timeout=10, limits=limits))
                    for _ in range(25)
                ]
                ids = await asyncio.gather(*(post(client, body) for client in clients for _ in range(20)))
                async with asyncio.timeout(30):
                    # Those that are to die must have had their share; the last one lives on.
                    while processes[0].poll() is None or processes[1].poll() is None:
                        ids += await asyncio.gather(*(post(client, body) for client in clients for _ in range(2)))
                ids += [await post(clients[0], body) for _ in range(3)]
            assert processes[2].poll() is None
    deeds.say(f"{len(ids)} submissions of one key, 2 servers killed")
    assert len(set(ids)) == 1
    jobs = await hf.find(limit=1000)
    assert [str(job.id) for job in jobs] == [ids[0]]


async def test_a_server_that_stands_still_costs_patience_but_no_job_twice(
    hf: Holdfast, database_url: str, deeds: Deeds
) -> None:
    with listen("127.0.0.1", 0) as listener:
        async with (
            servers(listener, database_url, [0, 0]) as processes,
            contextlib.AsyncExitStack() as stack,
        ):
            clients = [
                await stack.enter_async_context(HttpClient(address(listener), timeout=1, patience=60))
                for _ in range(20)
            ]

            async def submit(client: HttpClient, number: int) -> list[UUID]:
                return [(await client.submit("x", {"n": number})).id for _ in range(10)]

            jobs = await asyncio.gather(*(submit(client, 0) for client in clients))  # each server has some of them
            frozen = [asyncio.create_task(submit(client, 1)) for client in clients]
            while not any(task.done() for task in frozen):
                processes[0].send_signal(signal.SIGSTOP)
                await asyncio.sleep(0.05)
            jobs += await asyncio.gather(*frozen)
            processes[0].send_signal(signal.SIGCONT)
            jobs += await asyncio.gather(*(submit(client, 2) for client in clients))
            async with httpx.AsyncClient(base_url=address(listener)) as probe:
                assert (await probe.get("/readyz")).status_code == 200
    stored = await hf.find(types=["x"], limit=10_000)
    deeds.say(f"{len(stored)} jobs, a server frozen until its clients went elsewhere")
    assert sorted(job for some in jobs for job in some) == sorted(job.id for job in stored)


async def test_every_accepted_job_survives_the_kill_of_postgresql(server: EmbeddedPostgres, deeds: Deeds) -> None:
    accepted: list[str] = []
    stop = asyncio.Event()

    async def keep_posting(client: httpx.AsyncClient, number: int) -> None:
        count = 0
        while not stop.is_set():
            count += 1
            key = {"idempotencyKey": f"{number}-{count}"} if number % 2 else {}
            accepted.append(await post(client, {"jobType": "x", **key}))

    with listen("127.0.0.1", 0) as listener:
        async with (
            servers(listener, server.url, [0, 0]),
            httpx.AsyncClient(base_url=address(listener), timeout=30) as client,
            asyncio.TaskGroup() as group,
        ):
            for number in range(20):
                group.create_task(keep_posting(client, number))
            for _ in range(CRASHES):
                before = len(accepted)
                while len(accepted) < before + 100:
                    await asyncio.sleep(0.01)
                await crash(server)
            before = len(accepted)
            while len(accepted) < before + 100:
                await asyncio.sleep(0.01)
            stop.set()
    async with Holdfast(server.url) as hf:
        stored = {job.id for job in await hf.find(limit=10_000)}
    deeds.say(f"{len(accepted)} jobs accepted, PostgreSQL killed {CRASHES} times")
    assert {UUID(job) for job in accepted} <= stored
    assert len(accepted) == len(set(accepted))

"""What callers send at once is bounded, and what one tenant sends costs others nothing."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import httpx
import pytest

from holdfast import Holdfast
from holdfast.web.bounded import Bounded
from holdfast.web.control.schemas import Submission
from holdfast.web.rooms import Rooms
from tests.web.conftest import KeyMaker
from tests.web.test_bounded import GET, port, send, serving

__all__ = ["port"]

JSON = {"content-type": "application/json"}
BLOCKED = "select count(*) from pg_locks where not granted and pg_backend_pid() = any (pg_blocking_pids(pid))"
LARGE = {"jobType": "x", "payload": {"text": "x" * 100_000}, "hold": True}


async def test_bodies_under_way_are_bounded_per_tenant_and_others_have_room(
    client: httpx.AsyncClient, key: KeyMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.web.rooms._PATIENCE_SECONDS", 0.3)
    greedy, modest = await key("submit", tenant="greedy"), await key("submit", tenant="modest")
    go_on, begun = asyncio.Event(), asyncio.Semaphore(0)

    async def slowly() -> AsyncIterator[bytes]:
        yield b'{"jobType": "x", '
        begun.release()
        await go_on.wait()
        yield b'"hold": true}'

    async with asyncio.timeout(20):
        # The size is not announced: each may become as large as any.
        stalled = [asyncio.create_task(client.post("/jobs", content=slowly(), headers=greedy | JSON)) for _ in range(4)]
        for _ in stalled:
            await begun.acquire()
        more = await client.post("/jobs", json={"jobType": "x"}, headers=greedy)
        assert (more.status_code, more.json()["code"]) == (503, "unavailable"), more.text
        assert more.headers["retry-after"] == "1"
        assert (await client.post("/jobs", json=LARGE, headers=modest)).status_code == 202
        waiting = asyncio.create_task(client.post("/jobs", json=LARGE, headers=greedy))
        await asyncio.sleep(0)
        go_on.set()
        assert [answer.status_code for answer in await asyncio.gather(*stalled)] == [202] * 4
        assert (await waiting).status_code == 202
        assert (await client.post("/jobs", json={"jobType": "x"}, headers=greedy)).status_code == 202


async def test_large_requests_are_recorded_in_turns_and_small_ones_are_not_held_up(
    client: httpx.AsyncClient, key: KeyMaker, conn: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.client.turns._TURN_SECONDS", 0.1)
    greedy, modest = await key("submit", tenant="greedy"), await key("submit", tenant="modest")
    batch = {"jobs": [{"jobType": "x", "hold": True, "payload": {"number": n}} for n in range(200)]}
    async with asyncio.timeout(20):
        async with conn.transaction():
            await conn.execute("select enqueue('x', '{}', tenant => 'greedy', idempotency_key => 'k', hold => true)")
            first = asyncio.create_task(client.post("/jobs", json=LARGE | {"idempotencyKey": "k"}, headers=greedy))
            while not await conn.fetchval(BLOCKED):
                await asyncio.sleep(0.01)
            for path, body in (("/jobs", LARGE), ("/jobs/batch", batch)):
                assert (await client.post(path, json=body, headers=greedy)).status_code == 503
                assert (await client.post(path, json=body, headers=modest)).status_code == 202
            assert (await client.post("/jobs", json={"jobType": "x"}, headers=greedy)).status_code == 202
            assert not first.done()
        assert (await first).status_code == 422  # the key belongs to a job of another payload
        assert (await client.post("/jobs/batch", json=batch, headers=greedy)).status_code == 202


async def test_a_submission_that_waits_for_its_job_keeps_nothing_of_its_body(
    client: httpx.AsyncClient, key: KeyMaker, hf: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    for patience in ("web.rooms._PATIENCE_SECONDS", "client.turns._TURN_SECONDS"):
        monkeypatch.setattr(f"holdfast.{patience}", 60.0)  # a slow machine takes long to record so much
    caller = await key("submit", "read")
    waits = [client.post("/jobs", json=LARGE, headers=caller | {"prefer": "wait=10"}) for _ in range(45)]
    tasks = [asyncio.create_task(wait) for wait in waits]  # 45 × 100 kB are more than a tenant has room for
    control = await hf.control()
    async with asyncio.timeout(60):
        while len(control._watcher._waiting) < len(tasks):
            await asyncio.sleep(0.01)
        gc.collect()
        assert [one for one in gc.get_objects() if type(one) is Submission] == []
        assert {answer.status_code for answer in await asyncio.gather(*tasks)} == {202}


async def test_a_body_that_has_no_room_is_not_read(port: int, key: KeyMaker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.web.rooms._OF_ONE", 0)
    monkeypatch.setattr("holdfast.web.rooms._PATIENCE_SECONDS", 1.0)
    secret = (await key("submit"))["Authorization"].encode()
    head = b"POST /jobs HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nAuthorization: %b\r\n" % secret
    body = json.dumps({"jobType": "x", "payload": {"text": "x" * 900_000}}).encode()
    sent = asyncio.create_task(send(port, [head + b"Content-Length: %d\r\n\r\n" % len(body) + body]))
    async with asyncio.timeout(20):
        while not (held := [one for one in gc.get_objects() if _is_paused(one)]):
            await asyncio.sleep(0.01)
        assert len(held[0].cycle.body) + len(held[0]._waiting) <= 32 * 1024
        status, _ = await sent
    assert status == 503


async def test_large_headers_of_all_connections_are_bounded_and_small_ones_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("holdfast.web.heads._HEADS_LIMIT", 200_000)
    async with serving(Holdfast("postgresql://127.0.0.1:1/nothing")) as port, asyncio.timeout(20):
        opened = []
        for _ in range(4):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(GET + b"X: " + b"a" * 50_000)
            await writer.drain()
            opened.append((reader, writer))
        while Bounded._heads < 4 * 40_000:
            await asyncio.sleep(0.01)
        status, answer = await send(port, [GET + b"X: " + b"a" * 50_000])
        assert (status, b"Too many large headers" in answer) == (503, True)
        assert (await send(port, [GET + b"\r\n"]))[0] == 200
        for _, writer in opened[:2]:
            writer.write(b"\r\nConnection: close\r\n\r\n")
        for reader, _ in opened[:2]:
            assert (await reader.read()).startswith(b"HTTP/1.1 200")
        for _, writer in opened:
            writer.close()
        while Bounded._heads:
            await asyncio.sleep(0.01)
        assert (await send(port, [GET + b"X: " + b"a" * 50_000 + b"\r\n\r\n"]))[0] == 200
    with contextlib.suppress(ConnectionError):
        for _, writer in opened:
            await writer.wait_closed()


def _is_paused(one: Any) -> bool:
    """Asked of its type: other libraries' lazy objects begin to work when they are asked for their class."""
    return issubclass(type(one), Bounded) and one.flow is not None and one.flow.read_paused


async def test_room_that_is_given_back_while_somebody_gives_up_harms_neither() -> None:
    """The request that gave it back failed: the one that waited had just been canceled, and was still in line."""
    rooms, size = Rooms(), 4 * 1024 * 1024
    async with contextlib.AsyncExitStack() as first:
        await first.enter_async_context(rooms.room("acme", size))
        second = asyncio.create_task(rooms.room("acme", size).__aenter__())
        await asyncio.sleep(0)
        assert rooms._waiting
        second.cancel()
    assert await asyncio.gather(second, return_exceptions=True)
    async with asyncio.timeout(1), rooms.room("acme", size):
        assert not rooms._waiting

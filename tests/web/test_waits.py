"""Callers who leave before their answer, against a real server; and addresses with a slash too many."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx

from holdfast import Holdfast
from holdfast.web.server import Server, listen
from holdfast.web.state import State
from tests.web.test_auth import ROUTES
from tests.web.test_jobs import is_problem

BODY = b'{"jobType": "x", "delay": 3600}'


async def until(state: State, waiting: int) -> None:
    async with asyncio.timeout(10):
        while state._waiting.total() != waiting:
            await asyncio.sleep(0.01)


async def test_who_leaves_gives_up_the_place(hf: Holdfast) -> None:
    job = await hf.enqueue("x", {}, delay=3600)
    heads = [f"GET /jobs/{job.id}", f"GET /jobs/{job.id}/result", "POST /jobs"]
    server: Any = Server(hf)
    state: State = server._app.state.holdfast
    with listen("127.0.0.1", 0) as listener:
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        for head in heads:
            body = BODY if head.startswith("POST") else b""
            fields = "Host: 127.0.0.1\r\nPrefer: wait=60\r\nContent-Type: application/json"
            _, writer = await asyncio.open_connection("127.0.0.1", listener.getsockname()[1])
            writer.write(f"{head} HTTP/1.1\r\n{fields}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
            await until(state, 1)
            writer.close()
            await until(state, 0)
        server.stop()
        await serving


async def test_who_stays_is_answered_with_the_end(hf: Holdfast, client: httpx.AsyncClient) -> None:
    job = await hf.enqueue("x", {}, delay=3600)
    state = client._transport.app.state.holdfast  # type: ignore[attr-defined]
    call = asyncio.create_task(client.get(f"/jobs/{job.id}", headers={"Prefer": "wait=30"}))
    await until(state, 1)
    async with hf.maintaining():
        await hf.cancel(job)
        assert (await call).json()["status"] == "CANCELED"
    assert state._waiting.total() == 0


async def test_no_address_is_redirected(hf: Holdfast, client: httpx.AsyncClient) -> None:
    evil = {"Host": "evil.example"}
    for method, path, _ in ROUTES:
        for address in (f"{path}/", path.removesuffix("/")):
            answer = await client.request(method, address, headers=evil)
            assert "location" not in answer.headers, (method, address)
            assert not answer.is_redirect
    is_problem(await client.post("/jobs/", headers=evil), 404, "not-found")

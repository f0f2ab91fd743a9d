"""Streams and waits: callers who leave, keys that end meanwhile, places; and addresses with a slash too many."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import httpx
import pytest

from holdfast import Holdfast
from holdfast.client.keyring import Keyring
from holdfast.store.keys import KeyStore
from holdfast.web.server import Server, listen
from holdfast.web.state import AppState
from tests.web.conftest import KeyMaker
from tests.web.test_auth import ROUTES
from tests.web.test_jobs import is_problem

BODY = b'{"jobType": "x", "delay": 3600}'


async def until(state: AppState, waiting: int) -> None:
    async with asyncio.timeout(10):
        while state._waiting.total() != waiting:
            await asyncio.sleep(0.01)


async def test_who_leaves_gives_up_the_place(hf: Holdfast) -> None:
    job = await hf.enqueue("x", {}, delay=3600)
    heads = [f"GET /jobs/{job.id}", f"GET /jobs/{job.id}/result", "POST /jobs"]
    server: Any = Server(hf)
    state: AppState = server._app.state.holdfast
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


async def revoke(hf: Holdfast, key_id: Any) -> None:
    await (await hf.operations()).keys.revoke(key_id, by="a test")


async def rotate(hf: Holdfast, key_id: Any) -> None:
    await (await hf.operations()).keys.rotate(key_id, overlap=timedelta(0), by="a test")


async def let_expire(_hf: Holdfast, _key_id: Any) -> None:
    """It does so by itself."""


@pytest.mark.parametrize(("end", "lifetime"), [(revoke, None), (rotate, None), (let_expire, timedelta(seconds=2))])
async def test_streams_and_waits_end_with_their_key(
    hf: Holdfast,
    client: httpx.AsyncClient,
    end: Callable[[Holdfast, Any], Awaitable[None]],
    lifetime: timedelta | None,
) -> None:
    state = client._transport.app.state.holdfast  # type: ignore[attr-defined]
    job = await hf.enqueue("x", {}, delay=3600)
    keys = (await hf.operations()).keys
    key, secret = await keys.create("k", scopes=["submit", "read"], lifetime=lifetime, by="a test")
    who = {"Authorization": f"Bearer {secret}", "Prefer": "wait=60"}
    stream = asyncio.create_task(client.get(f"/jobs/{job.id}/events", headers=who))
    waits = [
        asyncio.create_task(client.request(method, path, json=body, headers=who))
        for method, path, body in (
            ("GET", f"/jobs/{job.id}", None),
            ("GET", f"/jobs/{job.id}/result", None),
            ("POST", "/jobs", {"jobType": "posted", "delay": 3600}),
        )
    ]
    await until(state, 4)
    await end(hf, key.id)
    async with asyncio.timeout(8):  # streams last for a minute, and so do these waits
        answers = await asyncio.gather(*waits)
        assert (await stream).status_code == 200
    for answer in answers:
        is_problem(answer, 401, "bad-key")
    # Nobody must believe that nothing was recorded.
    (posted,) = await hf.find(types=["posted"])
    assert str(posted.id) in answers[2].json()["detail"]
    assert answers[2].headers["location"] == f"/jobs/{posted.id}"
    assert state._waiting.total() == 0
    assert (await hf.control()).keyring._ends == {}


async def test_nothing_is_told_to_a_key_that_has_ended(
    hf: Holdfast, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unnoticed(_keyring: Keyring, _secret: str | None) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(Keyring, "ended", unnoticed)
    state = client._transport.app.state.holdfast  # type: ignore[attr-defined]
    job = await hf.enqueue("x", {}, delay=3600)
    key, secret = await (await hf.operations()).keys.create("k", scopes=["read"], by="a test")
    who = {"Authorization": f"Bearer {secret}"}
    paths = ((f"/jobs/{job.id}", who | {"Prefer": "wait=60"}), (f"/jobs/{job.id}/events", who))
    calls = [asyncio.create_task(client.get(path, headers=headers)) for path, headers in paths]
    await until(state, 2)
    await revoke(hf, key.id)
    async with asyncio.timeout(10), hf.maintaining():
        while (await client.get(f"/jobs/{job.id}", headers=who)).status_code == 200:
            await asyncio.sleep(0.01)
        await hf.cancel(job)
        waited, streamed = await asyncio.gather(*calls)
    is_problem(waited, 401, "bad-key")
    assert "CANCELED" not in streamed.text


async def test_without_keys_those_who_wait_are_refused_once_there_is_one(
    hf: Holdfast, client: httpx.AsyncClient, key: KeyMaker
) -> None:
    state = client._transport.app.state.holdfast  # type: ignore[attr-defined]
    job = await hf.enqueue("x", {}, delay=3600)
    call = asyncio.create_task(client.get(f"/jobs/{job.id}", headers={"Prefer": "wait=60"}))
    await until(state, 1)
    await key("read")
    async with asyncio.timeout(8):
        is_problem(await call, 401, "no-key")


async def test_all_who_wait_with_a_key_share_the_looks_at_it(
    hf: Holdfast, client: httpx.AsyncClient, key: KeyMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = []
    find = KeyStore.find

    async def counted(self: KeyStore, digest: bytes) -> Any:
        looks.append(asyncio.get_running_loop().time())
        return await find(self, digest)

    monkeypatch.setattr(KeyStore, "find", counted)
    state = client._transport.app.state.holdfast  # type: ignore[attr-defined]
    job = await hf.enqueue("x", {}, delay=3600)
    who = await key("read")
    calls = [asyncio.create_task(client.get(f"/jobs/{job.id}/events", headers=who)) for _ in range(30)]
    await until(state, 30)
    async with asyncio.timeout(10):
        while len(looks) < 3:
            await asyncio.sleep(0.01)
    state.drain()
    await asyncio.gather(*calls)
    assert all(later - earlier > 0.9 for earlier, later in itertools.pairwise(looks)), looks


async def test_one_tenant_leaves_places_for_others_however_many_keys_it_has(
    hf: Holdfast, client: httpx.AsyncClient, key: KeyMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.web.state._WAITING", 8)
    monkeypatch.setattr("holdfast.web.state._WAITING_PER_KEY", 3)
    state = client._transport.app.state.holdfast  # type: ignore[attr-defined]
    calls: list[asyncio.Task[httpx.Response]] = []

    async def refusal(tenant: str, places: int) -> httpx.Response:
        """Of the call that comes when the tenant has so many places, each with a key of its own."""
        job = await hf.enqueue("x", {}, tenant=tenant, delay=3600)
        for _ in range(places):
            who = await key("read", tenant=tenant)
            calls.append(asyncio.create_task(client.get(f"/jobs/{job.id}/events", headers=who)))
            await until(state, len(calls))
        waiting = await key("read", tenant=tenant) | {"Prefer": "wait=1"}
        return await client.get(f"/jobs/{job.id}", headers=waiting)

    for tenant, places in (("greedy", 4), ("second", 2), ("third", 1)):
        refused = await refusal(tenant, places)
        if tenant == "greedy":
            assert "tenant" in is_problem(refused, 429, "streams-limit")["detail"]
        else:
            is_problem(refused, 503, "unavailable")
    assert (await refusal("modest", 0)).status_code == 200
    state.drain()
    assert {call.status_code for call in await asyncio.gather(*calls)} == {200}
    assert (state._waiting, state._waiting_of_tenant) == ({}, {})


async def test_no_address_is_redirected(hf: Holdfast, client: httpx.AsyncClient) -> None:
    evil = {"Host": "evil.example"}
    for method, path, _ in ROUTES:
        for address in (f"{path}/", path.removesuffix("/")):
            answer = await client.request(method, address, headers=evil)
            assert "location" not in answer.headers, (method, address)
            assert not answer.is_redirect
    is_problem(await client.post("/jobs/", headers=evil), 404, "not-found")

"""A page listens to one job without a key: with a token that is good for that job's events, and for nothing else."""

from __future__ import annotations

import asyncio
import base64
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import httpx
import pytest
from fastapi import FastAPI

from holdfast import Context, Holdfast, JobRef
from holdfast.integrations.fastapi import mount_control_plane
from holdfast.web.access import Access
from holdfast.web.impatient import Impatient
from holdfast.web.places import Places
from holdfast.web.state import AppState
from holdfast.web.steps import Steps
from tests.harness.waiting import until
from tests.web.conftest import KeyMaker
from tests.web.test_bounded import serving
from tests.web.test_jobs import is_problem


@pytest.fixture
async def done(hf: Holdfast) -> JobRef:
    """A job that has ended: its stream ends at once."""

    @hf.job("done")
    async def done(ctx: Context) -> None: ...

    job = await hf.enqueue("done", {}, tenant="acme")
    await hf.run_worker(burst=True)
    return job


async def test_a_token_opens_the_events_of_its_job_and_nothing_else(
    client: httpx.AsyncClient, hf: Holdfast, key: KeyMaker, done: JobRef
) -> None:
    mine = await key("read", tenant="acme")
    other = await hf.enqueue("x", {}, tenant="acme", delay=3600)
    answer = await client.post(f"/jobs/{done.id}/events/token", headers=mine)
    assert (answer.status_code, answer.headers["cache-control"]) == (201, "no-store")
    told = answer.json()
    assert told["url"] == f"/jobs/{done.id}/events?token={told['token']}"
    heard = await client.get(told["url"])
    assert heard.headers["content-type"].startswith("text/event-stream")
    assert '"status":"COMPLETED"' in heard.text
    for path in (f"/jobs/{other.id}/events", f"/jobs/{uuid4()}/events", "/jobs/nonsense/events"):
        is_problem(await client.get(path, params={"token": told["token"]}), 401, "bad-key")
    for path in (f"/jobs/{done.id}", f"/jobs/{done.id}/result", f"/jobs/{done.id}/items"):
        is_problem(await client.get(path, params={"token": told["token"]}), 401, "no-key")
    is_problem(await client.post(f"/jobs/{done.id}/events/token", params={"token": told["token"]}), 401, "no-key")


async def test_who_may_not_read_the_job_gets_no_token_for_it(
    client: httpx.AsyncClient, key: KeyMaker, done: JobRef
) -> None:
    path = f"/jobs/{done.id}/events/token"
    is_problem(await client.post(path, headers=await key("read", tenant="others")), 404, "not-found")
    is_problem(await client.post(path, headers=await key("submit", tenant="acme")), 403, "scope")
    mine = await key("read", tenant="acme")
    for seconds in (0, 3601, "600"):
        is_problem(await client.post(path, headers=mine, json={"seconds": seconds}), 422, "invalid")


async def test_neither_a_key_nor_anything_made_up_is_a_token(
    client: httpx.AsyncClient, key: KeyMaker, done: JobRef
) -> None:
    mine = await key("read", tenant="acme")
    token = (await client.post(f"/jobs/{done.id}/events/token", headers=mine)).json()["token"]
    raw = bytearray(base64.urlsafe_b64decode(token + "="))
    forged = []
    for place in (0, 23, 24, 55):  # the key, the time, both ends of the seal
        changed = bytearray(raw)
        changed[place] ^= 1
        forged.append(base64.urlsafe_b64encode(changed).decode().rstrip("="))
    for wrong in (*forged, mine["Authorization"].split()[1], "", "x", token[:-4], f"{token}AAAA", "ä", "\x00"):
        is_problem(await client.get(f"/jobs/{done.id}/events", params={"token": wrong}), 401, "bad-key")


async def test_a_token_and_its_streams_end_with_its_time_and_with_its_key(
    client: httpx.AsyncClient, hf: Holdfast
) -> None:
    job = await hf.enqueue("x", {}, delay=3600)
    keys = (await hf.operations()).keys
    made, secret = await keys.create("k", scopes=["read"], by="a test")
    path, who = f"/jobs/{job.id}/events/token", {"Authorization": f"Bearer {secret}"}
    short = (await client.post(path, headers=who, json={"seconds": 1})).json()["url"]
    long = (await client.post(path, headers=who)).json()["url"]
    listening = asyncio.create_task(client.get(long))
    async with asyncio.timeout(10):
        assert (await client.get(short)).status_code == 200, "which is open until the token has ended"
        is_problem(await client.get(short), 401, "bad-key")
        await keys.revoke(made.id, by="a test")
        assert (await listening).status_code == 200
        is_problem(await client.get(long), 401, "bad-key")


async def test_without_keys_there_is_nothing_to_ask_for(client: httpx.AsyncClient, hf: Holdfast) -> None:
    job = await hf.enqueue("x", {})
    told = (await client.post(f"/jobs/{job.id}/events/token")).json()
    assert told == {"url": f"/jobs/{job.id}/events", "token": None, "expiresAt": None}


async def test_the_address_is_right_where_the_routes_are_mounted(hf: Holdfast) -> None:
    app = FastAPI()
    mount_control_plane(app, "/background", hf, guard=lambda: True)
    job = await hf.enqueue("x", {})
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as client:
        told = (await client.post(f"/background/jobs/{job.id}/events/token")).json()
    assert told["url"] == f"/background/jobs/{job.id}/events"


async def test_a_token_has_a_few_streams_and_takes_none_from_its_key_or_from_other_tokens(
    client: httpx.AsyncClient, hf: Holdfast, key: KeyMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.web.state._WAITING_PER_TOKEN", 2)
    monkeypatch.setattr("holdfast.web.state._WAITING_PER_KEY", 3)
    state: AppState = client._transport.app.state.holdfast  # type: ignore[attr-defined]
    job, mine = await hf.enqueue("x", {}, delay=3600), await key("read")
    events = f"/jobs/{job.id}/events"
    one, other = [
        (await client.post(f"{events}/token", headers=mine, json={"seconds": seconds})).json()["url"]
        for seconds in (600, 700)
    ]
    streams: list[asyncio.Task[httpx.Response]] = []

    async def opens(url: str, headers: dict[str, str] | None = None) -> None:
        streams.append(asyncio.create_task(client.get(url, headers=headers)))
        await until(lambda: state._waiting.total() == len(streams), seconds=10, what="it is open")

    for _ in range(2):
        await opens(one)
    assert "token" in is_problem(await client.get(one), 429, "streams-limit")["detail"]
    await opens(other)
    assert "tokens of a key" in is_problem(await client.get(other), 429, "streams-limit")["detail"]
    for _ in range(3):
        await opens(events, mine)
    refused = await client.get(events, headers=mine)
    assert "This key" in is_problem(refused, 429, "streams-limit")["detail"]
    state.drain()
    assert {answer.status_code for answer in await asyncio.gather(*streams)} == {200}
    assert (state._waiting, state._waiting_with_token, state._waiting_of_tenant) == ({}, {}, {})


async def test_what_is_sent_with_a_token_does_not_count_for_its_key(
    client: httpx.AsyncClient, key: KeyMaker, done: JobRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.web.limits._TOKEN_RATE", 2.0)
    monkeypatch.setattr("holdfast.web.limits._REMEMBERED", 2)
    monkeypatch.setattr("holdfast.web.limits.time", SimpleNamespace(monotonic=lambda: 1000.0))
    mine = await key("read", tenant="acme", requests_per_second=4)
    path = f"/jobs/{done.id}/events/token"
    urls = [(await client.post(path, headers=mine, json={"seconds": 600 + more})).json()["url"] for more in range(3)]
    for url in urls[:2]:
        assert [(await client.get(url)).status_code for _ in range(3)] == [200, 200, 429]
    told = is_problem(refused := await client.get(urls[0]), 429, "rate-limit")
    assert (told["detail"], refused.headers["retry-after"]) == ("This token may make 2 requests per second.", "1")
    assert (await client.get(f"/jobs/{done.id}", headers=mine)).status_code == 200
    assert (await client.get(f"/jobs/{done.id}", headers=mine)).status_code == 429  # its fifth request
    limits = client._transport.app.state.holdfast.auth._limits  # type: ignore[attr-defined]
    assert (await client.get(urls[2])).status_code == 200
    assert len(limits._tokens) == 2
    is_problem(await client.get(urls[0]), 429, "rate-limit")  # it was used after the one that was dropped


async def test_visitors_take_neither_time_nor_places_of_their_tenant(
    hf: Holdfast, key: KeyMaker, done: JobRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    parties, places = [], []
    turn, know = Steps.turn, Places.know

    def turned(steps: Steps, party: str, address: str = "", *, begun: bool = False) -> asyncio.Future[None] | None:
        parties.append(party)
        return turn(steps, party, address, begun=begun)

    def known(all_places: Places, connection: Impatient, tenant: str) -> bool:
        places.append(tenant)
        return know(all_places, connection, tenant)

    mine = await key("read", tenant="acme")
    async with serving(hf) as port, httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
        url = (await client.post(f"/jobs/{done.id}/events/token", headers=mine)).json()["url"]
        monkeypatch.setattr(Steps, "turn", turned)
        monkeypatch.setattr(Places, "know", known)
        assert (await client.get(url)).status_code == 200
        assert (set(parties), set(places)) == ({" visitors"}, {" visitors of acme"})
        parties.clear()
        assert (await client.get(f"/jobs/{done.id}", headers=mine)).status_code == 200
        assert set(parties) == {"acme"}


async def test_a_token_too_often_is_refused_before_the_framework_begins(
    client: httpx.AsyncClient, key: KeyMaker, done: JobRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = await key("read", tenant="acme")
    url = (await client.post(f"/jobs/{done.id}/events/token", headers=mine)).json()["url"]
    monkeypatch.setattr("holdfast.web.limits.time", SimpleNamespace(monotonic=lambda: 1.0))
    begun = 0
    serve = Access.__call__

    async def counted(access: Access, *args: Any) -> None:
        nonlocal begun
        begun += 1
        await serve(access, *args)

    monkeypatch.setattr(Access, "__call__", counted)
    answers = [await client.get(url) for _ in range(20)]
    assert [answer.status_code for answer in answers] == [200] * 8 + [429] * 12
    assert begun == 8
    refused = is_problem(answers[-1], 429, "rate-limit")
    assert refused["detail"] == "This token may make 8 requests per second."
    assert (answers[-1].headers["connection"], answers[-1].headers["retry-after"]) == ("close", "1")

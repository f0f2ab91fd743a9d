"""A page listens to one job without a key: with a token that is good for that job's events, and for nothing else."""

from __future__ import annotations

import asyncio
import base64
from uuid import uuid4

import httpx
import pytest
from fastapi import FastAPI

from holdfast import Context, Holdfast, JobRef
from holdfast.integrations.fastapi import mount_control_plane
from tests.web.conftest import KeyMaker
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

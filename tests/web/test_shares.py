"""What one tenant may keep in the server's memory: connections, answers that are made, answers that nobody reads."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import asyncpg
import httpx
import pytest

from holdfast import Holdfast
from holdfast.client.operations import Operations
from holdfast.web import answers as answering
from holdfast.web import places, unread
from holdfast.web.answers import Answers
from holdfast.web.description import describe
from holdfast.web.impatient import Impatient
from holdfast.web.problems import Problem
from holdfast.web.server import Server, listen
from tests.harness.waiting import until
from tests.sql.factories import run_one, settle
from tests.sql.test_letters import died
from tests.web.conftest import KeyMaker
from tests.web.test_bounded import Waiting, asked

PAYLOAD = {"text": "x" * 900_000}


class Connection:
    """One that says when it has to give way."""

    def __init__(self, gone: list[Connection]) -> None:
        self._gone = gone

    def give_way(self) -> None:
        self._gone.append(self)


def test_a_tenant_has_half_of_the_places_and_makes_room_among_its_own() -> None:
    gone: list[Any] = []
    taken = places.Places()
    taken.most = 8

    def new(tenant: str) -> Any:
        connection = cast("Any", Connection(gone))
        taken.take(connection)
        taken.begin(connection)
        return connection if taken.know(connection, tenant) else None

    beta = new("beta")
    taken.end(beta)
    first, second, third, fourth = (new("acme") for _ in range(4))
    assert new("acme") is None  # all are at work
    taken.stall(first)
    for connection in (third, second):
        taken.end(connection)
    assert all((new("acme"), new("acme"), new("acme")))
    assert gone == [third, second, first]  # the one that was idle for longest, then the other, then the unread one
    assert new("acme") is None
    assert new("beta") is not None
    assert taken.know(beta, "acme") is False  # the same connection with another tenant's key
    taken.leave(fourth)
    assert taken.know(beta, "acme") is True
    assert (taken._callers.count("acme"), taken._callers.count("beta")) == (4, 1)
    for connection in list(taken._taken):
        taken.leave(connection)
    assert (len(taken._callers), taken._callers._tenants) == (0, {})


@contextlib.contextmanager
def _places(most: int) -> Iterator[None]:
    before, Impatient.places.most = Impatient.places.most, most
    try:
        yield
    finally:
        Impatient.places.most = before


async def test_a_tenant_with_requests_on_all_its_connections_is_told_and_others_are_served(
    hf: Holdfast, key: KeyMaker
) -> None:
    acme, beta = await key("read", tenant="acme"), await key("read", tenant="beta")
    jobs = {tenant: (await hf.enqueue("x", {}, delay=3600, tenant=tenant)).id for tenant in ("acme", "beta")}
    server: Any = Server(hf)
    with listen("127.0.0.1", 0) as listener, _places(6):
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        base = f"http://127.0.0.1:{listener.getsockname()[1]}"
        async with httpx.AsyncClient(base_url=base) as client, asyncio.timeout(20):
            wait = {"Prefer": "wait=30"}
            waits = [asyncio.create_task(client.get(f"/jobs/{jobs['acme']}", headers=acme | wait)) for _ in range(3)]
            await until(
                lambda: server._app.state.holdfast._waiting.total() == 3, seconds=10, what="three requests wait"
            )
            unknown = await key("read", tenant="acme")  # to this server
            for headers in (acme, unknown, unknown):
                more = await client.get(f"/jobs/{jobs['acme']}", headers=headers)
                assert (more.status_code, more.headers["retry-after"]) == (503, "5")
                assert "connections of this tenant" in more.json()["detail"]
                assert more.headers["content-type"] == "application/problem+json"
                assert more.headers["connection"] == "close"
                assert "x-request-id" not in more.headers  # the framework, which takes memory, has not seen it
            assert (await client.get(f"/jobs/{jobs['beta']}", headers=beta)).status_code == 200
            server.stop()
            assert {answer.status_code for answer in await asyncio.gather(*waits)} == {200}
        await serving


def _request(tenant: str) -> Any:
    return SimpleNamespace(scope={}, state=SimpleNamespace(caller=SimpleNamespace(tenant=tenant)))


async def test_a_tenant_makes_two_answers_at_a_time_and_tenants_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answering, "_ALL", 3)
    answers, begun = Answers(), list[str]()

    async def make(request: Any) -> Any:
        await answers.take(request)
        begun.append(request.state.caller.tenant)
        return request

    async with asyncio.timeout(5):
        made = [await make(_request("acme")) for _ in range(2)]
        waiting = [asyncio.create_task(make(_request("acme"))) for _ in range(3)]
        await asyncio.sleep(0)
        made.append(await make(_request("beta")))
        waiting.append(asyncio.create_task(make(_request("gamma"))))
        await asyncio.sleep(0)
        assert begun == ["acme", "acme", "beta"]
        waiting.pop(0).cancel()
        answers.give_back(made[0].scope)
        answers.give_back(made[0].scope)  # once is enough
        answers.give_back(made[2].scope)
        made += [await waiting[0], await waiting[2]]
        assert begun[3:] == ["acme", "gamma"]
        answers.give_back(made[1].scope)
        made.append(await waiting[1])
        for request in made:
            answers.give_back(request.scope)
    assert not answers._held
    assert not answers._waiting


async def test_whoever_waits_too_long_to_be_answered_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answering, "_PATIENCE_SECONDS", 0.01)
    answers = Answers()
    first, second = _request("acme"), _request("acme")
    await answers.take(first)
    await answers.take(second)
    with pytest.raises(Problem) as told:
        await answers.take(_request("acme"))
    assert (told.value.status, told.value.headers["Retry-After"]) == (503, "1")
    answers.give_back(first.scope)
    await answers.take(_request("acme"))


async def test_every_route_with_large_answers_takes_a_place_before_it_reads(
    client: httpx.AsyncClient, conn: asyncpg.Connection, key: KeyMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    caller = await key("read", "operate")
    text, large = "x" * 300_000, json.dumps("x" * 300_000)
    ended = await run_one(conn, payload={"text": text})
    await settle(conn, "complete", [ended], results=[large])
    dead = await died(conn, payload={"text": text})
    # Everything that can be read of a job, whatever it is called.
    paths = [
        path.format(jobId=job, job_id=job, correlation=job)
        for path, verbs in describe(client._transport.app)["paths"].items()  # type: ignore[attr-defined]
        for job in (ended.job_id, dead)
        if "get" in verbs and path.count("{") == 1 and re.search(r"\{(jobId|job_id|correlation)\}", path)
        if not path.endswith("{jobId}/events")  # a stream of what is public
    ]
    held = client._transport.app.state.holdfast.answers._held  # type: ignore[attr-defined]
    answers = {path: await client.get(path, headers=caller) for path in paths}
    assert not held
    monkeypatch.setattr(answering, "_OF_ONE", 0)
    monkeypatch.setattr(answering, "_PATIENCE_SECONDS", 0.01)
    refused = {path for path in paths if (await client.get(path, headers=caller)).status_code == 503}
    assert {path for path, answer in answers.items() if len(answer.content) > 100_000} <= refused
    assert {path.replace(str(ended.job_id), "").replace(str(dead), "") for path in refused} == {
        "/jobs//result", "/jobs//items", "/ops/jobs/", "/ops/jobs//attempts", "/ops/jobs//events", "/ops/dead-letters/",
    }  # fmt: skip


async def test_answers_that_nobody_reads_are_made_two_at_a_time_and_take_no_place_from_others(
    hf: Holdfast, key: KeyMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    under_way = most = 0
    read = Operations.job_texts

    async def counted(self: Operations, *args: Any, **options: Any) -> Any:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        try:
            await asyncio.sleep(0.002)
            return await read(self, *args, **options)
        finally:
            under_way -= 1

    monkeypatch.setattr(Operations, "job_texts", counted)
    monkeypatch.setattr(unread, "_LIMIT_OF_TENANT", 3_000_000)
    caller = (await key("operate", tenant="acme"))["Authorization"]
    job = await hf.enqueue("x", PAYLOAD, delay=3600, tenant="acme")
    ask = f"GET /ops/jobs/{job.id} HTTP/1.1\r\nHost: x\r\nAuthorization: {caller}\r\n\r\n".encode()
    server: Any = Server(hf)
    kept = Impatient.unread
    with listen("127.0.0.1", 0) as listener, contextlib.ExitStack() as lines:
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        port = listener.getsockname()[1]
        largest = 0
        async with asyncio.timeout(20):
            for _ in range(16):
                lines.callback((await asked(port, ask * 2)).close)  # the second one is not begun with
                largest = max(largest, kept.size)
            while server._app.state.holdfast.answers._held or under_way or len(kept._reset) != 3:
                largest = max(largest, kept.size)
                await asyncio.sleep(0.001)
        assert most == 2
        assert 2_000_000 < largest <= 3_000_000
        server.stop()
        server.stop()
        await serving


async def test_a_tenant_keeps_a_quarter_of_what_nobody_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unread, "_LIMIT_OF_TENANT", 20)
    kept, gone = unread.Unread(), list[int]()
    for number, party in enumerate(["acme", "beta", "acme", "acme", None, None, None, "acme"]):
        kept.begin(cast("Any", Waiting(10)), partial(gone.append, number), party=party)
    assert gone == [0, 2]
    large = cast("Any", Waiting(30))
    kept.begin(large, partial(gone.append, 8), party="gamma")  # one answer is kept, however large
    assert gone == [0, 2]

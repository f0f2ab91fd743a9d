"""The client of the HTTP API, against a real server on a real port."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import asyncpg
import httpx
import pytest

from holdfast import (
    AlreadyFinal,
    Context,
    Fatal,
    Forbidden,
    Holdfast,
    HttpClient,
    InvalidInput,
    InvalidPayload,
    KeyConflict,
    LimitExceeded,
    NotFound,
    ServerUnavailable,
    Status,
    WaitTimeout,
)
from holdfast.errors import TooManyQueues
from holdfast.remote import RemoteJob
from holdfast.telemetry.events import RequestServed
from holdfast.web.server import Server, address, listen


@pytest.fixture
async def hf(database_url: str) -> AsyncIterator[Holdfast]:
    """The app behind the server, with some handlers."""
    app = Holdfast(database_url)

    @app.job("double")
    async def double(ctx: Context, n: int) -> int:
        return 2 * n

    @app.job("burst")
    async def burst(ctx: Context) -> None:
        raise Fatal("it burst")

    @app.job("count")
    async def count(ctx: Context, to: int) -> None:
        await ctx.items([{"key": str(n), "data": n} for n in range(to)], collection="numbers")

    async with app:
        yield app


@pytest.fixture
async def url(hf: Holdfast) -> AsyncIterator[str]:
    """A server."""
    server = Server(hf)
    with listen("127.0.0.1", 0) as listener:
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        yield address(listener)
        server.stop()
        await serving


@pytest.fixture
async def client(url: str) -> AsyncIterator[HttpClient]:
    """What is tested."""
    async with HttpClient(url) as client:
        yield client


@pytest.fixture
async def worker(hf: Holdfast) -> AsyncIterator[None]:
    """Somebody who runs the jobs."""
    task = asyncio.create_task(hf.run_worker(poll_interval=0.05))
    yield
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.usefixtures("worker")
async def test_a_job_is_submitted_awaited_and_answered(client: HttpClient) -> None:
    job = await client.submit("double", {"n": 21}, priority=5, correlation_id="c")
    assert job.status == Status.PENDING
    result = await client.result(job.id, timeout=20)
    assert (result.status, result.result, result.error_type) == (Status.COMPLETED, 42, None)
    failed = await client.result((await client.submit("burst")).id, timeout=20)
    assert (failed.status, failed.error_message) == (Status.FAILED, "it burst")


@pytest.mark.usefixtures("worker")
async def test_changes_are_followed_to_the_end(client: HttpClient) -> None:
    job = await client.submit("double", {"n": 1}, delay=0.2)
    async with asyncio.timeout(20):
        seen = [change.status async for change in client.events(job.id)]
    assert seen[-1] == Status.COMPLETED


async def test_a_page_is_given_an_address_without_the_key(url: str, hf: Holdfast) -> None:
    job = await hf.enqueue("double", {"n": 1})
    await hf.run_worker(burst=True)
    _, secret = await (await hf.operations()).keys.create("k", scopes=["read"], by="a test")
    async with HttpClient(f"{url}/", secret) as client, httpx.AsyncClient() as page:
        heard = await page.get(await client.events_url(job.id, seconds=60))
        assert heard.url.path == f"/jobs/{job.id}/events"
        assert secret not in str(heard.url)
        assert '"status":"COMPLETED"' in heard.text


@pytest.mark.usefixtures("worker")
async def test_items_and_counters_are_read(client: HttpClient, hf: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.remote.client._PAGE", 2)
    job = await client.submit("count", {"to": 5}, target_count=5)
    assert (await client.wait(job.id, timeout=20)).status == Status.COMPLETED
    assert [(item.key, item.data, item.collection) for item in await client.items(job.id)] == [
        (str(n), n, "numbers") for n in range(5)
    ]
    assert [item.data for item in await client.items(job.id, limit=3)] == [0, 1, 2]
    assert await asyncio.to_thread(client.sync.items, job.id) == await client.items(job.id)
    await asyncio.to_thread(client.sync.close)
    told = await client.get(job.id)
    assert (told.progress_count, told.result_count, told.target_count) == (5, 5, 5)
    assert (told.done_reason, told.last_progress_at is None) == ("target_reached", False)
    with pytest.raises(NotFound):
        await client.items(uuid4())


async def test_requests_and_their_refusals(client: HttpClient, hf: Holdfast) -> None:
    job = await client.submit("double", {"n": 1}, delay=3600)
    async with hf.maintaining():
        await client.cancel(job.id, reason="no need")
        assert (await client.wait(job.id, timeout=10)).status == Status.CANCELED
    with pytest.raises(AlreadyFinal):
        await client.cancel(job.id)
    with pytest.raises(NotFound):
        await client.get(uuid4())
    with pytest.raises(NotFound):
        await client.get("../livez")
    with pytest.raises(InvalidInput, match="/priority"):
        await client.submit("double", {"n": 1}, priority=-1)
    with pytest.raises(InvalidInput, match="/colour"):
        await client.submit("double", {"n": 1}, colour="red")
    await client.submit("double", {"n": 1}, idempotency_key="k")
    with pytest.raises(KeyConflict):
        await client.submit("double", {"n": 2}, idempotency_key="k")
    with pytest.raises(WaitTimeout):
        await client.wait((await client.submit("double", {"n": 1}, delay=60)).id, timeout=0.1)


async def test_many_are_submitted_each_with_its_answer(client: HttpClient, hf: Holdfast) -> None:
    answers = await client.submit_many([("double", {"n": n}) for n in range(1200)] + [("", {})])
    assert sum(isinstance(answer, RemoteJob) for answer in answers) == 1200
    assert isinstance(answers[-1], InvalidInput)
    assert len(await hf.find(types=["double"], limit=5000)) == 1200


async def test_a_lost_answer_records_nothing_twice(
    client: HttpClient, hf: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    http = client._transport.http
    send, lost = http.request, [True, True]

    async def losing(*arguments: object, **options: object) -> httpx.Response:
        answer = await send(*arguments, **options)  # type: ignore[arg-type]
        if lost and lost.pop():
            raise httpx.ReadError("the connection was lost")
        return answer

    monkeypatch.setattr(http, "request", losing)
    job = await client.submit("double", {"n": 1})
    (stored,) = await hf.find(types=["double"])
    assert stored.id == job.id


async def test_a_repeated_request_that_was_done_already_is_no_failure(
    client: HttpClient, hf: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    http = client._transport.http
    send = http.request
    lose: list[str] = []

    async def losing(method: str, path: str, **options: Any) -> httpx.Response:
        answer = await send(method, path, **options)
        if method == "POST" and lose:
            async with asyncio.timeout(10):
                while (await hf.get(job.id)).state != lose[-1]:
                    await asyncio.sleep(0.01)
            lose.clear()
            raise httpx.ReadError("the connection was lost")
        return answer

    monkeypatch.setattr(http, "request", losing)
    async with hf.maintaining():
        job = await client.submit("nobody.runs.this", {}, hold=True, delay=3600)
        for verb, state in (
            ("release", "scheduled"), ("pause", "paused"), ("resume", "scheduled"), ("cancel", "canceled"),
        ):  # fmt: skip
            lose.append(state)
            await getattr(client, verb)(job.id)
            assert lose == []
        with pytest.raises(AlreadyFinal):
            await client.cancel(job.id)
        lose.append("canceled")
        with pytest.raises(AlreadyFinal):
            await client.resume(job.id)
        assert lose == []


async def test_a_quiet_job_is_followed_on_one_stream(
    client: HttpClient, hf: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.web.control.events._PING_SECONDS", 0.05)
    monkeypatch.setattr("holdfast.remote.client._QUIET_SECONDS", 0.4)
    streams: list[int] = []
    hf.on(RequestServed)(lambda told: streams.append(told.status) if told.route.endswith("/events") else None)
    job = await client.submit("nobody.runs.this", {}, delay=3600)
    seen: list[Status] = []

    async def follow() -> None:
        async for change in client.events(job.id):
            seen.append(change.status)  # noqa: PERF401 - looked at while it grows

    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        following = group.create_task(follow())
        await asyncio.sleep(1.2)
        assert (seen, streams, following.done()) == ([Status.PENDING], [], False)
        async with hf.maintaining():
            await client.cancel(job.id)
            await following
    assert (seen, streams) == ([Status.PENDING, Status.CANCELED], [200])


async def test_headers_that_do_not_end_are_not_waited_for(
    url: str, client: HttpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.web.impatient.HEADER_SECONDS", 0.3)
    port = int(url.rpartition(":")[2])
    whole = b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    part = b"GET /livez HTTP/1.1\r\nX-Slow: "
    for sent in ([], [part], [part, b"a", b"b"], [whole, part], [whole, whole, part]):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        async with asyncio.timeout(10):
            for piece in sent:
                writer.write(piece)
                await (reader.readuntil(b"}") if piece == whole else asyncio.sleep(0.1))
            assert await reader.read() == b""
        writer.close()
    job = await client.submit("nobody.runs.this", {}, delay=3600)
    with pytest.raises(WaitTimeout):  # who waits for an answer is not one who does not ask
        await client.wait(job.id, timeout=1)


async def test_a_server_that_is_away_is_waited_for_and_then_said(url: str) -> None:
    async with HttpClient("http://127.0.0.1:1", patience=0.3) as nobody:
        with pytest.raises(ServerUnavailable):
            await nobody.submit("x")
    async with HttpClient(url, "hf_wrong") as stranger:
        assert (await stranger.submit("x")).id  # without keys a wrong one does no harm


async def test_keys_are_needed_once_there_are_any(url: str, hf: Holdfast) -> None:
    keys = (await hf.operations()).keys
    _, secret = await keys.create("slow", scopes=["submit"], requests_per_second=1, by="a test")
    async with HttpClient(url, secret, patience=0.1) as known, HttpClient(url, "hf_wrong") as stranger:
        job = await known.submit("x")
        answers = await asyncio.gather(*(known.submit("x") for _ in range(3)), return_exceptions=True)
        assert any(isinstance(answer, LimitExceeded) for answer in answers)
        with pytest.raises(Forbidden):
            await stranger.submit("x")
        await asyncio.sleep(1.1)
        with pytest.raises(Forbidden, match="read"):
            await known.get(job.id)


async def test_the_blocking_client_has_the_same_verbs(url: str, hf: Holdfast) -> None:
    def use() -> str:
        with HttpClient(url).sync as blocking:
            job = blocking.submit("double", {"n": 1}, delay=3600)
            assert blocking.get(job.id).type == "double"
            with pytest.raises(NotFound):
                blocking.get(uuid4())
            return str(job.id)

    assert (await hf.get(await asyncio.to_thread(use))).payload == {"n": 1}


async def test_too_many_queues_are_told_at_once(client: HttpClient, conn: asyncpg.Connection) -> None:
    await conn.execute("update settings set value = '1' where name = 'STREAMS_PER_TENANT'")
    await client.submit("x", {}, queue="a")
    async with asyncio.timeout(5):
        with pytest.raises(TooManyQueues, match="STREAMS_PER_TENANT"):
            await client.submit("x", {}, queue="b")


async def test_keys_that_are_the_same_in_json_are_refused_before_they_are_sent() -> None:
    async with HttpClient("http://127.0.0.1:9", key=None, patience=0) as client:
        with pytest.raises(InvalidPayload, match="both '1' in JSON"):
            await client.submit("work", {"inner": [{1: "one", "1": "text"}]})

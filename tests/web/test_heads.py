"""What connections keep of heads: nothing once a request is answered, and what is kept is counted."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import re
import socket
from pathlib import Path

import pytest
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from holdfast import Holdfast
from holdfast.web import fields, heads
from holdfast.web.bounded import Bounded
from tests.harness.waiting import until
from tests.web.conftest import KeyMaker
from tests.web.test_bounded import GET, bare, port, resident, send, serving

__all__ = ["bare", "port"]

WEB = Path(fields.__file__).parent


@pytest.mark.parametrize("and_then", [b"", b"G"], ids=["idle", "a byte of the next"])
@pytest.mark.parametrize(
    "request_head",
    [
        pytest.param(b"GET /livez?" + b"a" * 60_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", id="address"),
        pytest.param(b"GET /problems/" + b"a" * 60_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", id="unknown address"),
        pytest.param(GET + b"Prefer: " + b"a" * 60_000 + b"\r\n\r\n", id="field"),
    ],
)
def test_of_an_answered_request_nothing_is_kept(request_head: bytes, and_then: bytes) -> None:
    """Two hundred connections bring 12 MB, and stay."""

    async def bring() -> int:
        async with serving(Holdfast("postgresql://127.0.0.1:1/nothing")) as port, contextlib.AsyncExitStack() as stack:
            assert (await send(port, [request_head]))[0] in (200, 404)
            before = resident()
            for _ in range(200):
                line = stack.enter_context(socket.socket())
                line.setblocking(False)
                loop = asyncio.get_running_loop()
                await loop.sock_connect(line, ("127.0.0.1", port))
                await loop.sock_sendall(line, request_head)
                assert (await loop.sock_recv(line, 65536)).startswith(b"HTTP/1.1 ")
                if and_then:
                    await loop.sock_sendall(line, and_then)
            return resident() - before

    with asyncio.Runner() as runner:
        assert runner.run(bring()) < 4 * 1024 * 1024


async def test_a_head_under_way_stays_counted_when_the_request_before_it_is_answered(port: int, hf: Holdfast) -> None:
    job = await hf.enqueue("x", {}, delay=3600)
    first = f"GET /jobs/{job.id} HTTP/1.1\r\nHost: 127.0.0.1\r\nPrefer: wait=1\r\n\r\n".encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    async with asyncio.timeout(20):
        writer.write(first + GET + b"X: " + b"a" * 50_000)
        await until(lambda: Bounded._heads > 40_000, seconds=10, what="the second head is here")
        assert b" 200 " in await reader.readuntil(b"}")
        await asyncio.sleep(0)
        assert Bounded._heads > 40_000
        writer.write(b"\r\n\r\n")
        assert b" 200 " in await reader.readuntil(b"}")
        writer.close()
        await until(lambda: Bounded._heads == 0, seconds=10, what="nothing is counted any more")


async def test_fields_that_are_kept_count_even_if_they_come_in_one_piece(
    bare: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heads, "_HEADS_LIMIT", 16 * 1024)
    assert (await send(bare, [GET + b"prefer: b\r\n" * 20 + b"\r\n"]))[0] == 200
    assert (await send(bare, [GET + b"prefer: b\r\n" * 200 + b"\r\n"]))[0] == 503
    assert (await send(bare, [GET + b"a: b\r\n" * 200 + b"\r\n"]))[0] == 200  # nobody reads them: they are not kept


async def test_a_stream_keeps_the_fields_that_routes_read_and_no_others(
    port: int, hf: Holdfast, key: KeyMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[list[bytes]] = []
    begin = Bounded._start_asgi_task

    def begun(self: Bounded, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        kept.append([name for name, _ in cycle.scope["headers"]])
        begin(self, cycle, app)

    monkeypatch.setattr(Bounded, "_start_asgi_task", begun)
    job = await hf.enqueue("x", {}, delay=3600)
    sent = (await key("read"))["Authorization"].encode()
    head = f"GET /jobs/{job.id}/events HTTP/1.1\r\nHost: x\r\nLast-Event-ID: 1\r\nX-Forwarded-For: y\r\n".encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    async with asyncio.timeout(20):
        writer.write(head + b"Authorization: %b\r\n" % sent + b"x: y\r\n" * 200 + b"\r\n")
        assert b" 200 " in await reader.readuntil(b"event: status")
    writer.close()
    assert kept == [[b"host", b"last-event-id", b"x-forwarded-for", b"authorization"]]


def test_every_field_that_a_route_reads_is_kept() -> None:
    """A new one has to be added to the list; where it is missing, the route would never see it."""
    ways = (
        r"headers\.get(?:list)?\(\s*[\"']([\w-]+)[\"']",
        r"[\"']([\w-]+)[\"'] (?:not )?in (?:request\.)?headers",
        r"_header\(\s*\"([\w-]+)\"",
        r"name == b\"([\w-]+)\"",
        r"_REQUEST_ID = b\"([\w-]+)\"",
    )
    read = {found.lower() for path in WEB.rglob("*.py") for way in ways for found in re.findall(way, path.read_text())}
    assert {"authorization", "prefer", "last-event-id", "content-type", "x-request-id", "host", "origin"} <= read
    assert {name for name in read - {"token"} if not fields.is_read(name.encode())} == set()
    for name in ("via", "x-forwarded-for", "forwarded", "cf-connecting-ip"):
        assert fields.is_forwarded(name)
        assert fields.is_read(name.encode())


@pytest.mark.parametrize(
    "twice",
    [
        b"Host: y\r\n",
        b"Authorization: Bearer a\r\nAuthorization: Bearer b\r\n",
        b"Transfer-Encoding: gzip, chunked\r\n",
        b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
    ],
)
async def test_fields_that_are_read_in_different_ways_are_refused(bare: int, twice: bytes) -> None:
    status, answer = await send(bare, [GET + twice + b"\r\n"])
    assert (status, b'"bad-request"' in answer) == (400, True)


async def test_large_heads_of_strangers_leave_room_for_those_of_callers(
    port: int, key: KeyMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = (await key("read"))["Authorization"].encode()
    asks = b"GET /jobs/x HTTP/1.1\r\nHost: localhost\r\nPrefer: " + b"a" * 20_000 + b"\r\n"
    with_key = asks + b"Authorization: %b\r\n\r\n" % good
    assert (await send(port, [with_key]))[0] == 404
    monkeypatch.setattr(heads, "_STRANGERS_LIMIT", 16 * 1024)
    assert (await send(port, [asks + b"\r\n"]))[0] == 503
    assert (await send(port, [asks.replace(b"Prefer", b"Authorization: %b\r\nPrefer" % good) + b"\r\n"]))[0] == 404
    monkeypatch.setattr(heads, "_HEADS_LIMIT", 16 * 1024)
    assert (await send(port, [asks.replace(b"Prefer", b"Authorization: %b\r\nPrefer" % good) + b"\r\n"]))[0] == 503


@pytest.mark.parametrize(
    ("path", "status"),
    [
        pytest.param(b"/jobs/" + b"a" * 3_000 + b"/cancel", 401, id="as it is written"),
        pytest.param(b"/jobs/" + b"a" * 300 + b"%F0%9F%98%80/cancel", 401, id="short"),
        pytest.param(b"/jobs/" + b"a" * 3_000 + b"%F0%9F%98%80/cancel", 503, id="four bytes for each character"),
        pytest.param(b"/jobs/x/cancel?" + b"a" * 3_000 + b"%F0%9F%98%80", 401, id="query"),
    ],
)
async def test_a_path_counts_as_what_it_takes_once_it_is_read(
    port: int, key: KeyMaker, monkeypatch: pytest.MonkeyPatch, path: bytes, status: int
) -> None:
    await key("read")
    monkeypatch.setattr(heads, "_STRANGERS_LIMIT", 16 * 1024)
    sent = b"POST %b HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n" % path
    assert (await send(port, [sent]))[0] == status


def test_the_end_of_a_head_is_found_like_by_its_pattern() -> None:
    for length in range(9):
        for letters in itertools.product(b"\r\nx", repeat=length):
            found = heads._HEAD_END.search(bytes(letters))
            assert heads.end_of_head(bytes(letters)) == (None if found is None else found.end())


@pytest.mark.parametrize(
    ("expect", "goes_on"),
    [
        (b"100-continue", True),
        (b"foo, 100-Continue", True),
        (b"100-continues", False),
        (b"100-continue" + b"," * 53, False),
    ],
)
async def test_of_expectations_a_short_list_is_looked_at(port: int, expect: bytes, goes_on: bool) -> None:
    head = b"POST /jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 2\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    async with asyncio.timeout(20):
        writer.write(head + b"Expect: " + expect + b"\r\n\r\n")
        if goes_on:
            assert b" 100 " in await reader.readuntil(b"\r\n\r\n")
        writer.write(b"[]")
        assert b" 422 " in await reader.readline()
    writer.close()


async def test_a_request_needs_a_host(bare: int) -> None:
    for head, expected in ((b"GET /livez HTTP/1.1\r\n", 400), (b"GET /livez HTTP/1.0\r\n", 200)):
        status, answer = await send(bare, [head + b"\r\n"])
        assert (status, b"Host" in answer) == (expected, expected == 400)


@pytest.mark.parametrize("method", [b"GET", b"HEAD"])
@pytest.mark.parametrize("head", [b"/livez?" + b"a" * 70_000, b"/livez HTTP/1.1\r\n" + b"a: b\r\n" * 300])
async def test_a_refusal_of_a_head_request_has_no_body(bare: int, method: bytes, head: bytes) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", bare)
    async with asyncio.timeout(20):
        writer.write(method + b" " + head)
        answer, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    assert answer.startswith(b"HTTP/1.1 431 ")
    assert b"content-length: " in answer
    assert (body == b"") is (method == b"HEAD")

"""Connections that send more than a request may have, against a real server on a real port."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import re
import socket
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, cast

import asyncpg
import httpx
import pytest

from holdfast import Holdfast
from holdfast.web import bounded, heads, places, unread
from holdfast.web.heads import FIELD_LIMIT, HEAD_LIMIT
from holdfast.web.impatient import Impatient
from holdfast.web.server import Server, listen
from tests.harness.waiting import until
from tests.web.conftest import KeyMaker

GET = b"GET /livez HTTP/1.1\r\nHost: x\r\n"
CHUNKED = b"POST /jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n"
BODY = b'{"jobType": "x"}'
CHUNKS = b"%x\r\n%b\r\n0\r\n" % (len(BODY), BODY)


@asynccontextmanager
async def serving(hf: Holdfast) -> AsyncIterator[int]:
    server = Server(hf)
    with listen("127.0.0.1", 0) as listener:
        task = asyncio.create_task(server.serve(sockets=[listener]))
        yield listener.getsockname()[1]
        server.stop()
        await task


@pytest.fixture
async def bare() -> AsyncIterator[int]:
    """The port of a server without a database."""
    async with serving(Holdfast("postgresql://127.0.0.1:1/nothing")) as port:
        yield port


@pytest.fixture
async def port(hf: Holdfast) -> AsyncIterator[int]:
    """The port of a server with one."""
    async with serving(hf) as port:
        yield port


async def send(port: int, pieces: Iterable[bytes]) -> tuple[int, bytes]:
    """Send until there is an answer, which is read to its end: its status, and everything that came."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)

    async def speak() -> None:
        with contextlib.suppress(ConnectionError):
            for piece in pieces:
                writer.write(piece)
                await writer.drain()

    async with asyncio.timeout(20):
        speaking = asyncio.create_task(speak())
        answer = await reader.readuntil(b"\r\n\r\n")
        size = re.search(rb"content-length: (\d+)", answer)
        answer += await reader.readexactly(int(size.group(1))) if size else b""
        speaking.cancel()
        await asyncio.wait([speaking])
    writer.close()
    return int(answer.split()[1]), answer


def is_too_large(answer: tuple[int, bytes]) -> None:
    status, text = answer
    head, _, body = text.partition(b"\r\n\r\n")
    assert status == 431
    assert b"application/problem+json" in head
    assert b"connection: close" in head
    assert json.loads(body)["code"] == "headers-too-large"


def field(size: int, name: bytes = b"X-Long") -> bytes:
    """A field that counts as so many bytes."""
    return name + b": " + b"a" * (size - len(name) - 4) + b"\r\n"


@pytest.mark.parametrize("chunk", [1000, 65536])
async def test_headers_and_address_may_have_so_much_and_no_more(bare: int, chunk: int) -> None:
    taken = len("/livez") + len("Host: x\r\n")
    for size, status in ((HEAD_LIMIT - taken - 1, 200), (HEAD_LIMIT - taken, 200), (HEAD_LIMIT - taken + 1, 431)):
        request = GET + field(size) + b"\r\n"
        pieces = [request[start : start + chunk] for start in range(0, len(request), chunk)]
        assert (await send(bare, pieces))[0] == status
    address = b"/livez?q=" + b"a" * HEAD_LIMIT
    is_too_large(await send(bare, [b"GET " + address + b" HTTP/1.1\r\nHost: x\r\n\r\n"]))
    for count, status in ((FIELD_LIMIT - 1, 200), (FIELD_LIMIT, 431)):  # with `Host` one more
        assert (await send(bare, [GET + b"a:\r\n" * count + b"\r\n"]))[0] == status


@pytest.mark.parametrize(
    ("begin", "piece"),
    [
        pytest.param(GET, field(1000) * 64, id="fields"),
        pytest.param(GET, b"a:\r\n" * 16384, id="tiny-fields"),
        pytest.param(GET + b"X-Long: ", b"a" * 65536, id="value"),
        pytest.param(GET + b"X-Long:", b" " * 65536, id="spaces"),
        pytest.param(GET, b"a" * 65536, id="name"),
        pytest.param(b"GET /", b"a" * 65536, id="address"),
        pytest.param(b"", b"\r\n" * 32768, id="empty-lines"),
        pytest.param(CHUNKED + b"\r\n" + CHUNKS + b"X: ", b"a" * 65536, id="trailer"),
        pytest.param(CHUNKED + b"\r\n" + CHUNKS, field(1000) * 64, id="trailers"),
        pytest.param(CHUNKED + b"\r\n5;", b"a" * 65536, id="chunk-extension"),
    ],
)
async def test_what_has_no_end_takes_no_memory_and_no_time(
    port: int, begin: bytes, piece: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded, "_LINGER_SECONDS", 0.2)
    parsed = 0
    parse = bounded.Bounded._parse

    def counted(self: bounded.Bounded, data: memoryview) -> int:
        nonlocal parsed
        parsed += len(data)
        return parse(self, data)

    monkeypatch.setattr(bounded.Bounded, "_parse", counted)
    is_too_large(await send(port, [begin, *[piece] * 300]))
    assert parsed < 2 * HEAD_LIMIT
    assert (await send(port, [GET, b"\r\n"]))[0] == 200


async def test_a_trailer_is_no_header(port: int, hf: Holdfast, key: KeyMaker) -> None:
    good = f"Authorization: {(await key('submit'))['Authorization']}\r\n".encode()
    assert (await send(port, [CHUNKED + good + b"\r\n" + CHUNKS + b"\r\n"]))[0] == 202
    assert (await send(port, [CHUNKED + b"\r\n" + CHUNKS + good + b"\r\n"]))[0] == 401
    # Nor is it a header of the request behind it.
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(CHUNKED + b"\r\n" + CHUNKS + good + b"\r\n")
    writer.write(CHUNKED + b"Connection: close\r\n\r\n" + CHUNKS + b"\r\n")
    async with asyncio.timeout(20):
        assert re.findall(rb"HTTP/1.1 (\d+)", await reader.read()) == [b"401", b"401"]
    writer.close()


@pytest.mark.parametrize("size", [7, 65536])
@pytest.mark.parametrize("framing", ["length", "chunks", "none"])
async def test_an_offer_to_upgrade_is_declined(port: int, framing: str, size: int) -> None:
    """As Java's HTTP client makes it with every request."""
    offer = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n"
    sent = {
        "length": CHUNKED.replace(b"Transfer-Encoding: chunked", b"Content-Length: %d" % len(BODY))
        + offer
        + b"\r\n"
        + BODY,
        "chunks": CHUNKED + offer + b"\r\n" + CHUNKS + b"\r\n",
        "none": GET + offer + b"\r\n",
    }[framing]
    sent = 2 * sent + GET + b"Connection: close\r\n\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for start in range(0, len(sent), size):
        writer.write(sent[start : start + size])
        await writer.drain()
        await asyncio.sleep(0)  # small pieces arrive one by one
    async with asyncio.timeout(20):
        answers = re.findall(rb"HTTP/1.1 (\d+)", await reader.read())
    writer.close()
    assert (await send(port, [GET.replace(b"/livez", b"http://x") + offer + b"\r\n"]))[0] == 400
    assert answers == ([b"200"] if framing == "none" else [b"202"]) * 2 + [b"200"]


async def test_requests_sent_ahead_are_answered_in_order_and_take_no_memory(
    bare: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    most = waiting = 0
    receive, parse = bounded.Bounded.data_received, bounded.Bounded._parse

    def received(self: bounded.Bounded, data: bytes) -> None:
        nonlocal waiting
        receive(self, data)
        waiting = max(waiting, len(self._waiting))

    def watched(self: bounded.Bounded, data: memoryview) -> int:
        nonlocal most
        taken = parse(self, data)
        most = max(most, len(self.pipeline))
        return taken

    monkeypatch.setattr(bounded.Bounded, "data_received", received)
    monkeypatch.setattr(bounded.Bounded, "_parse", watched)
    count = 5_000
    reader, writer = await asyncio.open_connection("127.0.0.1", bare)
    writer.write((GET + b"\r\n") * count + GET + field(HEAD_LIMIT) + b"\r\n")
    async with asyncio.timeout(30):
        answers = await reader.read()
    writer.close()
    assert answers.count(b"HTTP/1.1 200 OK") == count
    assert most <= 2
    assert waiting <= 4 * heads.SLICE


async def test_a_request_that_is_too_large_lets_the_one_before_it_be_answered(
    port: int, hf: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = await hf.enqueue("x", {}, delay=3600)
    first = f"GET /jobs/{job.id} HTTP/1.1\r\nHost: 127.0.0.1\r\nPrefer: wait=1\r\n\r\n".encode()
    status, answer = await send(port, [first + GET + field(HEAD_LIMIT) + b"\r\n"])
    assert status == 200
    assert b"connection: close" in answer


async def test_who_is_still_sending_can_read_the_refusal(bare: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", bare)
    writer.write(GET + b"a" * 1024 * 1024)
    async with asyncio.timeout(20):
        assert b" 431 " in await reader.read()  # to its end: the connection is not reset
    writer.close()


@pytest.mark.parametrize("size", [2**20 + 1, 2**20 + 100_000, 2**20 + 900_000])
async def test_who_is_still_sending_a_body_can_read_why_it_is_refused(port: int, size: int) -> None:
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
        for _ in range(5):
            answer = await client.post("/jobs", content=b" " * size, headers={"Content-Type": "application/json"})
            assert (answer.status_code, answer.json()["code"]) == (413, "too-large")


async def test_brackets_in_a_text_are_not_lists(port: int) -> None:
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
        text = "{[" * 150_000 + '"'
        assert (await client.post("/jobs", json={"jobType": "a", "payload": {"text": text}})).status_code == 202
        lists = json.dumps({"jobType": "a", "payload": {"lists": [[]] * 200_000}})
        refused = await client.post("/jobs", content=lists, headers={"Content-Type": "application/json"})
        assert (refused.status_code, refused.json()["code"]) == (413, "too-large")


async def test_a_connection_that_gives_way_leaves_no_error_in_the_log(
    hf: Holdfast, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(places, "_MOST", 2)
    monkeypatch.setattr(Impatient, "places", places.Places())
    async with serving(hf) as port, asyncio.timeout(30), contextlib.AsyncExitStack() as opened:
        for _ in range(12):
            deaf = opened.enter_context(socket.socket())
            deaf.setblocking(False)
            await asyncio.get_running_loop().sock_connect(deaf, ("127.0.0.1", port))
            await asyncio.get_running_loop().sock_sendall(
                deaf, b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 3
            )
            await asyncio.sleep(0.01)
    assert [line.getMessage() for line in caplog.records if line.levelno >= logging.ERROR] == []


async def test_every_answer_tells_browsers_to_keep_it_from_other_sites(bare: int) -> None:
    for request in (GET + b"\r\n", b"HELLO\r\n\r\n"):
        _, answer = await send(bare, [request])
        assert b"\r\nx-content-type-options: nosniff\r\n" in answer.lower()
        assert b"\r\ncross-origin-resource-policy: same-origin\r\n" in answer.lower()
        assert b"\r\ncontent-security-policy: frame-ancestors 'self'\r\n" in answer.lower()


async def test_a_request_that_was_answered_before_its_body_ended_badly_has_one_answer(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    async with asyncio.timeout(10):
        writer.write(b"POST /nowhere HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n")
        first = await reader.readuntil(b"}")
        assert b" 404 " in first
        writer.write(b"zz\r\n")
        assert b"HTTP/1.1" not in await reader.read()
    writer.close()


async def test_what_is_not_http_is_a_problem_too(bare: int) -> None:
    status, answer = await send(bare, [b"HELLO\r\n\r\n"])
    assert (status, json.loads(answer.partition(b"\r\n\r\n")[2])["code"]) == (400, "bad-request")


async def test_connections_without_a_request_give_way_to_new_ones(
    hf: Holdfast, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(places, "_MOST", 4)
    monkeypatch.setattr(Impatient, "places", places.Places())
    async with serving(hf) as port, asyncio.timeout(20):
        busy_reader, busy = await asyncio.open_connection("127.0.0.1", port)
        busy.write(CHUNKED + b"\r\n" + CHUNKS[:8])
        idle_reader, idle = await asyncio.open_connection("127.0.0.1", port)
        idle.write(GET + b"\r\n")
        assert b" 200 " in await idle_reader.readline()
        await until(lambda: len(Impatient.places._callers) == 1, seconds=10, what="one is busy, the other is not")
        lines = [await asyncio.open_connection("127.0.0.1", port) for _ in range(12)]
        for _ in range(2):
            assert (await send(port, [GET, b"\r\n"]))[0] == 200
        with contextlib.suppress(ConnectionError):
            await idle_reader.read()  # to its end, as all but the newest
        for reader, _ in lines[:10]:
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
        busy.write(CHUNKS[8:] + b"\r\n")
        assert b" 202 " in await busy_reader.readline()
        for writer in (busy, idle, *(writer for _, writer in lines)):
            writer.close()
    assert [line.name for line in caplog.records if "connections are in use" in line.message] == ["holdfast.web"]


async def test_requests_without_end_of_those_without_a_key_keep_nobody_out(
    hf: Holdfast, key: KeyMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many are sent ahead on a connection, and though all answers are read."""
    monkeypatch.setattr(places, "_MOST", 4)
    monkeypatch.setattr(Impatient, "places", places.Places())
    sent = (await key("submit"))["Authorization"].encode()
    asks = b"GET /ops/types HTTP/1.1\r\nHost: localhost\r\nAuthorization: %b\r\n" % sent

    async def send_and_read(to: int) -> None:
        with contextlib.suppress(ConnectionError):
            reader, writer = await asyncio.open_connection("127.0.0.1", to)
            writer.write((GET + b"\r\n") * 3000)
            while await reader.read(65536):
                pass
            writer.close()

    async with serving(hf) as port, asyncio.timeout(60), asyncio.TaskGroup() as group:
        strangers = [group.create_task(send_and_read(port)) for _ in range(4)]
        await until(lambda: len(Impatient.places._strangers) == 4, seconds=10, what="all places are taken")
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(5):
            writer.write(asks + b"\r\n")
            head = await reader.readuntil(b"\r\n\r\n")
            assert b" 403 " in head  # let in, and known
            await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].partition(b"\r")[0]))
            strangers.append(group.create_task(send_and_read(port)))
            await asyncio.sleep(0)
        writer.close()
        for stranger in strangers:
            stranger.cancel()


def test_strangers_give_way_before_callers_and_those_that_wait_before_those_at_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(places, "_SHARES", 1)

    class Connection:
        def give_way(self) -> None:
            gone.append(self)

    gone: list[Any] = []
    taken = places.Places()
    taken.most = 5
    waits, at_work, idle, unread, busy = connections = [cast("Any", Connection()) for _ in range(5)]
    for connection in connections:
        taken.take(connection)
    for connection in (busy, unread, idle, at_work):
        taken.begin(connection)
    for connection in (busy, unread, idle):
        taken.know(connection, "acme")
    taken.end(idle)
    taken.stall(unread)
    for _ in range(5):
        newer = cast("Any", Connection())
        taken.take(newer)
        taken.begin(newer)
        taken.know(newer, "acme")
    assert gone == [waits, at_work, idle, unread]
    assert taken.crowded


async def test_connections_whose_answers_nobody_reads_give_way_to_new_ones(
    hf: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places, "_MOST", 4)
    monkeypatch.setattr(Impatient, "places", places.Places())
    asks = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"
    async with serving(hf) as port, asyncio.timeout(30), contextlib.AsyncExitStack() as opened:
        for _ in range(4):
            deaf = socket.socket()
            opened.callback(deaf.close)
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            deaf.setblocking(False)
            await asyncio.get_running_loop().sock_connect(deaf, ("127.0.0.1", port))
            await asyncio.get_running_loop().sock_sendall(deaf, asks * 60)
        await until(lambda: len(Impatient.places._unread) == 4, seconds=20, what="four answers wait to be read")
        for _ in range(6):
            assert (await send(port, [GET, b"\r\n"]))[0] == 200
        assert len(Impatient.places._unread) < 4


async def test_what_nobody_reads_waits_where_it_is_counted(hf: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel would take megabytes of it, and keep them after the connection was closed."""
    monkeypatch.setattr(Impatient, "places", places.Places())
    async with serving(hf) as port, asyncio.timeout(30):
        with socket.socket() as deaf:
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            deaf.setblocking(False)
            await asyncio.get_running_loop().sock_connect(deaf, ("127.0.0.1", port))
            asks = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"
            await asyncio.get_running_loop().sock_sendall(deaf, asks * 4)
            await until(lambda: Impatient.places._unread, seconds=20, what="answers wait to be read")
            (connection,) = Impatient.places._unread
            accepted = connection.transport.get_extra_info("socket")
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 30_000
            # Linux doubles what is asked for.
            assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) <= 128 * 1024


async def test_who_finds_no_place_at_all_is_told_so(hf: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "_MOST", 2)
    monkeypatch.setattr(places, "_SHARES", 1)
    monkeypatch.setattr(Impatient, "places", places.Places())
    async with serving(hf) as port, asyncio.timeout(30):
        busy = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        for _, writer in busy:
            writer.write(CHUNKED + b"\r\n" + CHUNKS[:8])
        await until(lambda: len(Impatient.places._callers) == 2, seconds=10, what="both are busy")
        for _ in range(3):
            status, answer = await send(port, [GET, b"\r\n"])
            head, _, body = answer.partition(b"\r\n\r\n")
            assert (status, json.loads(body)["code"]) == (503, "unavailable")
            assert b"\r\nretry-after: " in head
        for reader, writer in busy:
            writer.write(CHUNKS[8:] + b"\r\n")
            assert b" 202 " in await reader.readline()
            writer.close()
        await until(lambda: not Impatient.places.crowded, seconds=10, what="those refused have gone")
        assert (await send(port, [GET, b"\r\n"]))[0] == 200


@pytest.mark.parametrize(("limit", "most", "backlog"), [(150, 75, 18), (1024, 768, 64), (65536, 5_000, 1024)])
def test_some_descriptors_are_left_for_the_database(
    limit: int, most: int, backlog: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(places.resource, "getrlimit", lambda _: (asked or [(100, limit)])[-1])
    monkeypatch.setattr(places.resource, "setrlimit", lambda _, both: asked.append(both))
    places.raise_descriptors()
    assert asked == [(limit, limit)]
    assert (places.most_connections(), places.backlog()) == (most, backlog)


def resident() -> int:
    return int(Path(f"/proc/{os.getpid()}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def test_a_hundred_megabytes_of_headers_leave_memory_alone(bare: int) -> None:
    before = resident()
    for piece in (b"a:\r\n" * 16384, b"X" * 65536):
        is_too_large(await send(bare, [GET, *[piece] * 1600]))
    assert resident() - before < 16 * 1024 * 1024


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(GET + b"Content-Length: 1000000\r\n\r\n" + b"x" * 200_000, id="body"),
        pytest.param(GET + b"Content-Length: 1\r\n\r\nx" + (GET + b"\r\n") * 5_000, id="requests"),
    ],
)
def test_what_comes_in_one_piece_takes_no_memory(loop: str, sent: bytes) -> None:
    """Two hundred connections bring 40 MB. Whatever is kept is kept until all are there: nobody reads the answers."""
    factory = asyncio.new_event_loop if loop == "asyncio" else pytest.importorskip("uvloop").new_event_loop

    async def bring() -> int:
        async with serving(Holdfast("postgresql://127.0.0.1:1/nothing")) as port, contextlib.AsyncExitStack() as stack:
            assert (await send(port, [GET, b"\r\n"]))[0] == 200
            before = resident()
            for _ in range(200):
                line = stack.enter_context(socket.socket())
                line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                line.connect(("127.0.0.1", port))
                line.setblocking(False)
                line.send(sent)
                await asyncio.sleep(0)
            await send(port, [GET, b"\r\n"])
            return resident() - before

    with asyncio.Runner(loop_factory=factory) as runner:
        assert runner.run(bring()) < 12 * 1024 * 1024


ANSWER_BYTES = 10_000_000


@pytest.fixture
async def answer(hf: Holdfast, conn: asyncpg.Connection) -> bytes:
    """A request whose answer is more than the kernel keeps for a client that does not read."""
    job = await hf.enqueue("x")
    await conn.execute("set session_replication_role = replica")
    await conn.execute(
        "update jobs set state = 'success', result = to_jsonb(repeat('r', $2::integer)) where id = $1",
        job.id, ANSWER_BYTES,
    )  # fmt: skip
    return f"GET /jobs/{job.id}/result HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()


async def asked(port: int, request: bytes) -> socket.socket:
    """A client that has sent its request, and reads nothing yet."""
    line = socket.socket()
    line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    line.setblocking(False)
    await asyncio.get_running_loop().sock_connect(line, ("127.0.0.1", port))
    await asyncio.get_running_loop().sock_sendall(line, request)
    return line


async def read(line: socket.socket, *, pause_seconds: float = 0.0) -> int:
    """Read until the connection ends or everything is there; how much that was."""
    size = 0
    with contextlib.suppress(ConnectionError):
        async with asyncio.timeout(30):
            while size < ANSWER_BYTES and (data := await asyncio.get_running_loop().sock_recv(line, 2**16)):
                size += len(data)
                await asyncio.sleep(pause_seconds)
    line.close()
    return size


async def test_whoever_reads_nothing_is_given_up(port: int, answer: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unread, "_EVERY_SECONDS", 0.3)
    line = await asked(port, answer)
    await until(lambda: bounded.Bounded.unread.size > 0, seconds=10, what="the answer waits")
    await until(lambda: bounded.Bounded.unread.size == 0, seconds=10, what="it is given up")
    assert await read(line) < ANSWER_BYTES


async def test_whoever_reads_slowly_gets_everything(port: int, answer: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unread, "_EVERY_SECONDS", 1.0)
    monkeypatch.setattr(unread, "_LEAST_BYTES", 1)  # on a busy machine nobody reads fast
    line = await asked(port, answer)
    await until(lambda: bounded.Bounded.unread.size > 0, seconds=10, what="the answer waits")
    assert await read(line, pause_seconds=0.001) >= ANSWER_BYTES


async def test_answers_that_nobody_reads_have_a_limit_together(
    port: int, answer: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unread, "_LIMIT", 2 * ANSWER_BYTES)
    lines = []
    for _ in range(6):
        lines.append(await asked(port, answer))
        assert await asyncio.get_running_loop().sock_recv(lines[-1], 1)
        assert bounded.Bounded.unread.size <= 2 * ANSWER_BYTES
    first, *_, last = [await read(line) for line in lines]
    assert first < ANSWER_BYTES <= last


class Waiting:
    """A connection whose client does not read."""

    def __init__(self, size: int) -> None:
        self.get_write_buffer_size = lambda: size


@pytest.mark.parametrize(
    ("parties", "given_up"),
    [
        (["acme"] * 3 + ["beta"] + ["acme"] * 3, [0, 1, 2]),  # whoever has the most loses the oldest
        (["beta", "acme", "acme", "acme", "acme", "beta"], [1, 2]),
        ([None, "beta", "beta", None, None, None, "beta"], [0, 3]),  # strangers lose among themselves
        (["beta", "acme", "beta", "acme"], []),
    ],
)
async def test_slow_readers_of_one_tenant_cost_no_other_its_answer(
    parties: list[str | None], given_up: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unread, "_LIMIT", 40)
    monkeypatch.setattr(unread, "_LIMIT_OF_STRANGERS", 20)
    monkeypatch.setattr(unread, "_KERNEL_BYTES", 0)
    kept, gone = unread.Unread(), list[int]()
    for number, party in enumerate(parties):
        kept.begin(cast("Any", Waiting(10)), partial(gone.append, number), party=party)
    assert gone == given_up


def test_connections_that_are_given_up_with_requests_in_line_leave_nothing_in_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """uvloop raises where something is written to a connection that has ended."""
    monkeypatch.setattr(unread, "_EVERY_SECONDS", 0.2)

    async def ask() -> None:
        async with serving(Holdfast("postgresql://127.0.0.1:1/nothing")) as port:
            line = await asked(port, b"GET /openapi.json HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 6)
            await until(lambda: bounded.Bounded.unread.size > 0, seconds=10, what="an answer waits")
            await until(lambda: bounded.Bounded.unread.size == 0, seconds=10, what="it is given up")
            await send(port, [GET, b"\r\n"])
            line.close()

    with asyncio.Runner(loop_factory=pytest.importorskip("uvloop").new_event_loop) as runner:
        runner.run(ask())
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == []


async def test_strangers_who_do_not_read_one_answer_have_a_limit_together(
    bare: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel takes most of the answer, so that little waits here. Each of them takes memory all the same."""
    monkeypatch.setattr(unread, "_LIMIT_OF_STRANGERS", 20 * unread._KERNEL_BYTES)
    waiting = bounded.Bounded.unread._reset
    with contextlib.ExitStack() as stack:
        for _ in range(30):
            line = stack.enter_context(await asked(bare, b"GET /openapi.json HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"))
            assert await asyncio.get_running_loop().sock_recv(line, 1)
            assert len(waiting) <= 20
        assert len(waiting) > 5


async def test_many_fields_take_room_even_if_they_are_short(bare: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heads, "_HEADS_LIMIT", 16 * 1024)
    assert (await send(bare, [GET + b"a: b\r\n" * 20, b"\r\n"]))[0] == 200
    assert (await send(bare, [GET + b"a: b\r\n" * 200]))[0] == 503  # it has not ended yet

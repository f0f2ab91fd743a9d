"""Bodies in chunks: those of strangers are not parsed, and those of callers a little at a time."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator

import pytest

from holdfast import Holdfast
from holdfast.web import bodies, bounded
from holdfast.web.bounded import Bounded
from tests.web.conftest import KeyMaker
from tests.web.test_bounded import CHUNKED, port, send

__all__ = ["port"]


class Work:
    """How many chunks were parsed, and how many between two rounds of the event loop at most."""

    def __init__(self) -> None:
        self.all = self.at_once = self._now = 0

    def count(self) -> None:
        self.all, self._now = self.all + 1, self._now + 1
        self.at_once = max(self.at_once, self._now)

    async def watch(self) -> None:
        while True:
            self._now = 0
            await asyncio.sleep(0)


@pytest.fixture
async def work(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Work]:
    monkeypatch.setattr(bodies, "_TURN_SECONDS", 0.0)
    work, on_body = Work(), Bounded.on_body

    def counted(self: Bounded, body: bytes) -> None:
        work.count()
        on_body(self, body)

    monkeypatch.setattr(Bounded, "on_body", counted)
    watching = asyncio.create_task(work.watch())
    yield work
    watching.cancel()


def tiny(body: bytes) -> bytes:
    return b"".join(b"1\r\n%c\r\n" % byte for byte in body)


async def test_chunks_of_a_stranger_are_not_parsed(port: int, key: KeyMaker, work: Work) -> None:
    await key("submit")  # so that there are strangers
    status, answer = await send(port, [CHUNKED + b"\r\n" + tiny(b" " * 2000), *[tiny(b" " * 2000)] * 40])
    assert (status, b"connection: close" in answer) == (401, True)
    assert work.all < 400  # of 82,000


async def test_a_stranger_whose_short_body_is_here_may_go_on(port: int, key: KeyMaker) -> None:
    await key("submit")
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    async with asyncio.timeout(20):
        for _ in range(2):
            writer.write(CHUNKED + b"\r\n" + tiny(b"{}") + b"0\r\n\r\n")
            head = await reader.readuntil(b"\r\n\r\n")
            assert b" 401 " in head
            await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].partition(b"\r")[0]))
    writer.close()


@pytest.mark.parametrize("size", [100, 60_000])
async def test_chunks_of_a_caller_are_parsed_a_few_at_a_time(
    port: int, hf: Holdfast, key: KeyMaker, work: Work, size: int
) -> None:
    good = b"Authorization: %b\r\n" % (await key("submit"))["Authorization"].encode()
    body = json.dumps({"jobType": "x", "payload": {"text": "t" * size}}).encode()
    status, answer = await send(port, [CHUNKED + good + b"\r\n" + tiny(body) + b"0\r\n\r\n"])
    assert status == 202
    assert work.all == len(body)
    assert work.at_once <= 2 * bounded._CHUNKED_SLICE // 6
    job = await hf.get(json.loads(answer.partition(b"\r\n\r\n")[2])["jobId"])
    assert job is not None
    assert len(job.payload["text"]) == size


async def test_chunks_that_are_sent_while_a_caller_waits_are_dropped_slowly(
    port: int, hf: Holdfast, key: KeyMaker, work: Work
) -> None:
    job = await hf.enqueue("x", {}, delay=3600)
    good = b"Authorization: %b\r\n" % (await key("read"))["Authorization"].encode()
    for path, wait in ((b"", b"Prefer: wait=1\r\n"), (b"/events", b"")):
        head = b"GET /jobs/%b%b HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n" % (str(job.id).encode(), path)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        with contextlib.suppress(ConnectionError):
            async with asyncio.timeout(20):
                writer.write(head + wait + good + b"\r\n" + tiny(b" " * 100_000))
                assert b" 200 " in await reader.readuntil(b"\r\n\r\n")
        writer.close()
        assert work.at_once <= 2 * bounded._CHUNKED_SLICE // 6
    assert work.all < 4_000  # of 200,000

"""Requests that are answered before their body has ended."""

from __future__ import annotations

import asyncio
import contextlib
import itertools

import pytest

from holdfast import Holdfast
from holdfast.web import bounded
from holdfast.web.bounded import Bounded
from holdfast.web.heads import SLICE
from holdfast.web.wire import Wire
from tests.web.conftest import KeyMaker
from tests.web.test_bounded import GET, serving
from tests.web.test_strangers import POST


@pytest.mark.parametrize("head", [GET, POST])
async def test_the_rest_of_a_long_body_is_dropped_and_not_without_end(
    hf: Holdfast, key: KeyMaker, monkeypatch: pytest.MonkeyPatch, head: bytes
) -> None:
    await key("submit")
    parsed, dropped = [0], [0]
    parse, drop = Bounded._parse, Bounded.drop

    def parses(self: Bounded, piece: memoryview) -> int:
        parsed[0] += len(piece)
        return parse(self, piece)

    def drops(self: Bounded, size: int) -> None:
        dropped[0] += size
        drop(self, size)

    monkeypatch.setattr(Bounded, "_parse", parses)
    monkeypatch.setattr(Bounded, "drop", drops)
    monkeypatch.setattr(bounded, "_LINGER_BYTES", 100_000)
    monkeypatch.setattr(bounded, "_LINGER_SECONDS", 0.2)
    begin = head + b"Content-Length: 99999999\r\n\r\n" + b"x" * 16_000
    async with serving(hf) as port, asyncio.timeout(20):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(begin)
        answer = await reader.readuntil(b"\r\n\r\n")
        assert answer[9:12] == (b"200" if head == GET else b"401")
        assert b"\r\nconnection: close\r\n" in answer
        with contextlib.suppress(ConnectionError):
            for _ in itertools.repeat(None):
                writer.write(b"x" * 65_536)
                await writer.drain()
        writer.close()
    assert parsed[0] <= len(head) + 100 + SLICE
    assert dropped[0] <= 100_000 + len(Wire._rubbish)


@pytest.mark.parametrize("size", [SLICE, 16_000])
async def test_a_short_rest_does_not_end_the_connection(hf: Holdfast, key: KeyMaker, size: int) -> None:
    await key("submit")
    head = POST + b"Content-Length: %d\r\n\r\n" % size
    async with serving(hf) as port, asyncio.timeout(20):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        arrives = size > SLICE
        for _ in range(3):
            writer.write(head + b"x" * size if arrives else head)
            answer = await reader.readuntil(b"\r\n\r\n")
            assert answer.startswith(b"HTTP/1.1 401 ")
            assert b"connection: close" not in answer
            await reader.readexactly(int(answer.lower().partition(b"content-length: ")[2].partition(b"\r")[0]))
            if not arrives:
                writer.write(b"x" * size)
        writer.close()

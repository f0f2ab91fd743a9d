"""Clients that go away while nothing is read from them give their places back."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.web.server import Server, listen
from tests.harness.waiting import until
from tests.web.conftest import KeyMaker


@asynccontextmanager
async def serving(hf: Holdfast) -> AsyncIterator[tuple[Any, tuple[str, int]]]:
    """The state of a server's app, and where it serves."""
    server = Server(hf)
    with listen("127.0.0.1", 0) as listener:
        task = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            yield server._app.state.holdfast, listener.getsockname()
        finally:
            server.stop()
            server.stop()  # whatever still waits
            await task


@pytest.mark.parametrize("how", ["reset", "closed"])
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_waits_end_with_their_clients_even_if_requests_are_sent_ahead(database_url: str, loop: str, how: str) -> None:
    factory = asyncio.new_event_loop if loop == "asyncio" else pytest.importorskip("uvloop").new_event_loop

    async def go_away() -> None:
        async with Holdfast(database_url) as hf, serving(hf) as (state, where):
            job = await hf.enqueue("x", {}, delay=3600)
            wait = f"GET /jobs/{job.id}/result HTTP/1.1\r\nHost: 127.0.0.1\r\nPrefer: wait=60\r\n\r\n".encode()
            last = b"GET /livez HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 40_000 + b"\r\n\r\n"
            lines = []
            for _ in range(5):
                line = socket.socket()
                line.setblocking(False)
                await asyncio.get_running_loop().sock_connect(line, where)
                await asyncio.get_running_loop().sock_sendall(line, wait * 5 + last)
                lines.append(line)
            await until(lambda: state._waiting.total() == 5, seconds=10, what="all of them wait")
            for line in lines:
                if how == "reset":
                    line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                line.close()
            await until(lambda: state._waiting.total() == 0, seconds=10, what="none of them waits any more")

    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(go_away())


async def test_whoever_sends_ahead_and_stays_gets_all_answers(hf: Holdfast, key: KeyMaker) -> None:
    job = await hf.enqueue("x", {}, delay=3600)
    good = (await key("read"))["Authorization"]
    wait = f"GET /jobs/{job.id} HTTP/1.1\r\nHost: x\r\nPrefer: wait=3\r\nAuthorization: {good}\r\n\r\n".encode()
    async with serving(hf) as (_, where):
        reader, writer = await asyncio.open_connection(*where)
        writer.write(wait * 2)
        async with asyncio.timeout(20):
            for _ in range(2):
                assert b" 200 " in await reader.readuntil(b"}")
        writer.close()

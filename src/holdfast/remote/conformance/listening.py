"""A small HTTP server in this process: it reads requests, and answers them late, wrongly, or not at all if told so."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

__all__ = ["Incoming", "Reply", "listening"]

_MOST_BYTES = 4 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Incoming:
    """One request."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One answer. If it is `lost`, the connection is cut instead."""

    status: int = 200
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    lost: bool = False


Answer = Callable[[Incoming], Awaitable[Reply]]


@contextlib.asynccontextmanager
async def listening(host: str, port: int, answer: Answer) -> Any:
    """Serve for the length of a block; yields the address."""
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - streams run their callbacks in tasks
        tasks.add(task)
        try:
            while await _one(reader, writer, answer):
                pass
        except (OSError, asyncio.IncompleteReadError, ValueError):
            pass
        finally:
            tasks.discard(task)
            writer.close()

    server = await asyncio.start_server(serve, host, port, limit=_MOST_BYTES)
    name, number = server.sockets[0].getsockname()[:2]
    try:
        yield f"http://{f'[{name}]' if ':' in name else name}:{number}"
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answer: Answer) -> bool:
    """Answer one request. Returns whether the connection stays."""
    asked = await _read(reader, writer)
    if asked is None:
        return False
    answering = asyncio.ensure_future(answer(asked))
    gone = asyncio.ensure_future(reader.read(1))
    try:
        await asyncio.wait({answering, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not answering.done():
            return False  # nobody waits for it any more
    finally:
        answering.cancel()
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)
    reply = answering.result()
    if reply.lost:
        writer.transport.abort()
        return False
    body = b"" if reply.body is None else json.dumps(reply.body).encode()
    kind = "application/problem+json" if reply.status >= 400 else "application/json"
    head = [f"HTTP/1.1 {reply.status} {HTTPStatus(reply.status).phrase}", f"Content-Type: {kind}"]
    head += [f"Content-Length: {len(body)}", *(f"{name}: {value}" for name, value in reply.headers.items())]
    writer.write("\r\n".join([*head, "", ""]).encode("latin-1") + body)
    await writer.drain()
    return asked.headers.get("connection", "").lower() != "close"


async def _read(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Incoming | None:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, path, _ = head[0].split(" ", 2)
    headers = {
        name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)
    }
    if headers.get("expect", "").lower() == "100-continue":
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    if "chunked" in headers.get("transfer-encoding", ""):
        body = b""
        while size := int((await reader.readline()).split(b";")[0], 16):
            body += await reader.readexactly(size)
            await reader.readline()
        await reader.readline()
    else:
        body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Incoming(method=method, path=path, headers=headers, body=body)

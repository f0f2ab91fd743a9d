"""Lines to a PostgreSQL server that a test can freeze, cut and stretch: a TCP proxy on loopback."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

from holdfast.model.addresses import addresses_of

__all__ = ["BlackHole", "Line", "over_lines"]


class Line:
    """Forwards to a server; frozen, it swallows what comes and answers nothing, new connections included."""

    def __init__(self, url: str) -> None:
        (self._server,) = addresses_of(url)
        self._open = asyncio.Event()
        self._open.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._bait: bytes | None = None
        self._bait_asks = True
        #: Set once a connection has been made a hole.
        self.swallowed = asyncio.Event()
        self.accepted = 0
        self.port = 0

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Line]:
        """Serve for the length of a block."""
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            self.thaw()  # what is frozen would not end
            self.cut()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def freeze(self) -> None:
        """Forward nothing from now on, in neither direction, and say nothing about it."""
        self._open.clear()

    def thaw(self) -> None:
        """Go on."""
        self._open.set()

    def swallow(self, bait: bytes, *, answer: bool = False) -> None:
        """Make a hole of the next connection over which somebody sends this, or the server does; all others go on."""
        self._bait, self._bait_asks = bait, not answer

    def cut(self) -> None:
        """End every connection."""
        for writer in self._writers:
            writer.transport.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.add(writer)
        self.accepted += 1
        try:
            await self._open.wait()
            host, port = self._server.host, self._server.port or 5432
            there = (
                await asyncio.open_unix_connection(f"{host}/.s.PGSQL.{port}")
                if host.startswith("/")
                else await asyncio.open_connection(host, port)
            )
            self._writers.add(there[1])
            async with asyncio.TaskGroup() as both:
                hole = asyncio.Event()
                both.create_task(self._forward(reader, there[1], hole, asks=True))
                both.create_task(self._forward(there[0], writer, hole))
        except* OSError:
            pass
        finally:
            writer.transport.abort()
            self._writers.discard(writer)
            self._tasks.discard(task)

    async def _forward(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, hole: asyncio.Event, *, asks: bool = False
    ) -> None:
        try:
            while data := await reader.read(65536):
                await self._open.wait()
                if asks is self._bait_asks and self._bait is not None and self._bait in data:
                    self._bait = None
                    hole.set()
                    self.swallowed.set()
                if hole.is_set():
                    continue
                writer.write(data)
                await writer.drain()
        finally:
            # One end that is closed closes the other, but only once word of it gets through.
            await self._open.wait()
            writer.close()


class BlackHole:
    """A port whose connections are never accepted: its queue is full, so that the SYN is dropped."""

    def __init__(self) -> None:
        self._listener = socket.socket()
        self._listener.bind(("127.0.0.1", 0))
        self._listener.listen(0)
        self.port: int = self._listener.getsockname()[1]
        self._callers = [socket.socket() for _ in range(4)]
        for caller in self._callers:
            caller.setblocking(False)
            caller.connect_ex(("127.0.0.1", self.port))

    def close(self) -> None:
        """Give the port back."""
        for one in (*self._callers, self._listener):
            one.close()


def over_lines(url: str, *ports: int, query: str = "") -> str:
    """The same database and login over these ports of this machine."""
    parts = urlsplit(url)
    login = parts.netloc.rpartition("@")[0]
    hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
    return f"postgresql://{login}{'@' if login else ''}{hosts}{parts.path}{f'?{query}' if query else ''}"

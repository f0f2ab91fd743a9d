"""A proxy that cuts connections at random points, in both directions."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

__all__ = ["Cutter"]

_MOST_BYTES = 1500


class Cutter:
    """Forwards to an address. While it is `sharp`, every second connection is cut after a random number of bytes."""

    def __init__(self, host: str, port: int, chance: random.Random) -> None:
        self._to, self._chance = (host, port), chance
        self.sharp = True
        self.cuts = 0
        self.url = ""
        self._tasks: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Cutter]:
        """Listen on a port of its own."""
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            server.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            with suppress(asyncio.CancelledError):  # the streams' own callback would log it
                await self._forward(reader, writer)
        finally:
            self._tasks.discard(task)
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection(*self._to)
        except OSError:
            return
        try:
            there = asyncio.ensure_future(self._pipe(reader, far_writer))
            back = asyncio.ensure_future(self._pipe(far_reader, writer))
            await asyncio.wait({there, back}, return_when=asyncio.FIRST_COMPLETED)
            for pipe in (there, back):
                pipe.cancel()
            await asyncio.gather(there, back, return_exceptions=True)
        finally:
            far_writer.close()
            with suppress(OSError):
                await far_writer.wait_closed()

    async def _pipe(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        left = self._chance.randrange(_MOST_BYTES) if self._chance.random() < 0.5 else None
        with suppress(OSError):
            while chunk := await reader.read(4096):
                if left is not None and self.sharp:
                    chunk, left = chunk[:left], left - len(chunk)
                writer.write(chunk)
                await writer.drain()
                if left is not None and left <= 0 and self.sharp:
                    self.cuts += 1
                    return

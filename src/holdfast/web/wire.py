"""What the event loop sees of a connection: a protocol whose buffer is small, and shared by all connections.

uvicorn's protocol is an `asyncio.Protocol`. uvloop passes data to any such protocol in pieces of up to 256 KiB, even if
it has its own buffer. So this class only wraps one.
"""

from __future__ import annotations

import asyncio
from typing import Any

from holdfast.web.impatient import Impatient

__all__ = ["Wire"]


class Wire(asyncio.BufferedProtocol):
    """One connection, read 16 KiB at a time; what is dropped anyway, as much at a time as the kernel has."""

    #: The loop fills it, and passes it on before it reads anything else.
    _buffer = memoryview(bytearray(16 * 1024))
    _rubbish = memoryview(bytearray(128 * 1024))

    def __init__(self, **options: Any) -> None:
        self._connection = Impatient(**options)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - the loop asks like this
        """Where to put what is read next."""
        return self._rubbish if self._connection.drops else self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """This number of bytes was read."""
        if self._connection.drops:
            self._connection.drop(nbytes)
        else:
            self._connection.data_received(bytes(self._buffer[:nbytes]))

    def connection_made(self, transport: Any) -> None:
        """Somebody has connected."""
        self._connection.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Gone."""
        self._connection.connection_lost(exc)

    def eof_received(self) -> bool:
        """The client sends no more. Returns whether the connection stays open."""
        return self._connection.end_of_data()

    def pause_writing(self) -> None:
        """The client does not read as fast as it is answered."""
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        """It has read almost everything."""
        self._connection.resume_writing()

"""Connections that cannot fill the server's memory: what the HTTP parser would keep is bounded before it is kept.

1. The request target and the header fields take 64 KiB together, at most 256 fields. More is answered with 431, and
   the connection ends. So is anything else that the parser reads without end: empty lines, chunk extensions, trailers.
2. Trailers are read and dropped: a field that follows the body never counts as a header.
3. Of requests sent ahead of their turn (pipelining) one is parsed; the rest waits as bytes, and nothing more is read.

The parser says nothing of a field until it is whole, so data is handed to it in slices. A slice of which it made
nothing belongs to the field under way: such slices are counted, and then replaced by the size of the field.
"""

from __future__ import annotations

import asyncio
from typing import Any

from pydantic_core import to_json
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from holdfast.web.problems import Problem

__all__ = ["Bounded"]

HEAD_LIMIT = 64 * 1024
FIELD_LIMIT = 256
_SLICE = 8 * 1024
#: After a refusal the client may still be sending. Closed at once, the connection would be reset before it has read
#: the answer: so it is closed this much later, and this much is read until then.
_LINGER_SECONDS = 1.0
_LINGER_BYTES = 1024 * 1024

#: What a field takes beside its name and value: colon, space, end of line.
_FIELD_BYTES = 4


class _TooLarge(Exception):
    """Ends the parsing."""


class Bounded(HttpToolsProtocol):
    """One connection."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._in_head = True
        self._bytes = self._fields = 0  # of the header section under way, or of the trailers
        self._unheard = 0  # bytes of the whole slices since the parser last reported something
        self._heard = False
        self._waiting = b""
        self._excess = False
        self._lingering: asyncio.TimerHandle | None = None
        self._refused, self._dropped = False, 0

    def data_received(self, data: bytes) -> None:
        """Hand on what came, unless it has to wait or nobody wants it any more."""
        if self._refused:
            self._drop(len(data))
            return
        data, self._waiting = self._waiting + data, b""
        rest = memoryview(data)
        while rest and not self._refused and not self.transport.is_closing():
            if self.pipeline:
                self._waiting = bytes(rest)
                self.flow.pause_reading()
                return
            self._parse(rest[:_SLICE])
            rest = rest[_SLICE:]

    def on_message_begin(self) -> None:
        """A request begins."""
        self._heard, self._in_head = True, True
        self._bytes = self._fields = self._unheard = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """A part of the request target."""
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """A whole field: a header or a trailer."""
        self._fields += 1
        self._count(max(self._unheard, len(name) + len(value) + _FIELD_BYTES))
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """What follows is the body; fields behind it are trailers."""
        self._heard, self._in_head = True, False
        self._bytes = self._fields = self._unheard = 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A part of the body; how large that may be is decided where it is read."""
        self._heard, self._unheard = True, 0
        super().on_body(body)

    def on_response_complete(self) -> None:
        """Answered: what was sent ahead has its turn."""
        super().on_response_complete()
        if self._waiting and not self.pipeline:
            self.data_received(b"")

    def send_400_response(self, msg: str) -> None:
        """The parser could not, or must not, go on."""
        if self._excess:
            fields = f"{HEAD_LIMIT} bytes with the address, and {FIELD_LIMIT} fields"
            self._refuse(Problem(431, "headers-too-large", f"Headers may have {fields}; so may trailers."))
        else:
            self._refuse(Problem(400, "bad-request", msg))

    def connection_lost(self, exc: Exception | None) -> None:
        """Gone."""
        if self._lingering is not None:
            self._lingering.cancel()
        self._waiting = b""
        super().connection_lost(exc)

    def _parse(self, piece: memoryview) -> None:
        self._heard = False
        super().data_received(piece)  # type: ignore[arg-type]  # the parser takes any buffer
        if not self._heard:
            self._unheard += len(piece)
            if self._bytes + self._unheard > HEAD_LIMIT and not self._refused:
                self._excess = True
                self.send_400_response("")

    def _count(self, size: int) -> None:
        self._heard, self._unheard = True, 0
        self._bytes += size
        if self._bytes > HEAD_LIMIT or self._fields > FIELD_LIMIT:
            self._excess = True
            raise _TooLarge  # the parser stops, and `send_400_response` is called

    def _refuse(self, problem: Problem) -> None:
        """Answer by itself: there is no request yet, or none that can be served."""
        self._refused = True
        if self.cycle is not None and not self.cycle.response_complete:
            if self._in_head:
                self.cycle.keep_alive = False  # an earlier request: it is answered, and then the connection ends
                return
            self.cycle.disconnected = True
            self.cycle.message_event.set()
            if self.cycle.response_started or self.pipeline:
                self.transport.close()
                return
        body = to_json(problem.body())
        fields = [
            *self.server_state.default_headers,
            (b"content-type", b"application/problem+json"),
            (b"content-length", str(len(body)).encode()),
            (b"connection", b"close"),
        ]
        head = b"".join(b"%b: %b\r\n" % field for field in fields)
        self.transport.write(STATUS_LINE[problem.status] + head + b"\r\n" + body)
        self.transport.write_eof()
        self._lingering = self.loop.call_later(_LINGER_SECONDS, self.transport.abort)

    def _drop(self, size: int) -> None:
        self._dropped += size
        if self._dropped > _LINGER_BYTES:
            self.flow.pause_reading()

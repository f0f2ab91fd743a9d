"""Connections that cannot fill the server's memory: what the HTTP parser would keep is bounded before it is kept.

1. The request target and the header fields take 64 KiB together, at most 256 fields. More is answered with 431, and
   the connection ends. So is anything else that the parser reads without end: empty lines, chunk extensions, trailers.
2. Trailers are read and dropped: a field that follows the body never counts as a header.
3. All connections together have 16 MiB for headers of more than 8 KiB, until their requests are answered. Where there
   is no room, such a request is answered with 503; smaller ones always pass.
4. Of a body 8 KiB are read ahead of whoever wants it, so that what nobody has asked for, or let in, is not kept.
5. An answer that ends the connection while the body is still under way can be read by whoever sends it.
6. Of requests sent ahead of their turn (pipelining) one or two are parsed; the rest waits as bytes, and nothing more
   is read. A parsed request takes thirty times as much memory as its bytes.
7. An upgrade to another protocol is not made: the request is answered as if it had not been offered.
8. Answers that are not read are not kept for ever (see holdfast.web.unread).

The parser says nothing of a field until it is whole, so data is handed to it in slices. A slice of which it made
nothing belongs to the field under way: such slices are counted, and then replaced by the size of the field. It cannot
be stopped within a slice either: so a slice ends where a header section may end.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any, NoReturn, cast

import httptools
from pydantic_core import to_json
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from holdfast.web.problems import Problem
from holdfast.web.unread import Unread

__all__ = ["Bounded"]

HEAD_LIMIT = 64 * 1024
FIELD_LIMIT = 256
_SLICE = 8 * 1024
#: A header section ends with an empty line. Those before a request do not count, so they do not make slices short.
_HEAD_END = re.compile(rb"[^\r\n]\r\n\r\n")
#: In a body an empty line may be anything: slices get no shorter than this.
_SLIVER = 256
#: What all connections of the process may keep in heads that are larger than a slice.
_HEADS_LIMIT = 16 * 1024 * 1024
_AHEAD = 8 * 1024
#: After a refusal the client may still be sending. Closed at once, the connection would be reset before it has read
#: the answer: so it is closed this much later, and this much is read until then.
_LINGER_SECONDS = 1.0
_LINGER_BYTES = 1024 * 1024

#: What a field takes beside its name and value: colon, space, end of line.
_FIELD_BYTES = 4


_EXCESS = Problem(
    431,
    "headers-too-large",
    f"Headers may have {HEAD_LIMIT} bytes with the address, and {FIELD_LIMIT} fields; so may trailers.",
)


class _Stop(Exception):
    """Ends the parsing."""


class Bounded(HttpToolsProtocol):
    """One connection. It has to be wrapped in a `Wire`, or the event loop hands over more at once than it should."""

    _heads = 0  # of all connections
    unread = Unread()

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._in_head, self._in_body = True, False
        self._bytes = self._fields = 0  # of the header section under way, or of the trailers
        self._unheard = 0  # bytes of the whole slices since the parser last reported something
        self._heard = False
        self._waiting = b""
        self._problem: Problem | None = None
        self._lingering: asyncio.TimerHandle | None = None
        self._refused, self._dropped = False, 0
        self._charged = 0  # of `_heads`

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
            rest = rest[self._parse(self._next_piece(rest)) :]

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
        if self._offers_upgrade():
            return  # the parser stops here, and the request begins anew without the offer
        self._heard, self._in_head, self._in_body = True, False, True
        self._bytes = self._fields = self._unheard = 0
        before = self.cycle
        super().on_headers_complete()
        if self.cycle is not before:
            self.cycle.transport = cast("asyncio.Transport", _Gentle(self, self.cycle))

    def on_body(self, body: bytes) -> None:
        """A part of the body; how large that may be is decided where it is read."""
        self._heard, self._unheard = True, 0
        super().on_body(body)
        if self.cycle is not None and len(self.cycle.body) > _AHEAD:
            self.flow.pause_reading()  # until somebody reads the body

    def on_message_complete(self) -> None:
        """The request is whole; another one may follow."""
        self._in_body = False
        if not self._offers_upgrade():
            super().on_message_complete()

    def on_response_complete(self) -> None:
        """Answered: what was sent ahead has its turn."""
        self._charge(0)
        if not self.pipeline:
            self.cycle.body = bytearray()  # nobody has read it, and the connection may stay
        super().on_response_complete()
        if self._waiting and not self.pipeline:
            self.data_received(b"")
        if self._waiting:
            self.flow.pause_reading()  # an answer lets more be read, but not while something waits

    def send_400_response(self, msg: str) -> None:
        """The parser could not, or must not, go on."""
        self._refuse(self._problem or Problem(400, "bad-request", msg))

    def stop(self, problem: Problem) -> NoReturn:
        """While something is parsed: answer with this, and parse no more."""
        self._problem = problem
        raise _Stop  # the parser stops, and `send_400_response` is called

    def pause_writing(self) -> None:
        """The client does not read as fast as it is answered."""
        super().pause_writing()
        self.unread.begin(self.transport)

    def resume_writing(self) -> None:
        """It has read almost everything."""
        self.unread.end(self.transport)
        super().resume_writing()

    def shutdown(self) -> None:
        """The server stops: nobody is waited for any longer."""
        if self._lingering is not None:
            self.transport.abort()
        else:
            super().shutdown()

    def connection_lost(self, exc: Exception | None) -> None:
        """Gone."""
        if self._lingering is not None:
            self._lingering.cancel()
        self._waiting = b""
        self._charge(0)
        self.unread.end(self.transport)
        super().connection_lost(exc)

    def _next_piece(self, rest: memoryview) -> memoryview:
        """So much that no more than one header section ends in it, or few."""
        piece = rest[:_SLICE]
        end = _HEAD_END.search(piece)
        if end is None:
            return piece
        return piece[: max(end.end(), _SLIVER) if self._in_body else end.end()]

    def _parse(self, piece: memoryview) -> int:
        """Hand a piece to the parser; how much of it the parser has taken."""
        self._heard = False
        self._unset_keepalive_if_required()
        try:
            taken = self._feed(piece)
        except httptools.HttpParserError:
            fault = "Invalid HTTP request received."
            if self._problem is None:
                self.logger.warning(fault)
            self.send_400_response(fault)
            return len(piece)
        if not self._heard:
            self._unheard += len(piece)
            if self._bytes + self._unheard > HEAD_LIMIT and not self._refused:
                self._refuse(_EXCESS)
        if self._in_head and not self._refused:
            self._make_room(self._bytes + self._unheard)
        return taken

    def _feed(self, piece: memoryview) -> int:
        try:
            self.parser.feed_data(piece)
        except httptools.HttpParserUpgrade as stop:
            if self._offers_upgrade():
                self._decline_upgrade()
            return int(stop.args[0])
        return len(piece)

    def _offers_upgrade(self) -> bool:
        return self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT"

    def _decline_upgrade(self) -> None:
        """Have the header section read again without the offer, by a parser that has not taken it for the last one.

        The parser believes that another protocol begins behind such a section, even if there is a body.
        """
        method, version = self.parser.get_method(), self.parser.get_http_version().encode()
        fields = b"".join(b"%b: %b\r\n" % field for field in self.headers if field[0] != b"upgrade")
        head = b"%b %b HTTP/%b\r\n%b\r\n" % (method, self.url, version, fields)
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self.parser.feed_data(head)

    def _make_room(self, size: int) -> None:
        if size > max(_SLICE, self._charged):
            if Bounded._heads + size - self._charged > _HEADS_LIMIT:
                self._refuse(Problem(503, "unavailable", "Too many large headers are being sent at once."))
            else:
                self._charge(size)

    def _charge(self, size: int) -> None:
        Bounded._heads += size - self._charged
        self._charged = size

    def _count(self, size: int) -> None:
        self._heard, self._unheard = True, 0
        self._bytes += size
        if self._bytes > HEAD_LIMIT or self._fields > FIELD_LIMIT:
            self.stop(_EXCESS)

    def _refuse(self, problem: Problem) -> None:
        """Answer by itself: there is no request yet, or none that can be served."""
        self._refused = True
        if self._in_body and self.cycle is not None and self.cycle.response_complete:
            self.transport.close()  # answered before its body had ended: a request has one answer
            return
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
            *((name.lower().encode(), value.encode()) for name, value in problem.headers.items()),
        ]
        head = b"".join(b"%b: %b\r\n" % field for field in fields)
        self.transport.write(STATUS_LINE[problem.status] + head + b"\r\n" + body)
        self.linger()

    def linger(self) -> None:
        """End the connection as soon as whoever still sends can have read the answer."""
        self._refused = True
        self.flow.resume_reading()
        self.transport.write_eof()
        self._lingering = self.loop.call_later(_LINGER_SECONDS, self.transport.abort)

    def _drop(self, size: int) -> None:
        self._dropped += size
        if self._dropped > _LINGER_BYTES:
            self.flow.pause_reading()


class _Gentle:
    """The transport as one request has it. Closed while the body is still under way, it lingers."""

    __slots__ = ("_cycle", "_protocol")

    def __init__(self, protocol: Bounded, cycle: RequestResponseCycle) -> None:
        self._protocol, self._cycle = protocol, cycle

    def close(self) -> None:
        transport = self._protocol.transport
        if self._cycle.more_body and self._cycle.response_complete and not transport.is_closing():
            self._protocol.linger()
        else:
            transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._protocol.transport, name)

"""Connections that cannot fill the server's memory: data is bounded before the HTTP parser stores it.

1. The request target and the header fields may have 64 KiB together, and at most 256 fields. More is answered with 431,
   and the connection ends. The same limit applies to empty lines, chunk extensions and trailers.
2. Of the fields, those that no route reads are dropped as they arrive (see holdfast.web.fields). Trailers are dropped,
   too: a field that follows the body never counts as a header.
3. All connections together have 16 MiB for headers that take more than 8 KiB of memory, until their requests are
   answered. If there is no room, such a request is answered with 503; smaller ones are always accepted. Of a request
   that was answered, nothing is kept, however long its connection stays.
4. A body is parsed when the route asks for it, a slice at a time, as a part of the request's own steps: chunks of one
   byte cost thousands of calls per read. Until then, up to 24 KiB of it wait as bytes, and nothing more is read.
5. If a request is answered before the last chunk of its body, the rest is not parsed, and the connection ends, unless
   that rest has arrived and is short. If an answer ends the connection while the body is still being sent, the client
   can still read the answer.
6. Of pipelined requests, one or two are parsed; the rest waits as bytes, and nothing more is read. A parsed request
   takes thirty times as much memory as its bytes. Clients that go away meanwhile are noticed (see
   holdfast.web.hangups).
7. An upgrade to another protocol is not made: the request is answered as if the upgrade had not been offered.
8. Answers that are not read are not kept forever (see holdfast.web.unread).
9. Two fields with a host, or with a key, are refused; so is any transfer coding but `chunked`.

The parser does not report a field until it is complete, so it gets data in slices. A slice without a report belongs to
the current field: such slices are counted, and then replaced by the size of the field. The parser cannot be stopped
within a slice either, so a slice ends where a header section may end.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import struct
from typing import Any, NoReturn, cast

import httptools
from pydantic_core import to_json
from uvicorn._types import ASGI3Application, ASGIReceiveCallable, ASGISendCallable, ASGISendEvent, Scope
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from holdfast.web.fields import is_read
from holdfast.web.flow import Flow, GentleTransport
from holdfast.web.hangups import HangUps
from holdfast.web.problems import Problem
from holdfast.web.unread import Unread

__all__ = ["Bounded"]

HEAD_LIMIT = 64 * 1024
FIELD_LIMIT = 256
_SLICE = 8 * 1024
#: Of a body in chunks: how much is parsed before others may have a turn.
_CHUNKED_SLICE = 1024
#: A header section ends with an empty line. Those before a request do not count, so they do not make slices short.
_HEAD_END = re.compile(rb"[^\r\n]\r\n\r\n")
#: In a body an empty line has no meaning, so slices are at least this long.
_SLIVER = 256
#: How much all connections of the process may store in heads that are larger than a slice.
_HEADS_LIMIT = 16 * 1024 * 1024
#: After a refusal the client may still be sending. If the connection were closed at once, it would be reset before the
#: client has read the answer. So it is closed this much later, and up to this much is read until then.
_LINGER_SECONDS = 1.0
_LINGER_BYTES = 1024 * 1024
#: With more than this beyond what the kernel takes, an answer counts as unread.
_UNSENT = 8 * 1024
#: For SO_LINGER: the connection is reset when it is closed.
_RESET = struct.pack("ii", 1, 0)

#: What a field takes beside its name and value: colon, space, end of line; and how much memory it takes.
_FIELD_BYTES, _FIELD_MEMORY = 4, 160
#: Proxies and servers that each choose another one of two would be led astray.
_ONCE = frozenset({b"host", b"authorization"})

_EXCESS = Problem(
    431,
    "headers-too-large",
    f"Headers may have {HEAD_LIMIT} bytes with the address, and {FIELD_LIMIT} fields; so may trailers.",
)


_CROWDED = Problem(503, "unavailable", "Too many large headers are being sent at once.")
#: In place of a request that was answered.
_NOTHING = cast("Any", {})


class _Stop(Exception):
    """Ends the parsing."""


class Bounded(HttpToolsProtocol):
    """One connection. It has to be wrapped in a `Wire`, or the event loop hands over more at once than it should."""

    flow: Flow
    _heads = 0  # of all connections
    unread = Unread()
    hangups = HangUps()

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
        self._kept = 0  # memory of the head under way, as far as it is kept once it is complete
        self._charged = 0  # of `_heads`, for the head under way
        self._unanswered: dict[RequestResponseCycle, int] = {}  # with what they are charged of `_heads`
        self._chunked, self._unwanted = False, False

    def connection_made(self, transport: Any) -> None:
        """Somebody has connected."""
        super().connection_made(transport)
        self.transport.set_write_buffer_limits(_UNSENT)
        self.flow = Flow(self)

    @property
    def drops(self) -> bool:
        """Whether everything that still comes is dropped."""
        return self._refused or self._unwanted

    def drop(self, size: int) -> None:
        """This much was read for nothing."""
        self._dropped += size
        if self._dropped > _LINGER_BYTES:
            self.flow.pause_reading()

    def data_received(self, data: bytes) -> None:
        """Parse data, unless it has to wait or is no longer wanted."""
        if self.drops:
            self.drop(len(data))
            return
        self._waiting += data
        while self._waiting and not self._refused and not self.transport.is_closing():
            if self.pipeline:
                self.flow.pause_reading()
                return
            if self._in_body and not self.cycle.response_complete:
                if len(self._waiting) > _SLICE:
                    self.flow.pause_reading()
                self.cycle.message_event.set()  # whoever waits for the body asks again
                return
            self._parse_next()

    def ask(self) -> None:
        """A route asks for its body, or everything was answered: what waits comes first, then more is read."""
        if self._waiting and self._in_body and not (self.pipeline or self._refused or self.cycle.response_complete):
            self._parse_next()
            if self._waiting:
                self.data_received(b"")
        if not self._waiting:
            self.flow.read_on()

    def on_message_begin(self) -> None:
        """A request begins."""
        self._heard, self._in_head = True, True
        self._bytes = self._fields = self._unheard = self._kept = 0
        self._chunked = False
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """A part of the request target."""
        self._count(len(url))
        self._kept += len(url)
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """A whole field: a header or a trailer."""
        self._fields += 1
        self._count(max(self._unheard, len(name) + len(value) + _FIELD_BYTES))
        name = name.lower()
        if self._in_head and is_read(name):
            self._check(name, value)
            self._kept += len(name) + len(value) + _FIELD_MEMORY
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """What follows is the body; fields behind it are trailers."""
        if self._offers_upgrade():
            return  # the parser stops here, and the request begins anew without the offer
        self._charge(0)  # what was dropped counts no longer
        if not self._make_room(self._kept):
            self.stop(_CROWDED)
        self._heard, self._in_head, self._in_body = True, False, True
        self._bytes = self._fields = self._unheard = 0
        before = self.cycle
        super().on_headers_complete()
        self.url = b""
        if self.cycle is not before:
            self._unanswered[self.cycle], self._charged = self._charged, 0
            self.cycle.transport = cast("asyncio.Transport", GentleTransport(self, self.cycle))

    def on_body(self, body: bytes) -> None:
        """A part of the body; how large that may be is decided where it is read."""
        self._heard, self._unheard = True, 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is complete; another one may follow."""
        self._in_body = False
        if not self._offers_upgrade():
            super().on_message_complete()

    def on_response_complete(self) -> None:
        """The request was answered: pipelined requests get their turn."""
        for cycle in [cycle for cycle in self._unanswered if cycle.response_complete]:
            self._forget(cycle)
        super().on_response_complete()
        if self._waiting:
            self.data_received(b"")
            self.ask()

    def send_400_response(self, msg: str) -> None:
        """The parser failed, or has to stop."""
        self._refuse(self._problem or Problem(400, "bad-request", msg))

    def stop(self, problem: Problem) -> NoReturn:
        """While something is parsed: answer with this, and parse no more."""
        self._problem = problem
        raise _Stop  # the parser stops, and `send_400_response` is called

    def pause_writing(self) -> None:
        """The client does not read as fast as it is answered."""
        super().pause_writing()
        under_way = next(iter(self._unanswered), None)
        steps = None if under_way is None else cast("Any", under_way.scope).get("steps")
        self.unread.begin(self.transport, self.reset, party=None if steps is None else steps.tenant)

    def resume_writing(self) -> None:
        """It has read almost everything."""
        self.unread.end(self.transport)
        super().resume_writing()

    def shutdown(self) -> None:
        """The server stops: it does not wait any longer."""
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
        self.hangups.leave(self.transport)
        self._give_answers_up()
        Bounded._heads -= sum(self._unanswered.values())
        self._unanswered.clear()
        super().connection_lost(exc)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        if cycle is self.cycle and not self._chunked:
            super()._start_asgi_task(cycle, app)
            return

        async def answer(scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
            async def sending(message: ASGISendEvent) -> None:
                if cycle.more_body and self._chunked and message["type"] == "http.response.start":
                    self._leave_rest(cycle)
                await send(message)

            await app(scope, receive, sending)

        super()._start_asgi_task(cycle, answer)

    def _leave_rest(self, cycle: RequestResponseCycle) -> None:
        """The request is answered without the rest of its body, so the connection cannot serve another one.

        Unless the rest is here, and short.
        """
        if len(self._waiting) <= _CHUNKED_SLICE:
            self.ask()
        if not cycle.more_body:
            return
        cycle.keep_alive = False
        self._unwanted, self._waiting = True, b""
        self.flow.read_on()

    def _forget(self, cycle: RequestResponseCycle) -> None:
        """Keep nothing of a request that was answered: its connection may stay, and the next head may be under way."""
        Bounded._heads -= self._unanswered.pop(cycle)
        if self.scope is cycle.scope:
            self.scope, self.headers = _NOTHING, []
        cycle.scope, cycle.body = _NOTHING, bytearray()

    def _check(self, name: bytes, value: bytes) -> None:
        if name in _ONCE and any(name == other for other, _ in self.headers):
            self.stop(Problem(400, "bad-request", f"A request may have one {name.decode()} field."))
        if name == b"transfer-encoding":
            if self._chunked or value.strip().lower() != b"chunked":
                self.stop(Problem(400, "bad-request", "The only transfer coding that is understood is chunked."))
            self._chunked = True

    def _parse_next(self) -> None:
        waiting = memoryview(self._waiting)
        taken = self._parse(self._next_piece(waiting))
        self._waiting = b"" if self._refused or taken == len(waiting) else bytes(waiting[taken:])

    def _next_piece(self, rest: memoryview) -> memoryview:
        """The next slice: at most one header section, or a few, end in it."""
        piece = rest[: _CHUNKED_SLICE if self._in_body and self._chunked else _SLICE]
        end = _HEAD_END.search(piece)
        if end is None:
            return piece
        return piece[: max(end.end(), _SLIVER) if self._in_body else end.end()]

    def _parse(self, piece: memoryview) -> int:
        """Pass a piece to the parser; returns how much the parser has taken."""
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
            size = self._bytes + self._unheard + self._fields * _FIELD_MEMORY
            if not self._make_room(size):
                self._refuse(_CROWDED)
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

    def _make_room(self, size: int) -> bool:
        """Room for the head under way; whether there is any."""
        if size > max(_SLICE, self._charged):
            if Bounded._heads + size - self._charged > _HEADS_LIMIT:
                return False
            self._charge(size)
        return True

    def _charge(self, size: int) -> None:
        Bounded._heads += size - self._charged
        self._charged = size

    def _count(self, size: int) -> None:
        self._heard, self._unheard = True, 0
        self._bytes += size
        if self._bytes > HEAD_LIMIT or self._fields > FIELD_LIMIT:
            self.stop(_EXCESS)

    def _refuse(self, problem: Problem) -> None:
        """Answer directly: there is no request yet, or none that can be served."""
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

    def reset(self) -> None:
        """End the connection at once, and drop what was not sent yet: the kernel does not keep it either."""
        self._give_answers_up()
        sock = self.transport.get_extra_info("socket")
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self.transport.abort()

    def _give_answers_up(self) -> None:
        """Nothing is written any more: that would be an error in the log."""
        for cycle in self._unanswered:
            cycle.disconnected = True
            cycle.message_event.set()

    def linger(self) -> None:
        """End the connection once the client, which may still be sending, can have read the answer."""
        self._refused, self._waiting = True, b""
        self.flow.read_on()
        self.transport.write_eof()
        self._lingering = self.loop.call_later(_LINGER_SECONDS, self.transport.abort)

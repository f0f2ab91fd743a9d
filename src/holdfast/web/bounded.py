"""Connections that cannot fill the server's memory: data is bounded before the HTTP parser stores it.

1. Heads are counted as they arrive (see holdfast.web.heads); so are empty lines, chunk extensions and trailers.
2. A body is parsed when the route asks for it, a slice at a time, as a part of the request's own steps: chunks of one
   byte cost thousands of calls per read. Until then, up to 24 KiB of it wait as bytes, and nothing more is read.
3. If a request is answered before the end of its body, the rest is dropped, and the connection ends, unless that rest
   has arrived and is short, or was announced and is shorter than a slice. If an answer ends the connection while the
   body is still being sent, the client can still read the answer.
4. Of pipelined requests, one or two are parsed; the rest waits as bytes, and nothing more is read. A parsed request
   takes thirty times as much memory as its bytes. Clients that go away meanwhile are noticed (see
   holdfast.web.hangups).
5. Heads are parsed for a millisecond in each round of the loop; what comes then waits in line, a slice of 8 KiB at
   a time: a thousand large heads at once do not stop the loop. Callers with a known key have a line of their own. Heads
   of a usual size do not wait: a connection may send 2 KiB of them a second, a caller's any number.
   Of connections whose data is dropped, a few have their turn in each round.
6. A client that sends no more (it has closed its side) gets the answers to what it has sent, if that is soon. A wait
   or a stream ends then: most such clients are gone.
7. Answers that are not read are not kept forever (see holdfast.web.unread).
8. An upgrade to another protocol is not made (see holdfast.web.upgrades).

The parser does not report a field until it is complete, so it gets data in slices. A slice without a report belongs to
the current field: such slices are counted, and then replaced by the size of the field. The parser cannot be stopped
within a slice either, so a slice ends where a header section may end.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import time
from typing import Any, cast

import httptools
from pydantic_core import to_json
from uvicorn._types import ASGI3Application, ASGIReceiveCallable, ASGISendCallable, ASGISendEvent, Scope
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

from holdfast.web.budget import Budget
from holdfast.web.flow import Flow, GentleTransport
from holdfast.web.hangups import HangUps
from holdfast.web.heads import CROWDED, EXCESS, FIELD_MEMORY, HEAD_LIMIT, SLICE, Heads, end_of_head, path_memory
from holdfast.web.prefer import asks_to_wait
from holdfast.web.problems import Problem
from holdfast.web.ration import Ration
from holdfast.web.unread import Unread

__all__ = ["Bounded"]

#: Of a body in chunks: how much is parsed before others may have a turn.
_CHUNKED_SLICE = 1024
#: In a body an empty line has no meaning, so slices are at least this long.
_SLIVER = 256
#: After a refusal the client may still be sending. If the connection were closed at once, it would be reset before the
#: client has read the answer. So it is closed this much later, and up to this much is read until then.
_LINGER_SECONDS = 1.0
_LINGER_BYTES = 1024 * 1024
#: How long an answer may take once the client sends no more.
_HALF_CLOSED_SECONDS = 10.0
#: How long heads may be parsed in a round of the loop; a slice takes 0.03 to 0.5 ms.
_HEADS_SECONDS = 0.001
#: A caller's piece with no more lines is parsed at once.
_FEW_LINES = 64
_DROPS_IN_A_ROUND, _DROPS_SECONDS = 4, 0.001
#: With more than this beyond what the kernel takes, an answer counts as unread.
_UNSENT = 8 * 1024
#: For SO_LINGER: the connection is reset when it is closed.
_RESET = struct.pack("ii", 1, 0)

#: In place of a request that was answered.
_NOTHING = cast("Any", {})


class Bounded(Heads):
    """One connection. It has to be wrapped in a `Wire`, or the event loop hands over more at once than it should."""

    flow: Flow
    unread = Unread()
    hangups = HangUps()
    _strangers_heads, _callers_heads = Budget(_HEADS_SECONDS), Budget(_HEADS_SECONDS)
    _drops = Ration(_DROPS_IN_A_ROUND, _DROPS_SECONDS)

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._in_body = False
        self._lingering: asyncio.TimerHandle | None = None
        self._refused, self._dropped = False, 0
        self._unanswered: dict[RequestResponseCycle, int] = {}  # with what they are charged of `_heads`
        self._unwanted, self._has_turn = False, False
        self._heads_line = self._strangers_heads
        self._half_closed: asyncio.TimerHandle | None = None

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
        if self._dropped > _LINGER_BYTES or not self._drops.take(self, self.flow.read_on):
            self.flow.pause_reading()

    def data_received(self, data: bytes) -> None:
        """Parse data, unless it has to wait or is no longer wanted."""
        if self.drops:
            self.drop(len(data))
            return
        if data:
            self._waiting += data
            self._shows_key = None
        while self._waiting and not self._refused and not self.transport.is_closing():
            if self.pipeline:
                self.flow.pause_reading()
                return
            if self._in_body and not self.cycle.response_complete:
                if len(self._waiting) > SLICE:
                    self.flow.pause_reading()
                self.cycle.message_event.set()  # the reader of the body asks again
                return
            if not self._may_parse():
                self.flow.pause_reading()
                return
            self._parse_next()

    def ask(self) -> None:
        """A route asks for its body, or everything was answered: what waits comes first, then more is read."""
        if self._waiting and self._in_body and not (self.pipeline or self._refused or self.cycle.response_complete):
            self._parse_next()
            if self._waiting:
                self.data_received(b"")
        if self._waiting:
            return
        if self._half_closed is not None and self._in_body and self.cycle.more_body:
            self.transport.close()  # the rest will not come
        else:
            self.flow.read_on()

    def end_of_data(self) -> bool:
        """The client sends no more. Returns whether the connection stays until that is answered."""
        under_way = next(iter(self._unanswered), None)
        if self.drops or under_way is None or under_way.response_started or asks_to_wait(under_way.scope):
            return False
        self._half_closed = self.loop.call_later(_HALF_CLOSED_SECONDS, self.transport.abort)
        self.cycle.message_event.set()  # the reader of the body asks again
        return True

    def on_headers_complete(self) -> None:
        """What follows is the body; fields behind it are trailers."""
        if self.offers_upgrade():
            return  # the parser stops here, and the request begins anew without the offer
        if self.parser.get_http_version() == "1.1" and not any(name == b"host" for name, _ in self.headers):
            self.stop(Problem(400, "bad-request", "A request needs a Host field."))
        self._charge(0)  # what was dropped counts no longer
        if not self._make_room(self._kept + path_memory(self.url)):
            self.stop(CROWDED)
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
        self._left -= len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is complete; another one may follow."""
        self._in_body = False
        if not self.offers_upgrade():
            super().on_message_complete()

    def on_response_complete(self) -> None:
        """The request was answered: pipelined requests get their turn."""
        for cycle in [cycle for cycle in self._unanswered if cycle.response_complete]:
            self._forget(cycle)
        super().on_response_complete()
        if self._waiting:
            self.data_received(b"")
            self.ask()
        if self._half_closed is not None and self.cycle.response_complete and not self._waiting:
            self.transport.close()

    def send_400_response(self, msg: str) -> None:
        """The parser failed, or has to stop."""
        self._refuse(self._problem or Problem(400, "bad-request", msg))

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
        for timer in (self._lingering, self._half_closed):
            if timer is not None:
                timer.cancel()
        for line in (self._strangers_heads, self._callers_heads, self._drops):
            line.leave(self)
        self._waiting = b""
        self._charge(0)
        self.unread.end(self.transport)
        self.hangups.leave(self.transport)
        self._give_answers_up()
        Heads._heads -= sum(self._unanswered.values())
        self._unanswered.clear()
        super().connection_lost(exc)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        async def answer(scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
            async def sending(message: ASGISendEvent) -> None:
                if message["type"] == "http.response.start" and cycle.more_body:
                    self._leave_rest(cycle)
                await send(message)

            await app(scope, receive, sending if cycle.more_body else send)

        super()._start_asgi_task(cycle, answer)

    def _leave_rest(self, cycle: RequestResponseCycle) -> None:
        """The request is answered without the rest of its body, so the connection cannot serve another one.

        Unless the rest is here, and short. The end of a body in chunks is unknown, and a client that was to be told to
        go on with the body need not send it; of others a short rest is waited for.
        """
        if not self._chunked and not cycle.waiting_for_100_continue:
            if self._left <= max(SLICE, len(self._waiting)):
                return
        elif len(self._waiting) <= _CHUNKED_SLICE:
            self.ask()
        if not cycle.more_body:
            return
        cycle.keep_alive = False
        self._unwanted, self._waiting = True, b""
        self.flow.read_on()

    def _forget(self, cycle: RequestResponseCycle) -> None:
        """Keep nothing of a request that was answered: its connection may stay, and the next head may be under way."""
        Heads._heads -= self._unanswered.pop(cycle)
        if self.scope is cycle.scope:
            self.scope, self.headers = _NOTHING, []
        cycle.scope, cycle.body = _NOTHING, bytearray()

    def _may_parse(self) -> bool:
        """Whether the next piece is small, or it is its turn."""
        if self._has_turn or self._in_body:
            self._has_turn = False
            return True
        is_callers = self.is_callers()
        if self._waiting.count(b"\n", 0, SLICE) <= _FEW_LINES if is_callers else self.is_small():
            self._heads_line = self._callers_heads if is_callers else self._strangers_heads
            return True
        self._heads_line = self._callers_heads if self.comes_from_caller() else self._strangers_heads
        return self._heads_line.take(self, self._go_on)

    def _go_on(self) -> None:
        self._has_turn = True
        self.data_received(b"")
        self.ask()

    def _parse_next(self) -> None:
        began = time.perf_counter()
        waiting, in_head = memoryview(self._waiting), not self._in_body
        taken = self._parse(self._next_piece(waiting))
        self._waiting = b"" if self._refused or taken == len(waiting) else bytes(waiting[taken:])
        if in_head:
            self._heads_line.spend(time.perf_counter() - began)

    def _next_piece(self, rest: memoryview) -> memoryview:
        """The next slice: at most one header section, or a few, end in it."""
        piece = rest[: _CHUNKED_SLICE if self._in_body and self._chunked else SLICE]
        end = end_of_head(bytes(piece))
        if end is None:
            return piece
        return piece[: max(end, _SLIVER) if self._in_body else end]

    def _parse(self, piece: memoryview) -> int:
        """Pass a piece to the parser; returns how much the parser has taken."""
        self._heard = False
        self._unset_keepalive_if_required()
        try:
            taken = self.feed(piece)
        except httptools.HttpParserError:
            fault = "Invalid HTTP request received."
            if self._problem is None:
                self.logger.warning(fault)
            self.send_400_response(fault)
            return len(piece)
        if not self._heard:
            self._unheard += len(piece)
            if self._bytes + self._unheard > HEAD_LIMIT and not self._refused:
                self._refuse(EXCESS)
        if self._in_head and not self._refused:
            size = self._bytes + self._unheard + self._fields * FIELD_MEMORY
            if not self._make_room(size):
                self._refuse(CROWDED)
        return taken

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
        self.transport.write(STATUS_LINE[problem.status] + head + b"\r\n" + (b"" if self._asks_for_head() else body))
        self.linger()

    def _asks_for_head(self) -> bool:
        """Whether the request under way is known to be a HEAD: its answer has no body."""
        return self._in_head and bool(self.url) and self.parser.get_method() == b"HEAD"

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
            if (steps := cast("Any", cycle.scope).get("steps")) is not None:
                steps.give_up()

    def linger(self) -> None:
        """End the connection once the client, which may still be sending, can have read the answer."""
        self._refused, self._waiting = True, b""
        self.flow.read_on()
        self.transport.write_eof()
        self._lingering = self.loop.call_later(_LINGER_SECONDS, self.transport.abort)

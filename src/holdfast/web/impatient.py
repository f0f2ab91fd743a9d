"""Connections on which no request arrives are closed: uvicorn waits forever for the end of a request's headers.

They are also closed if there are too many connections (see holdfast.web.places).

The time runs from the opening of a connection to the end of the first headers, and from the first byte of a later
request to the end of its headers. Bodies are timed where they are read, idle connections by uvicorn itself.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

from holdfast.web.bounded import Bounded
from holdfast.web.places import Places
from holdfast.web.problems import Problem
from holdfast.web.proofs import key_ahead
from holdfast.web.standing import Standing

__all__ = ["Impatient"]

HEADER_SECONDS = 15.0


class Impatient(Bounded):
    """A connection that does not wait forever."""

    places = Places()
    _has_place = True
    _standing: Standing
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Somebody has connected."""
        super().connection_made(transport)
        self._begin()
        self._standing = Standing(self.places, self)
        self._has_place = self.places.take(self, self.client[0] if self.client else "")

    def data_received(self, data: bytes) -> None:
        """Data arrived. Once the headers are complete, a request is under way."""
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._end()
        elif self._timer is None:
            self._begin()

    def on_headers_complete(self) -> None:
        """A request is under way, if there is room for it."""
        if not self._has_place and self.places.crowded:
            self.stop(Problem(503, "unavailable", "Too many connections are open at once."))
        super().on_headers_complete()
        self._standing.attach(cast("Any", self.scope))
        self.places.begin(self)

    def _go_on(self) -> None:
        """It has its turn: whoever has begun does not give way to those who still wait for their first one."""
        self.places.stir(self)
        super()._go_on()

    def is_callers(self) -> bool:
        """Whether a caller was let in on the connection."""
        return self.places.is_callers(self)

    def shows_known_key(self, head: bytes) -> bool:
        """Whether the head under way, or what was not parsed yet, has the key of a caller who was let in before."""
        key = key_ahead(head)
        if key is None and self._in_head:
            key = next((value for name, value in self.headers or () if name == b"authorization"), None)
        return key is not None and cast("Any", self.config.app).state.holdfast.auth.steps.knows(key)

    def pause_writing(self) -> None:
        """The client does not read."""
        super().pause_writing()
        self.places.stall(self)

    def resume_writing(self) -> None:
        """The client reads again."""
        self.places.go_on(self)
        super().resume_writing()

    def on_response_complete(self) -> None:
        """The request was answered. uvicorn decides how long the connection may be idle."""
        self._end()
        super().on_response_complete()
        if self.cycle.response_complete:
            self.places.end(self)

    def give_way(self) -> None:
        """Another connection gets the place."""
        self._standing.gone = True
        self.connections.discard(self)  # uvicorn must not count it any longer
        self.reset()

    def connection_lost(self, exc: Exception | None) -> None:
        """Gone."""
        self._end()
        self._standing.gone = True
        self.places.leave(self)
        super().connection_lost(exc)

    def _begin(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(HEADER_SECONDS, self._give_up)

    def _end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self) -> None:
        self._timer = None
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()

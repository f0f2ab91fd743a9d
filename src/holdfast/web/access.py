"""Around every request: how long it took, what was answered, and to whom; never what was in it."""

from __future__ import annotations

import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.telemetry.bus import Bus
from holdfast.telemetry.events import RequestServed
from holdfast.web.metrics import Metrics

__all__ = ["Access"]

#: Methods that a client invents must not become labels without end.
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})

#: Asked every few seconds by whoever looks after the server: not worth a log line.
_ROUTINE = frozenset({"/livez", "/readyz", "/metrics"})
_WRONG = 400
#: The caller was gone before there was an answer; or something went wrong.
_GONE, _INTERNAL = 499, 500


class Access:
    """Counts, times and tells."""

    def __init__(self, app: ASGIApp, metrics: Metrics, bus: Bus) -> None:
        self._app, self._metrics, self._bus = app, metrics, bus

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, size, status = time.perf_counter(), 0, _GONE

        async def receiving() -> Message:
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            return message

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receiving, sending)
        except Exception:
            status = _INTERNAL if status == _GONE else status  # answered further out, where it is logged too
            raise
        finally:
            self._tell(scope, status, time.perf_counter() - began)
            if size:
                self._metrics.uploaded(_media_type(scope), size)

    def _tell(self, scope: Scope, status: int, seconds: float) -> None:
        method = scope["method"] if scope["method"] in _METHODS else "other"
        route = getattr(scope.get("route"), "path", "unknown")
        self._metrics.served(method, route, status, seconds)
        if (route not in _ROUTINE or status >= _WRONG) and self._bus.hears(RequestServed):
            caller = scope.get("state", {}).get("caller")
            self._bus.emit(
                RequestServed(
                    method=method,
                    route=route,
                    status=status,
                    duration_seconds=seconds,
                    tenant=caller.tenant if caller else None,
                    key=caller.name if caller else None,
                )
            )


def _media_type(scope: Scope) -> str:
    """The one that is taken, or `other`: what clients invent must not become labels."""
    given = next((value for name, value in scope["headers"] if name == b"content-type"), b"")
    return "application/json" if given.partition(b";")[0].strip().lower() == b"application/json" else "other"

"""Around every request: counts it, times it and publishes an event; never its content.

Each has an id (`X-Request-Id`, the caller's own if it sends one), which the answer, the log and the audit log name.
"""

from __future__ import annotations

import re
import time
from uuid import uuid4

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.telemetry.bus import Bus
from holdfast.telemetry.events import RequestServed
from holdfast.web.metrics import Metrics

__all__ = ["Access"]

#: Methods that clients invent must not become an unlimited number of labels.
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})

#: Probes that come every few seconds do not get a log line.
_ROUTINE = frozenset({"/livez", "/readyz", "/metrics"})
_WRONG = 400
_REQUEST_ID = b"x-request-id"
_FITTING = re.compile(rb"[A-Za-z0-9._:/+=-]{1,128}")
#: The caller closed the connection before there was an answer; or the server failed.
_GONE, _INTERNAL = 499, 500


class Access:
    """Counts, times and reports requests."""

    def __init__(self, app: ASGIApp, metrics: Metrics, bus: Bus) -> None:
        self._app, self._metrics, self._bus = app, metrics, bus

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, size, status = time.perf_counter(), 0, _GONE
        request_id = _request_id(scope)
        scope.setdefault("state", {})["request_id"] = request_id

        async def receiving() -> Message:
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            return message

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message = {**message, "headers": [*message.get("headers", ()), (_REQUEST_ID, request_id.encode())]}
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
                    request_id=scope["state"]["request_id"],
                )
            )


def _request_id(scope: Scope) -> str:
    """The request id that the caller or a proxy sent, if it is valid in a log; otherwise a new one."""
    for name, value in scope["headers"]:
        if name == _REQUEST_ID and _FITTING.fullmatch(value):
            return str(value, "ascii")
    return uuid4().hex


def _media_type(scope: Scope) -> str:
    """A known method, or `other`: invented ones must not become labels."""
    given = next((value for name, value in scope["headers"] if name == b"content-type"), b"")
    return "application/json" if given.partition(b";")[0].strip().lower() == b"application/json" else "other"

"""The query of an address: how many fields it may have. The framework reads all of them before it asks for a key."""

from __future__ import annotations

from fastapi import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast.web.problems import Problem

__all__ = ["QueriesMiddleware"]

#: No route has twenty. 31,000, which fit into an address, took 40 ms.
_MOST = 100


class QueriesMiddleware:
    """Around every request."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http" or scope["query_string"].count(b"&") < _MOST:
            await self._app(scope, receive, send)
            return
        problem = Problem(400, "bad-request", f"The query of an address may have at most {_MOST} fields.")
        await problem.response(Request(scope))(scope, receive, send)

"""`/livez`: this process answers. `/readyz`: a job could be recorded now, and this process is not about to stop.

An answer is at most a second old: one write serves all callers, so that probes cost the database next to nothing.
Probes bypass the framework, so callers without a key can send many of them cheaply.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from fastapi import APIRouter
from fastapi.routing import APIRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast.errors import DatabaseUnavailable, HoldfastError, SchemaError
from holdfast.lifecycle.shared import start_shared
from holdfast.web.problems import Problem, told

if TYPE_CHECKING:  # whose readiness this is
    from holdfast.web.state import AppState

__all__ = ["Probes", "Readiness", "health_router"]

_PATIENCE_SECONDS = 3.0
_FRESH_SECONDS = 1.0
_WELL = b'{"status":"ok"}'
_FIELDS = [(b"content-type", b"application/json"), (b"content-length", str(len(_WELL)).encode())]


class Readiness:
    """The result of the last check."""

    def __init__(self, state: AppState) -> None:
        self._state = state
        self._problem: Problem | None = None
        self._until = float("-inf")
        self._look: asyncio.Task[None] | None = None

    @property
    def is_given(self) -> bool:
        """Whether it is known, without a look, that a job could be recorded."""
        return not self._state.leaving and self._problem is None and time.monotonic() < self._until

    async def require(self) -> None:
        """A problem unless a job could be recorded."""
        if self._state.leaving:
            raise Problem(503, "unavailable", "This server is about to stop.")
        if time.monotonic() >= self._until:
            if self._look is None or self._look.done():
                self._look = start_shared(self._write(), name="readiness")
            await asyncio.shield(self._look)
        if self._problem is not None:
            raise self._problem

    async def _write(self) -> None:
        self._problem = await self._found()
        self._until = time.monotonic() + _FRESH_SECONDS

    async def _found(self) -> Problem | None:
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                await self._state.hf.check()
                await (await self._state.control()).probe()
        except TimeoutError:
            return Problem(503, "unavailable", "The database does not answer.")
        except SchemaError:
            return Problem(503, "schema", "The database's schema is not that of this release.")
        except HoldfastError as fault:
            if isinstance(fault, DatabaseUnavailable) and fault.away:
                self._state.outage.lost(fault)
            return Problem(503, "unavailable", told(fault) or "The database cannot do what a submission needs.")
        return None


def health_router(state: AppState) -> APIRouter:
    """The routes."""
    router = APIRouter(tags=["health"])

    @router.get("/livez", summary="Whether this process is alive")
    async def livez() -> dict[str, str]:
        return {"status": "ok"}

    @router.get("/readyz", summary="Whether this process can record jobs")
    async def readyz() -> dict[str, str]:
        await state.readiness.require()
        return {"status": "ok"}

    return router


class Probes:
    """Answers probes in place of their routes, if all is well."""

    def __init__(self, app: ASGIApp, router: APIRouter, readiness: Readiness) -> None:
        self._app, self._readiness = app, readiness
        self._routes = {route.path: route for route in router.routes if isinstance(route, APIRoute)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http" or scope["method"] != "GET":
            await self._app(scope, receive, send)
            return
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        if path != "/livez" and not (path == "/readyz" and self._readiness.is_given):
            await self._app(scope, receive, send)
            return
        scope["route"] = self._routes[path]  # figures are kept by route
        await send({"type": "http.response.start", "status": 200, "headers": _FIELDS})
        await send({"type": "http.response.body", "body": _WELL})

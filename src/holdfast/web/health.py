"""`/livez`: this process answers. `/readyz`: a job could be recorded now, and this process is not about to stop.

Probes bypass the framework: whoever has no key may send as many of them as of anything else.
"""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.routing import APIRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast.web.readiness import Readiness
from holdfast.web.state import AppState

__all__ = ["Probes", "health_router"]

_WELL = b'{"status":"ok"}'
_FIELDS = [(b"content-type", b"application/json"), (b"content-length", str(len(_WELL)).encode())]


def health_router(state: AppState) -> APIRouter:
    """The routes."""
    router = APIRouter(tags=["health"])

    @router.get("/livez", summary="Whether this process is alive", operation_id="health_livez")
    async def livez() -> dict[str, str]:
        return {"status": "ok"}

    @router.get("/readyz", summary="Whether this process can record jobs", operation_id="health_readyz")
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

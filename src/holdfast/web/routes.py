"""The HTTP app with its routes, for whichever server runs it or application mounts it.

Every route stands behind one guard, the description of the routes too.
"""

from __future__ import annotations

import inspect
import ipaddress
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Request

from holdfast.app import Holdfast
from holdfast.version import __version__
from holdfast.web.control.jobs import jobs_router
from holdfast.web.health import health_router
from holdfast.web.problems import Problem, install_problems

__all__ = ["create_app", "is_loopback", "meant_for_loopback"]

Guard = Callable[..., Awaitable[bool | None] | bool | None]


def meant_for_loopback(request: Request) -> None:
    """Refuse requests that a foreign page had a browser send here under a name of its own."""
    if not is_loopback(request.url.hostname):
        raise Problem(403, "host", "Without keys the server answers only under localhost, 127.0.0.1 or [::1].")


def create_app(hf: Holdfast, *, guard: Guard = meant_for_loopback) -> FastAPI:
    """All routes over one app, which is open while they are used, for those whom the guard lets pass.

    The guard is a dependency: it raises for those who may not pass, or returns anything but None and True.
    """
    app = FastAPI(
        title="Holdfast",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,  # FastAPI's own route would not ask the guard
        dependencies=[Depends(_asking(guard))],
    )
    install_problems(app)
    app.include_router(health_router(hf))
    app.include_router(jobs_router(hf))

    @app.get("/openapi.json", include_in_schema=False)
    async def described(request: Request) -> dict[str, Any]:
        below = str(request.scope.get("root_path", ""))
        return {**app.openapi(), "servers": [{"url": below}]} if below else app.openapi()

    return app


def is_loopback(host: str | None) -> bool:
    """Whether a name or an address, as it stands in a URL, is this machine's own."""
    try:
        return ipaddress.ip_address(host or "").is_loopback
    except ValueError:
        return host == "localhost"


def _asking(guard: Guard) -> Callable[..., Awaitable[None]]:
    async def ask(verdict: Any) -> None:
        if inspect.isawaitable(verdict):
            verdict = await verdict
        if verdict is not None and verdict is not True:
            raise Problem(403, "forbidden")

    # FastAPI reads what to inject from here; written in the signature it would be looked up among the module's names.
    ask.__annotations__["verdict"] = Annotated[Any, Depends(guard)]
    return ask

"""Holdfast in a Starlette or FastAPI application.

1. `lifespan` opens the app while the application serves, around the application's own lifespan; on request it
   runs a worker in the same process, which is drained before the application's own resources go.
2. `current` is the open app of a request.
3. `mount_control_plane` puts Holdfast's HTTP routes under a path, behind a guard. Mounted applications have no
   lifespan of their own, so the outer one's is made to open the app; `current` is not changed by it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, nullcontext
from typing import Any

from starlette.applications import Starlette
from starlette.requests import HTTPConnection, Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from holdfast.app import Holdfast
from holdfast.errors import HoldfastError
from holdfast.worker.worker import Worker

__all__ = ["current", "lifespan", "loopback_only", "mount_control_plane"]

Lifespan = Callable[[Any], AbstractAsyncContextManager[Mapping[str, Any]]]
Own = Callable[[Any], AbstractAsyncContextManager[Any]]
Guard = Callable[..., Awaitable[bool | None] | bool | None]

_STATE = "holdfast"
_log = logging.getLogger("holdfast")


class _NotFound:
    """Answers every method."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await JSONResponse({"detail": "Not Found"}, 404)(scope, receive, send)


_NOT_FOUND = _NotFound()


def lifespan(hf: Holdfast, own: Own | None = None, *, worker: bool = False, **options: Any) -> Lifespan:
    """A lifespan for the application: `FastAPI(lifespan=lifespan(hf))`, or around `own`.

    With `worker=True` (options as of `Holdfast.run_worker`) jobs are run in this process: fit for small
    deployments. At shutdown the worker is drained first, as long as the grace of the settings and that of the
    server allow; jobs that it could not finish go back to the queue.
    """

    @asynccontextmanager
    async def combined(application: Any) -> AsyncIterator[Mapping[str, Any]]:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(hf)
            state = await stack.enter_async_context(own(application) if own is not None else nullcontext())
            if worker:
                await stack.enter_async_context(_working(hf, options))
            yield {**(state or {}), _STATE: hf}

    return combined


def current(connection: HTTPConnection) -> Holdfast:
    """The open app of a request or websocket."""
    found = getattr(connection.state, _STATE, None)
    if not isinstance(found, Holdfast):
        raise HoldfastError(
            "the application was not started with Holdfast's lifespan: FastAPI(lifespan=lifespan(hf)); "
            "in tests, use `with TestClient(app):`"
        )
    return found


def mount_control_plane(
    application: Starlette,
    path: str,
    hf: Holdfast,
    *,
    guard: Guard | None = None,
    scopes: Sequence[str] = ("submit", "read"),
) -> None:
    """Put Holdfast's HTTP routes under a path, for callers with a key, or for those whom `guard` lets pass.

    Nothing in a request proves that no proxy has passed it on: so without a guard a key is needed even where there are
    none yet. A guard is a dependency of FastAPI, `async` or not, that raises an HTTPException for those who may
    not pass, or returns False; they pass with None or True, and with nothing else. Those whom it lets in act for the
    tenant `default`, with these scopes; `admin` is for all tenants.
    """
    from holdfast.web.routes import create_app

    if bare := path.rstrip("/"):  # the framework would redirect to an address made from `Host`, which callers choose
        application.router.routes.append(Route(bare, _NOT_FOUND, include_in_schema=False))
    application.mount(path, create_app(hf, guard=guard, scopes=scopes, keys_only=True))
    application.router.lifespan_context = _opening(hf, application.router.lifespan_context)


def loopback_only(request: Request) -> None:
    """A guard for development: callers on this machine, no forwarded request, no page of another site.

    It does not protect an application behind a reverse proxy on the same machine: what comes through a proxy that
    says nothing of itself looks as if it came from here.
    """
    from holdfast.web.loopback import from_this_machine

    from_this_machine(request)


def _opening(hf: Holdfast, own: Own) -> Own:
    """A lifespan with an app open around it. Which app requests find in their state is for `lifespan` to say."""

    @asynccontextmanager
    async def combined(application: Any) -> AsyncIterator[Any]:
        async with hf, own(application) as state:
            yield state

    return combined


@asynccontextmanager
async def _working(hf: Holdfast, options: dict[str, Any]) -> AsyncIterator[None]:
    began: asyncio.Future[Worker] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(hf.run_worker(started=began.set_result, **options), name="holdfast worker")
    await asyncio.wait({task, began}, return_when=asyncio.FIRST_COMPLETED)
    if not began.done():
        await task
    task.add_done_callback(_tell)
    try:
        yield
    finally:
        began.result().drain()
        await asyncio.wait({task})


def _tell(task: asyncio.Task[Worker]) -> None:
    """A worker that failed is not missed by anybody until shutdown, so it says so."""
    if not task.cancelled() and (fault := task.exception()) is not None:
        _log.error("the worker within this application has ended: %s", fault, exc_info=fault)

"""Holdfast in a Starlette or FastAPI application.

1. `lifespan` opens the app while the application serves, around the application's own lifespan; on request it
   runs a worker in the same process, which is drained before the application's own resources go.
2. `current` is the open app of a request.
3. `mount_control_plane` puts Holdfast's HTTP routes under a path. Mounted applications have no lifespan of their
   own, so the outer one's is made to open the app.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, nullcontext
from typing import Any

from starlette.applications import Starlette
from starlette.requests import HTTPConnection, Request

from holdfast.app import Holdfast
from holdfast.errors import HoldfastError
from holdfast.worker.worker import Worker

__all__ = ["current", "lifespan", "mount_control_plane"]

Lifespan = Callable[[Any], AbstractAsyncContextManager[Mapping[str, Any]]]
Own = Callable[[Any], AbstractAsyncContextManager[Any]]
Guard = Callable[[Request], Awaitable[None] | None]

_STATE = "holdfast"
_log = logging.getLogger("holdfast")


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


def mount_control_plane(application: Starlette, path: str, hf: Holdfast, *, guard: Guard | None = None) -> None:
    """Put Holdfast's HTTP routes under a path, for those whom `guard` lets pass (it raises an HTTPException if not).

    The routes know no keys yet. Without a guard they answer to callers on this very machine alone, and to no
    request that a proxy has passed on.
    """
    from holdfast.web.server import create_app, meant_for_loopback

    routes = create_app(hf)
    routes.dependency_overrides[meant_for_loopback] = _from_this_machine if guard is None else guard
    application.mount(path, routes)
    application.router.lifespan_context = lifespan(hf, application.router.lifespan_context)


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


def _from_this_machine(request: Request) -> None:
    from holdfast.web.problems import Problem
    from holdfast.web.server import meant_for_loopback

    meant_for_loopback(request)
    forwarded = "forwarded" in request.headers or "x-forwarded-for" in request.headers
    try:
        near = request.client is not None and ipaddress.ip_address(request.client.host).is_loopback
    except ValueError:
        near = False
    if forwarded or not near:
        raise Problem(403, "host", "Without a guard these routes answer to callers on this machine only.")

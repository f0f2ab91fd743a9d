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
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, nullcontext
from typing import Any
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.requests import HTTPConnection, Request

from holdfast.app import Holdfast
from holdfast.errors import ConfigError, HoldfastError
from holdfast.worker.worker import Worker

__all__ = ["current", "lifespan", "loopback_only", "mount_control_plane"]

Lifespan = Callable[[Any], AbstractAsyncContextManager[Mapping[str, Any]]]
Own = Callable[[Any], AbstractAsyncContextManager[Any]]
Guard = Callable[..., Awaitable[bool | None] | bool | None]

_STATE = "holdfast"
_FORWARDED = {"forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip"}
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
    """Put Holdfast's HTTP routes under a path, for those whom `guard` lets pass.

    The routes know no keys yet, and nothing in a request proves that no proxy has passed it on: so there is no
    default. A guard is a dependency of FastAPI, `async` or not, that raises an HTTPException for those who may
    not pass, or returns False; they pass with None or True, and with nothing else.
    """
    if guard is None:
        raise ConfigError(
            "who may use Holdfast's routes? They know no keys, so whoever reaches the application could use them: "
            "give `guard=`, a dependency that raises HTTPException for those who may not pass; "
            "for development on your own machine there is `guard=loopback_only`"
        )
    from holdfast.web.routes import create_app

    application.mount(path, create_app(hf, guard=guard))
    application.router.lifespan_context = _opening(hf, application.router.lifespan_context)


def loopback_only(request: Request) -> None:
    """A guard for development: callers on this machine, no forwarded request, no page of another site.

    It does not protect an application behind a reverse proxy on the same machine: what comes through a proxy that
    says nothing of itself looks as if it came from here.
    """
    from holdfast.web.problems import Problem
    from holdfast.web.routes import is_loopback, meant_for_loopback

    meant_for_loopback(request)
    if not _FORWARDED.isdisjoint(request.headers) or request.client is None or not is_loopback(request.client.host):
        raise Problem(403, "host", "These routes answer to callers on this machine only.")
    if not all(is_loopback(_host(origin)) for origin in request.headers.getlist("origin")):
        raise Problem(403, "origin", "These routes do not answer to pages of another site.")


def _host(origin: str) -> str | None:
    try:
        return urlsplit(origin).hostname
    except ValueError:
        return None


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

"""`/livez`: this process answers. `/readyz`: a job could be recorded now, and this process is not about to stop.

An answer is at most a second old: one write serves all callers, so that probes cost the database next to nothing.
"""

from __future__ import annotations

import asyncio
import time

from fastapi import APIRouter, Request, Response

from holdfast.errors import DatabaseUnavailable, HoldfastError, SchemaError
from holdfast.web.problems import Problem, told
from holdfast.web.state import AppState

__all__ = ["Readiness", "health_router"]

_PATIENCE_SECONDS = 3.0
_FRESH_SECONDS = 1.0
_ALIVE = b'{"status":"ok"}'


class Readiness:
    """The result of the last check."""

    def __init__(self, state: AppState) -> None:
        self._state = state
        self._problem: Problem | None = None
        self._until = float("-inf")
        self._look: asyncio.Task[None] | None = None

    async def require(self) -> None:
        """A problem unless a job could be recorded."""
        if time.monotonic() >= self._until:
            if self._look is None or self._look.done():
                self._look = asyncio.get_running_loop().create_task(self._write(), name="readiness")
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
    """The routes, over what an app shares."""
    router = APIRouter(tags=["health"])
    readiness = Readiness(state)

    @router.get("/livez", summary="Whether this process is alive", response_model=dict[str, str])
    async def livez(request: Request) -> Response:  # noqa: ARG001 - it may be called directly, and then gets one
        return Response(_ALIVE, media_type="application/json")

    @router.get("/readyz", summary="Whether this process can record jobs")
    async def readyz() -> dict[str, str]:
        if state.leaving:
            raise Problem(503, "unavailable", "This server is about to stop.")
        await readiness.require()
        return {"status": "ok"}

    return router

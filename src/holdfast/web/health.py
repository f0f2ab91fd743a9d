"""`/livez`: this process answers. `/readyz`: it can serve: it is not about to stop, and database and schema fit."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter

from holdfast.errors import HoldfastError, SchemaError
from holdfast.web.problems import Problem
from holdfast.web.state import State

__all__ = ["health_router"]

_PATIENCE_SECONDS = 3.0


def health_router(state: State) -> APIRouter:
    """The routes, over what an app shares."""
    router = APIRouter(tags=["health"])

    @router.get("/livez", summary="Whether this process lives")
    async def livez() -> dict[str, str]:
        return {"status": "ok"}

    @router.get("/readyz", summary="Whether this process can serve")
    async def readyz() -> dict[str, str]:
        if state.leaving:
            raise Problem(503, "unavailable", "This server is about to stop.")
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                await state.hf.check()
                await state.control()
        except TimeoutError:
            raise Problem(503, "unavailable", "The database does not answer.") from None
        except HoldfastError as fault:
            code = "schema" if isinstance(fault, SchemaError) else "unavailable"
            raise Problem(503, code, "The database is away, or its schema does not fit.") from None
        return {"status": "ok"}

    return router

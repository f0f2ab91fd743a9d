"""`/livez`: this process answers. `/readyz`: it can serve, because the database answers and its schema fits."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter

from holdfast.app import Holdfast
from holdfast.errors import HoldfastError
from holdfast.web.problems import Problem

__all__ = ["health_router"]

_PATIENCE_SECONDS = 3.0


def health_router(hf: Holdfast) -> APIRouter:
    """The routes, over one app."""
    router = APIRouter(tags=["health"])

    @router.get("/livez", summary="Whether this process lives")
    async def livez() -> dict[str, str]:
        return {"status": "ok"}

    @router.get("/readyz", summary="Whether this process can serve")
    async def readyz() -> dict[str, str]:
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                await hf.check()
        except TimeoutError:
            raise Problem(503, "unavailable", "The database does not answer.") from None
        except HoldfastError as fault:
            raise Problem(503, fault.code, "The database is away, or its schema does not fit.") from None
        return {"status": "ok"}

    return router

"""`/metrics`: the metrics of this process, and how busy the lanes of the whole installation are.

They tell of all tenants, and so they are not for a tenant's operators. While the database is away, the page has what
the process knows itself, for callers whose key was good lately: an outage is when the figures are wanted.
"""

from __future__ import annotations

import asyncio
import time

from fastapi import APIRouter, Depends, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from holdfast.errors import HoldfastError
from holdfast.model.key import Caller
from holdfast.web.auth import secured
from holdfast.web.state import AppState

__all__ = ["metrics_router"]

#: How old the figures of lanes may be, and how long a page waits for new ones.
_LANES_SECONDS, _LANES_PATIENCE = 5.0, 2.0


def metrics_router(state: AppState) -> APIRouter:
    """The page."""
    router = APIRouter(tags=["health"])
    may_measure = Depends(state.auth.requires("metrics", lately=True))

    @router.get(
        "/metrics",
        summary="Metrics for Prometheus",
        response_class=Response,
        openapi_extra=secured("metrics"),
        responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
    )
    async def page(request: Request, _caller: Caller = may_measure) -> Response:
        metrics = state.metrics
        if getattr(request.state, "database_away", False):
            metrics.lanes(None)
            metrics.lanes_asked_at = float("-inf")
        elif time.monotonic() - metrics.lanes_asked_at > _LANES_SECONDS:
            metrics.lanes_asked_at = time.monotonic()
            try:
                async with asyncio.timeout(_LANES_PATIENCE):
                    metrics.lanes(await (await state.operations()).lanes())
            except (HoldfastError, TimeoutError):
                metrics.lanes(None)
                metrics.lanes_asked_at = float("-inf")
        return Response(generate_latest(metrics.registry), media_type=CONTENT_TYPE_LATEST)

    return router

"""`/ops/circuits`: circuit breakers, which belong to the installation. For the scope `admin`."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request
from pydantic import AfterValidator, Field

from holdfast.bounds import BOUNDS
from holdfast.model.key import Caller
from holdfast.web.auth import secured
from holdfast.web.bodies import read_optional_body
from holdfast.web.control.schemas import Words, without_nul
from holdfast.web.description import body_of
from holdfast.web.ops.bodies import Asked, Shown
from holdfast.web.ops.jobs import Limit
from holdfast.web.ops.places import NameCursor, cursor_behind, names_before
from holdfast.web.state import AppState

__all__ = ["ops_circuits_router"]

Whose = Annotated[
    str | None,
    Query(max_length=200, description="the tenant, of a circuit that is per tenant"),
    AfterValidator(lambda value: None if value is None else without_nul(value)),
]


class CircuitReason(Asked):
    """Why, for other operators."""

    reason: Words | None = None


class CircuitOpening(CircuitReason):
    """Why, and for how long; without `seconds`, until somebody resets it."""

    seconds: Annotated[float, Field(ge=BOUNDS["circuit_forced"].low, le=BOUNDS["circuit_forced"].high)] | None = None


class CircuitDetails(Shown):
    """A circuit breaker. The counts are those of all workers within the window.

    `next_probe_at` is null while it is not open, or open until somebody resets it; `tenant` is null for a circuit that
    all tenants share.
    """

    name: str
    tenant: str | None
    state: Literal["closed", "open", "half_open"]
    failure_count: int
    success_count: int
    opened_at: datetime | None
    half_opened_at: datetime | None
    next_probe_at: datetime | None
    last_failure_at: datetime | None
    last_error: str | None
    forced_by: str | None
    forced_note: str | None
    failure_threshold: int
    failure_share: float
    window_seconds: float
    open_seconds: float
    probes: int
    success_threshold: int
    updated_at: datetime


class CircuitPage(Shown):
    """Circuits by name."""

    items: list[CircuitDetails]
    next_cursor: str | None


def ops_circuits_router(state: AppState) -> APIRouter:
    """The routes, over what an app shares."""
    router = APIRouter(prefix="/ops/circuits", tags=["circuits"])
    may_manage = Depends(state.auth.requires("admin"))

    @router.get(
        "",
        response_model=CircuitPage,
        summary="Circuit breakers, by name",
        dependencies=[may_manage],
        operation_id="list_circuits",
        openapi_extra=secured("admin"),
    )
    async def listed(limit: Limit = 50, cursor: NameCursor = None, tenant: Whose = None) -> CircuitPage:
        before = names_before(cursor, 2)
        after = None if before is None else (before[0], before[1])
        found = await (await state.operations()).circuits.list(tenant=tenant, after=after, limit=limit + 1)
        page = [CircuitDetails.model_validate(each) for each in found[:limit]]
        following = cursor_behind(page[-1].name, page[-1].tenant or "") if len(found) > limit else None
        return CircuitPage(items=page, next_cursor=following)

    @router.post(
        "/{name:path}/reset",
        response_model=CircuitDetails,
        summary="Close a circuit and reset its counts; create it if it does not exist",
        operation_id="reset_circuit",
        openapi_extra=secured("admin", requestBody=body_of(CircuitReason, required=False)),
    )
    async def reset(request: Request, name: str, tenant: Whose = None, caller: Caller = may_manage) -> Any:
        asked = await read_optional_body(request, CircuitReason)
        circuits = (await state.operations()).circuits
        found = await circuits.reset(name, tenant=tenant, by=caller.name, reason=asked.reason, by_key=caller.key_id)
        return CircuitDetails.model_validate(found)

    @router.post(
        "/{name:path}/open",
        response_model=CircuitDetails,
        summary="Open a circuit by hand; create it if it does not exist",
        operation_id="open_circuit",
        openapi_extra=secured("admin", requestBody=body_of(CircuitOpening, required=False)),
    )
    async def force(request: Request, name: str, tenant: Whose = None, caller: Caller = may_manage) -> Any:
        asked = await read_optional_body(request, CircuitOpening)
        circuits = (await state.operations()).circuits
        found = await circuits.open(
            name, tenant=tenant, seconds=asked.seconds, by=caller.name, reason=asked.reason, by_key=caller.key_id
        )
        return CircuitDetails.model_validate(found)

    return router

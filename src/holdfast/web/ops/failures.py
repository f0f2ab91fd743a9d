"""`/ops/failures`: what fails, grouped by cause. A key sees its tenant; with the scope `admin` it sees all."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Query

from holdfast.model.key import Caller
from holdfast.web.auth import secured
from holdfast.web.ops.bodies import Shown
from holdfast.web.ops.jobs import Limit, OnlyTenant, tenant_asked
from holdfast.web.ops.places import NameCursor, cursor_behind, invalid_cursor, moment_place
from holdfast.web.state import AppState

__all__ = ["ops_failures_router"]

OnlyType = Annotated[str | None, Query(alias="type", max_length=200, description="only failures of this job type")]


class FailureDetails(Shown):
    """The failures of one tenant that have the same fingerprint."""

    fingerprint: str
    tenant: str
    type: str
    error_type: str | None
    message: str | None
    count: int
    open_count: int
    open_more: bool
    first_seen: datetime
    last_seen: datetime
    sample_job_id: UUID | None


class FailureList(Shown):
    """Failures, most recent first."""

    items: list[FailureDetails]
    next_cursor: str | None


def ops_failures_router(state: AppState) -> APIRouter:
    """The routes, over what an app shares."""
    router = APIRouter(prefix="/ops", tags=["ops"])
    may_operate, extra = Depends(state.auth.requires("operate")), secured("operate")

    @router.get(
        "/failures", response_model=FailureList, summary="Failures by cause, most recent first", openapi_extra=extra
    )
    async def failures(
        only_type: OnlyType = None,
        only_tenant: OnlyTenant = None,
        limit: Limit = 50,
        cursor: NameCursor = None,
        caller: Caller = may_operate,
    ) -> FailureList:
        found = await (await state.operations()).failures(
            tenant=tenant_asked(caller, only_tenant), type=only_type, before=_place_of(cursor), limit=limit
        )
        return FailureList(
            items=[FailureDetails.model_validate(group) for group in found.groups],
            next_cursor=None if found.reached is None else _cursor_of(found.reached),
        )

    return router


def _cursor_of(place: tuple[datetime, str, str]) -> str:
    return cursor_behind(place[0].isoformat(), place[1], place[2])


def _place_of(cursor: str | None) -> tuple[datetime, str, str] | None:
    place = moment_place(cursor, 2)
    if place is None:
        return None
    seen, (tenant, fingerprint) = place
    if "\x00" in tenant + fingerprint:
        raise invalid_cursor()
    return seen, tenant, fingerprint

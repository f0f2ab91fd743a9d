"""`/ops/correlations/{id}`, `/ops/jobs/{job_id}/tree`: which jobs belong together."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query
from pydantic import BaseModel, Field

from holdfast.model.key import Caller
from holdfast.web.auth import secured
from holdfast.web.control.jobs import job_id_of
from holdfast.web.cursors import cursor_of, id_of
from holdfast.web.ops.jobs import Cursor, Limit, OnlyTenant, tenant_asked, tenant_of
from holdfast.web.ops.schemas import JobSummary
from holdfast.web.state import AppState

__all__ = ["ops_lineage_router"]

Correlation = Annotated[str, Path(max_length=255, description="what the jobs were given, or the id of the first one")]
Members = Annotated[int, Query(ge=1, le=500, description="the most jobs of the family that are shown")]


class Correlated(BaseModel):
    """A page of the jobs of one correlation id, oldest first."""

    items: list[JobSummary]
    next_cursor: str | None


class FamilyMember(JobSummary):
    """A job of a family."""

    depth: int = Field(description="0 for the job itself, -1 for its parent, 1 for its children")


class Tree(BaseModel):
    """Ancestors, the oldest first, the job itself, and its descendants, level by level."""

    items: list[FamilyMember]
    complete: bool = Field(description="false if the family has more members")


def ops_lineage_router(state: AppState) -> APIRouter:
    """The routes, over what an app shares."""
    router = APIRouter(prefix="/ops", tags=["lineage"])
    may_operate, extra = Depends(state.auth.requires("operate")), secured("operate")

    @router.get(
        "/correlations/{correlation:path}",
        response_model=Correlated,
        summary="All jobs of a correlation id, oldest first",
        operation_id="ops_correlation",
        openapi_extra=extra,
    )
    async def correlated(
        correlation: Correlation,
        only_tenant: OnlyTenant = None,
        limit: Limit = 50,
        cursor: Cursor = None,
        caller: Caller = may_operate,
    ) -> Correlated:
        found = await (await state.operations()).correlated(
            correlation, tenant=tenant_asked(caller, only_tenant), after=id_of(cursor), limit=limit
        )
        items = [JobSummary.model_validate(job) for job in found]
        return Correlated(items=items, next_cursor=cursor_of(items[-1].id) if len(items) == limit else None)

    @router.get(
        "/jobs/{job_id}/tree",
        response_model=Tree,
        summary="A job with its ancestors and descendants",
        operation_id="ops_tree",
        openapi_extra=extra,
    )
    async def tree(job_id: str, limit: Members = 500, caller: Caller = may_operate) -> Tree:
        family = await (await state.operations()).tree(job_id_of(job_id), tenant=tenant_of(caller), limit=limit)
        return Tree(
            items=[
                FamilyMember(**JobSummary.model_validate(member.job).model_dump(), depth=member.depth)
                for member in family.members
            ],
            complete=family.complete,
        )

    return router

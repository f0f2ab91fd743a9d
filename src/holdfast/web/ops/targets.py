"""`/ops/targets`, `/ops/jobs/{job_id}/explain`: what blocks a target, and why a job does not run."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query

from holdfast.model.key import Caller
from holdfast.web.auth import secured
from holdfast.web.control.jobs import job_id_of
from holdfast.web.ops.jobs import Limit, tenant_of
from holdfast.web.ops.places import NameCursor, cursor_behind, names_before
from holdfast.web.ops.steering import ExplanationDetails, TargetDetails, TargetList
from holdfast.web.problems import Problem
from holdfast.web.state import AppState

__all__ = ["ops_targets_router"]

Blocked = Annotated[bool, Query(description="only those whose head is paused or in error")]
Whose = Annotated[str | None, Query(max_length=200, description="the key's own tenant if not given")]


def ops_targets_router(state: AppState) -> APIRouter:
    """The routes, over what an app shares."""
    router = APIRouter(prefix="/ops", tags=["steering"])
    may_operate, extra = Depends(state.auth.requires("operate")), secured("operate")

    @router.get("/targets", response_model=TargetList, summary="Targets with open jobs", openapi_extra=extra)
    async def targets(
        blocked: Blocked = False, limit: Limit = 50, cursor: NameCursor = None, caller: Caller = may_operate
    ) -> TargetList:
        before = names_before(cursor, 2)
        after = None if before is None else (before[0], before[1])
        ops = await state.operations()
        found = await ops.targets(tenant=tenant_of(caller), blocked=blocked, after=after, limit=limit)
        return TargetList(
            items=[TargetDetails.model_validate(target) for target in found.targets],
            next_cursor=None if found.reached is None else cursor_behind(*found.reached),
        )

    @router.get(
        "/targets/{target:path}",
        response_model=TargetDetails,
        summary="One target, with the jobs in its line",
        openapi_extra=extra,
    )
    async def target(target: str, tenant: Whose = None, caller: Caller = may_operate) -> TargetDetails:
        whose = caller.tenant if tenant is None else tenant
        if tenant_of(caller) not in (None, whose):
            raise Problem(404, "not-found", f"the target {target!r} has no open jobs")
        return TargetDetails.model_validate(await (await state.operations()).target(target, tenant=whose))

    @router.get(
        "/jobs/{job_id}/explain",
        response_model=ExplanationDetails,
        summary="Why a job does not run",
        openapi_extra=extra,
    )
    async def explain(job_id: str, caller: Caller = may_operate) -> ExplanationDetails:
        found = await (await state.operations()).explain(job_id_of(job_id), tenant=tenant_of(caller))
        return ExplanationDetails.model_validate(found)

    return router

"""`/ops/jobs/{job_id}/fail|kill|expire-lease|reprioritize`: what operators decide about one job.

With `admin`, for jobs of all tenants. What the state machine forbids answers 409, and says what to do instead.
"""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Depends, Request
from pydantic import Field

from holdfast.bounds import BOUNDS
from holdfast.client.operations import Operations
from holdfast.model.key import Caller
from holdfast.web.auth import secured
from holdfast.web.bodies import read_body, read_optional_body
from holdfast.web.control.jobs import job_id_of
from holdfast.web.control.schemas import Words
from holdfast.web.description import body_of
from holdfast.web.ops.bodies import Asked
from holdfast.web.ops.jobs import tenant_of, who
from holdfast.web.ops.steering import AskedFor
from holdfast.web.state import AppState

__all__ = ["ops_by_hand_router"]


class Failing(Asked):
    """The error of the attempt, and whether the job is retried if it has attempts left."""

    message: Words | None = None
    will_retry: bool = True


class Deciding(Asked):
    """The reason, stored in the job's history and in the audit log; for `kill` also the error of the attempt."""

    reason: Words | None = None


class Reprioritizing(Deciding):
    """The new priority; lower goes first."""

    priority: Annotated[int, Field(ge=0, le=BOUNDS["priority"].high)]


def ops_by_hand_router(state: AppState) -> APIRouter:
    """The routes, over what an app shares."""
    router = APIRouter(prefix="/ops", tags=["steering", "requests"])
    may_operate = Depends(state.auth.requires("operate"))

    @router.post(
        "/jobs/{job_id}/fail",
        status_code=202,
        response_model=AskedFor,
        summary="Fail a running job, with or without a retry; without, also one that waits for its retry or is held",
        openapi_extra=secured("operate", requestBody=body_of(Failing, required=False)),
    )
    async def fail(request: Request, job_id: str, caller: Caller = may_operate) -> AskedFor:
        ops, wanted, signed = await _asked(state, job_id, caller)
        body = await read_optional_body(request, Failing)
        await ops.fail(wanted, body.message, will_retry=body.will_retry, **signed)
        return await _answer(ops, wanted, caller)

    @router.post(
        "/jobs/{job_id}/kill",
        status_code=202,
        response_model=AskedFor,
        summary="End a job as dead: one that runs, waits for its retry, or is held",
        openapi_extra=secured("operate", requestBody=body_of(Deciding, required=False)),
    )
    async def kill(request: Request, job_id: str, caller: Caller = may_operate) -> AskedFor:
        ops, wanted, signed = await _asked(state, job_id, caller)
        body = await read_optional_body(request, Deciding)
        await ops.kill(wanted, reason=body.reason, **signed)
        return await _answer(ops, wanted, caller)

    @router.post(
        "/jobs/{job_id}/expire-lease",
        status_code=202,
        response_model=AskedFor,
        summary="Take a running job from its worker at once, as if its lease had lapsed",
        openapi_extra=secured("operate", requestBody=body_of(Deciding, required=False)),
    )
    async def expire_lease(request: Request, job_id: str, caller: Caller = may_operate) -> AskedFor:
        ops, wanted, signed = await _asked(state, job_id, caller)
        body = await read_optional_body(request, Deciding)
        await ops.expire_lease(wanted, reason=body.reason, **signed)
        return await _answer(ops, wanted, caller)

    @router.post(
        "/jobs/{job_id}/reprioritize",
        status_code=202,
        response_model=AskedFor,
        summary="Give a job that has not ended another priority",
        openapi_extra=secured("operate", requestBody=body_of(Reprioritizing)),
    )
    async def reprioritize(request: Request, job_id: str, caller: Caller = may_operate) -> AskedFor:
        ops, wanted, signed = await _asked(state, job_id, caller)
        body = await read_body(request, Reprioritizing)
        await ops.reprioritize(wanted, body.priority, reason=body.reason, **signed)
        return await _answer(ops, wanted, caller)

    return router


async def _asked(state: AppState, job_id: str, caller: Caller) -> tuple[Operations, UUID, dict[str, Any]]:
    return await state.operations(), job_id_of(job_id), who(caller)


async def _answer(ops: Operations, job_id: UUID, caller: Caller) -> AskedFor:
    return AskedFor(job_id=job_id, state=(await ops.job(job_id, tenant=tenant_of(caller))).state.value)

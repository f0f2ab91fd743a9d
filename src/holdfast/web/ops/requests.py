"""`/ops/jobs/{job_id}/cancel|pause|resume|retry|resolve`: operators' requests; with `admin`, for all tenants."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter, Depends, Request

from holdfast.model.key import Caller
from holdfast.web.auth import secured
from holdfast.web.bodies import read_optional_body
from holdfast.web.control.jobs import job_id_of
from holdfast.web.description import body_of
from holdfast.web.ops.jobs import tenant_of, who
from holdfast.web.ops.steering import AskedFor, JobReason
from holdfast.web.state import AppState

__all__ = ["ops_requests_router"]

Wish = Literal["cancel", "pause", "resume", "retry", "resolve"]

_SUMMARIES: dict[Wish, str] = {
    "cancel": "Cancel a job for good",
    "pause": "Pause a job: a running handler is interrupted, and its target is blocked",
    "resume": "Resume a paused or held job, with all its attempts",
    "retry": "Run a job again: a waiting one at once, a held one by resuming it, an ended one as a new job",
    "resolve": "Cancel a job because somebody has dealt with it",
}


def ops_requests_router(state: AppState) -> APIRouter:
    """The routes, over what an app shares."""
    router = APIRouter(prefix="/ops", tags=["steering", "requests"])
    for verb in _SUMMARIES:
        _add(router, state, verb)
    return router


def _add(router: APIRouter, state: AppState, verb: Wish) -> None:
    may_operate = Depends(state.auth.requires("operate"))

    async def ask(request: Request, job_id: str, caller: Caller = may_operate) -> AskedFor:
        wanted, why = job_id_of(job_id), await read_optional_body(request, JobReason)
        ops, tenant = await state.operations(), tenant_of(caller)
        runs_as = wanted
        if verb == "resolve":
            await ops.resolve(wanted, reason=why.reason, public=why.public, **who(caller))
        else:
            runs_as = await ops.request(verb, wanted, reason=why.reason, public=why.public, **who(caller))
        return AskedFor(job_id=runs_as, state=(await ops.job(runs_as, tenant=tenant)).state.value)

    router.add_api_route(
        f"/jobs/{{job_id}}/{verb}",
        ask,
        methods=["POST"],
        status_code=202,
        response_model=AskedFor,
        summary=_SUMMARIES[verb],
        operation_id="steering_requests_resolve" if verb == "resolve" else f"{verb}_by_operator",
        openapi_extra=secured("operate", requestBody=body_of(JobReason, required=False)),
    )

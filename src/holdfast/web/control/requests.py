"""Clients' requests: cancel, pause, resume, release, delete. The API itself moves no job."""

from __future__ import annotations

from fastapi import APIRouter, Depends, Request, Response

from holdfast.model.key import Caller
from holdfast.web.auth import secured
from holdfast.web.bodies import read_optional_body
from holdfast.web.control.jobs import job_id_of
from holdfast.web.control.schemas import Accepted, Reason
from holdfast.web.description import body_of
from holdfast.web.state import AppState

__all__ = ["reason_of", "requests_router"]

_SUMMARIES = {
    "cancel": "Cancel a job for good",
    "pause": "Pause a job: a running handler is interrupted, and its target is blocked",
    "resume": "Resume a paused or held job, with all its attempts",
    "release": "Release a job that was recorded with hold",
    "delete": "Cancel a job if it is open, and erase its payload, result, items and logs",
}


def requests_router(state: AppState) -> APIRouter:
    """The routes, over what an app shares."""
    router = APIRouter(tags=["requests"])
    for verb in ("cancel", "pause", "resume", "release"):
        _add(router, state, verb, f"/jobs/{{job_id}}/{verb}")
    _add(router, state, "delete", "/jobs/{job_id}", "DELETE")
    for slash in ("", "/"):
        _add(router, state, "resume", f"/targets/{{target:path}}/jobs/{{job_id}}/resume{slash}")
    return router


def _add(router: APIRouter, state: AppState, verb: str, path: str, method: str = "POST") -> None:
    may_submit, by_target = Depends(state.auth.requires("submit")), "{target:path}" in path

    async def for_a_target(request: Request, target: str, job_id: str, caller: Caller = may_submit) -> Response:
        return await _ask(state, request, caller, job_id, verb=verb, target=target)

    async def for_a_job(request: Request, job_id: str, caller: Caller = may_submit) -> Response:
        return await _ask(state, request, caller, job_id, verb=verb, target=None)

    router.add_api_route(
        path,
        for_a_target if by_target else for_a_job,
        methods=[method],
        status_code=202,
        response_model=Accepted,
        summary=_SUMMARIES[verb],
        operation_id=f"{verb}_of_target" if by_target else verb,
        include_in_schema=not path.endswith("/"),
        openapi_extra=secured("submit", requestBody=body_of(Reason, required=False)),
    )


async def _ask(
    state: AppState, request: Request, caller: Caller, job_id: str, *, verb: str, target: str | None
) -> Response:
    wanted = job_id_of(job_id)
    reason = await reason_of(request)
    control = await state.control()
    await control.request(caller, verb, wanted, reason=reason, target=target)
    job = await control.job(caller, wanted)
    body = Accepted(jobId=job.id, status=job.status).model_dump_json(by_alias=True)
    return Response(body, 202, media_type="application/json")


async def reason_of(request: Request) -> str | None:
    """The reason for a request. The body may be missing."""
    return (await read_optional_body(request, Reason)).reason

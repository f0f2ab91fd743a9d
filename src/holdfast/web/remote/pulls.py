"""`/worker/pull`: jobs for a worker."""

from __future__ import annotations

from fastapi import APIRouter, Depends, Request, Response

from holdfast.model.key import Caller
from holdfast.web.auth import secured
from holdfast.web.bodies import read_body
from holdfast.web.description import body_of
from holdfast.web.remote.answers import job_text, joined, object_text
from holdfast.web.remote.schemas import Pull, Pulled
from holdfast.web.state import AppState

__all__ = ["pulls_router"]


def pulls_router(state: AppState) -> APIRouter:
    """The route, over what an app shares."""
    router = APIRouter(prefix="/worker", tags=["worker"])
    may_work = Depends(state.auth.requires("work"))

    @router.post(
        "/pull",
        response_model=Pulled,
        summary="Take jobs to work on",
        openapi_extra=secured("work", requestBody=body_of(Pull)),
    )
    async def pull(request: Request, caller: Caller = may_work) -> Response:
        asked = await read_body(request, Pull)
        work = await state.hf.remote_work()
        told = await work.pull(caller, asked.worker_id, request_id=asked.request_id, wish=asked.wish())
        text = object_text({"directive": told.directive, "interrupts": []}, {"jobs": joined(map(job_text, told.jobs))})
        return Response(text, media_type="application/json")

    return router

"""`/worker/pull`: jobs for a worker, at once or as soon as there are some."""

from __future__ import annotations

from fastapi import APIRouter, Depends, Request, Response

from holdfast.client.remote_work import PullAnswer
from holdfast.model.key import Caller
from holdfast.model.remote import PullTold
from holdfast.web.auth import secured
from holdfast.web.bodies import read_body
from holdfast.web.description import body_of
from holdfast.web.remote import schemas
from holdfast.web.remote.answers import job_text, joined, object_text
from holdfast.web.remote.schemas import PullBody, PulledJobs
from holdfast.web.state import AppState

__all__ = ["pulls_router"]

_NOTHING = PullAnswer(PullTold(jobs=[], directive="continue", repeated=False), [])


def pulls_router(state: AppState) -> APIRouter:
    """The route, over what an app shares."""
    router = APIRouter(prefix="/worker", tags=["worker"])
    may_work = Depends(state.auth.requires("work"))

    @router.post(
        "/pull",
        response_model=PulledJobs,
        summary="Take jobs to work on",
        openapi_extra=secured("work", requestBody=body_of(PullBody)),
    )
    async def pull(request: Request, caller: Caller = may_work) -> Response:
        asked = await read_body(request, PullBody)
        work = await state.hf.remote_work()
        seconds = 0 if state.draining else min(asked.wait_sec, schemas.LONGEST_SECONDS)
        pulling = work.pull(caller, asked.worker_id, asked.wish(), request_id=asked.request_id, seconds=seconds)
        answer = await (state.unless_in_vain(request, caller, pulling) if seconds else pulling) or _NOTHING
        if answer.told.jobs and await request.is_disconnected():
            await work.hand_back(caller, asked.worker_id, answer.told)
        interrupts = [one._asdict() for one in answer.interrupts]
        text = object_text(
            {"directive": answer.told.directive, "interrupts": interrupts},
            {"jobs": joined(map(job_text, answer.told.jobs))},
        )
        return Response(text, media_type="application/json")

    return router

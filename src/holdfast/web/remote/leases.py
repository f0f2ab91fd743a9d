"""`/worker/extend` and `/worker/release`: the leases that a worker keeps, and those that it hands back."""

from __future__ import annotations

from fastapi import APIRouter, Depends, Request, Response
from pydantic_core import to_json

from holdfast.errors import HoldfastError
from holdfast.model.key import Caller
from holdfast.web.auth import secured
from holdfast.web.bodies import read_body
from holdfast.web.description import body_of
from holdfast.web.remote import schemas
from holdfast.web.remote.answers import lease_of
from holdfast.web.remote.schemas import Extension, LeaseStates, Release, ReleasedLeases
from holdfast.web.state import AppState

__all__ = ["leases_router"]


def leases_router(state: AppState) -> APIRouter:
    """The routes, over what an app shares."""
    router = APIRouter(prefix="/worker", tags=["worker"])
    may_work = Depends(state.auth.requires("work"))

    @router.post(
        "/extend",
        response_model=LeaseStates,
        summary="Keep leases",
        openapi_extra=secured("work", requestBody=body_of(Extension)),
    )
    async def extend(request: Request, caller: Caller = may_work) -> Response:
        asked = await read_body(request, Extension)
        work = await state.hf.remote_work()
        wanted = [(lease.job_id, lease.attempt, lease.lease_sec) for lease in asked.leases]
        seconds = 0 if state.draining else min(asked.wait_sec, schemas.LONGEST_SECONDS)
        keeping = work.extend(caller, asked.worker_id, wanted, seconds=seconds)
        told = await (state.unless_in_vain(request, caller, keeping) if seconds else keeping)
        if told is None:
            told = await work.extend(caller, asked.worker_id, wanted)
        leases = [
            {"job_id": lease.job_id, "attempt": lease.attempt, **lease_of(one)}
            for lease, one in zip(asked.leases, told, strict=True)
        ]
        drains = any(one.directive == "drain" for one in told)
        return Response(
            to_json({"leases": leases, "directive": "drain" if drains else "continue"}), media_type="application/json"
        )

    @router.post(
        "/release",
        response_model=ReleasedLeases,
        summary="Hand jobs back",
        openapi_extra=secured("work", requestBody=body_of(Release)),
    )
    async def release(request: Request, caller: Caller = may_work) -> Response:
        asked = await read_body(request, Release)
        work = await state.hf.remote_work()
        wanted = [(lease.job_id, lease.attempt) for lease in asked.leases]
        states = []
        for one in await work.release(caller, asked.worker_id, wanted, reason=asked.reason):
            if isinstance(one, HoldfastError):
                raise one
            states.append(one)
        leases = [
            {"job_id": lease.job_id, "attempt": lease.attempt, "owned": one.state is not None, "state": one.state}
            for lease, one in zip(asked.leases, states, strict=True)
        ]
        return Response(to_json({"leases": leases}), media_type="application/json")

    return router

"""`/ops/workers`: which workers there are, what they run, and stopping one from claiming."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from fastapi import APIRouter, Depends, Request

from holdfast.model.key import Caller
from holdfast.web.auth import secured
from holdfast.web.bodies import read_optional_body
from holdfast.web.description import body_of
from holdfast.web.ops.bodies import Note, Shown
from holdfast.web.ops.jobs import Limit, tenant_of
from holdfast.web.ops.places import NameCursor, cursor_behind, names_before
from holdfast.web.state import AppState

__all__ = ["ops_workers_router"]


class LaneUseDetails(Shown):
    """The slots of a lane. How many are in use is not told to tenants, nor by workers that are lost."""

    slots: int
    used: int | None


class WorkerJobDetails(Shown):
    """A job that a worker runs."""

    job_id: UUID
    type: str
    tenant: str
    queue: str
    attempt: int
    started_at: datetime


class QuietDetails(Shown):
    """Since when a worker claims no more jobs, who told it, and why. A tenant sees only since when."""

    since: datetime
    by: str | None
    note: str | None


class WorkerDetails(Shown):
    """A worker. A tenant sees its own jobs only: `used`, `running` and `jobs` count those."""

    worker: str
    host: str
    pid: int
    version: str
    kind: str
    lanes: dict[str, LaneUseDetails]
    slots: int
    used: int
    types: list[str]
    queues: list[str] | None
    tenants: list[str] | None
    started_at: datetime
    heartbeat_at: datetime
    state: str
    quiet: QuietDetails | None
    running: int
    jobs: list[WorkerJobDetails]


class WorkerPage(Shown):
    """Workers by id."""

    items: list[WorkerDetails]
    next_cursor: str | None


def ops_workers_router(state: AppState) -> APIRouter:
    """The routes, over what an app shares. Ids of workers have colons, and other characters of host names."""
    router = APIRouter(prefix="/ops", tags=["workers"])
    may_operate, may_manage = Depends(state.auth.requires("operate")), Depends(state.auth.requires("admin"))

    @router.get(
        "/workers",
        response_model=WorkerPage,
        summary="Workers by id, with what they run",
        openapi_extra=secured("operate"),
    )
    async def list_workers(limit: Limit = 50, cursor: NameCursor = None, caller: Caller = may_operate) -> WorkerPage:
        before = names_before(cursor, 1)
        workers = (await state.operations()).workers
        found = await workers.list(tenant=tenant_of(caller), after=before[0] if before else None, limit=limit + 1)
        page = [WorkerDetails.model_validate(worker) for worker in found[:limit]]
        return WorkerPage(items=page, next_cursor=cursor_behind(page[-1].worker) if len(found) > limit else None)

    @router.get(
        "/workers/{worker:path}",
        response_model=WorkerDetails,
        summary="A worker, with what it runs",
        operation_id="show_worker",
        openapi_extra=secured("operate"),
    )
    async def show(worker: str, caller: Caller = may_operate) -> WorkerDetails:
        workers = (await state.operations()).workers
        return WorkerDetails.model_validate(await workers.get(worker, tenant=tenant_of(caller)))

    @router.post(
        "/workers/{worker:path}/quiet",
        response_model=WorkerDetails,
        summary="Tell a worker to stop claiming jobs",
        operation_id="quiet_worker",
        openapi_extra=secured("admin", requestBody=body_of(Note, required=False)),
    )
    async def quiet(request: Request, worker: str, caller: Caller = may_manage) -> WorkerDetails:
        why = await read_optional_body(request, Note)
        workers = (await state.operations()).workers
        told = await workers.quiet(worker, by=caller.name, note=why.note, by_key=caller.key_id)
        return WorkerDetails.model_validate(told)

    return router

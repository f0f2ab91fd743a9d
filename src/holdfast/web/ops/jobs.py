"""`/ops/jobs`, `/ops/stats`: search, read and count jobs. A key sees its tenant; with the scope `admin` it sees all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response

from holdfast.model.job import ListedJob
from holdfast.model.key import Caller
from holdfast.web.auth import secured
from holdfast.web.control.jobs import job_id_of
from holdfast.web.cursors import cursor_of, id_of, number_of
from holdfast.web.ops.schemas import (
    AttemptDetails,
    AttemptPage,
    EventDetails,
    EventPage,
    JobDetails,
    JobPage,
    JobSummary,
    Statistics,
)
from holdfast.web.problems import Problem
from holdfast.web.state import AppState

__all__ = [
    "Cursor",
    "Limit",
    "OnlyTenant",
    "Words",
    "ops_jobs_router",
    "stored_json",
    "tenant_asked",
    "tenant_of",
    "who",
]

Limit = Annotated[int, Query(ge=1, le=500, description="the most that a page has")]
Cursor = Annotated[str | None, Query(max_length=64, description="`next_cursor` of the previous page")]
OnlyTenant = Annotated[
    str | None,
    Query(alias="tenant", max_length=200, description="only this tenant's; others than one's own need `admin`"),
]
Words = Annotated[str, Query(max_length=2000, description="the filter language; see the reference")]


def tenant_of(caller: Caller) -> str | None:
    """Whose jobs a caller sees; None for all."""
    return None if caller.may("admin") else caller.tenant


def tenant_asked(caller: Caller, wanted: str | None) -> str | None:
    """Whose jobs a caller wants to see; None for all."""
    own = tenant_of(caller)
    if wanted is None:
        return own
    if own not in (None, wanted):
        raise Problem(403, "scope", "Looking at another tenant needs a key with the scope `admin`.")
    return wanted


def who(caller: Caller) -> dict[str, Any]:
    """Who asks for something, and whose jobs it may be about."""
    return {"by": caller.name, "tenant": tenant_of(caller), "by_key": caller.key_id}


def stored_json(job: ListedJob, texts: Mapping[str, str]) -> str:
    """A job as JSON, its values as stored: parsed, they would take many times as much memory and time."""
    values = "".join(f',"{name}":{text}' for name, text in texts.items())
    return f"{JobSummary.model_validate(job).model_dump_json()[:-1]}{values}}}"


def ops_jobs_router(state: AppState) -> APIRouter:
    """The routes, over what an app shares."""
    router = APIRouter(prefix="/ops", tags=["ops"])
    may_operate, extra = Depends(state.auth.requires("operate")), secured("operate")

    @router.get("/jobs", response_model=JobPage, summary="Search jobs, newest first", openapi_extra=extra)
    async def search(q: Words = "", limit: Limit = 50, cursor: Cursor = None, caller: Caller = may_operate) -> JobPage:
        ops = await state.operations()
        page = await ops.search(q, tenant=tenant_of(caller), before=id_of(cursor), limit=limit)
        return JobPage(
            items=[JobSummary.model_validate(job) for job in page.jobs],
            next_cursor=cursor_of(page.reached),
            looked_back_to=page.reached_at,
        )

    @router.get("/jobs/{job_id}", response_model=JobDetails, summary="Everything about a job", openapi_extra=extra)
    async def read(request: Request, job_id: str, caller: Caller = may_operate) -> Response:
        await state.answers.take(request)
        job, texts = await (await state.operations()).job_texts(job_id_of(job_id), tenant=tenant_of(caller))
        return Response(stored_json(job, texts), media_type="application/json")

    @router.get(
        "/jobs/{job_id}/attempts", response_model=AttemptPage, summary="Ended attempts of a job", openapi_extra=extra
    )
    async def attempts(
        request: Request, job_id: str, limit: Limit = 50, cursor: Cursor = None, caller: Caller = may_operate
    ) -> AttemptPage:
        await state.answers.take(request)
        found, more = await (await state.operations()).attempts(
            job_id_of(job_id), tenant=tenant_of(caller), after=number_of(cursor) or 0, limit=limit
        )
        page = [AttemptDetails.model_validate(attempt) for attempt in found]
        return AttemptPage(items=page, next_cursor=cursor_of(page[-1].attempt) if more else None)

    @router.get("/jobs/{job_id}/events", response_model=EventPage, summary="The history of a job", openapi_extra=extra)
    async def events(
        request: Request, job_id: str, limit: Limit = 50, cursor: Cursor = None, caller: Caller = may_operate
    ) -> EventPage:
        await state.answers.take(request)
        seen = number_of(cursor) or 0
        found, more = await (await state.operations()).events(
            job_id_of(job_id), tenant=tenant_of(caller), after=seen, limit=limit
        )
        page = [EventDetails.model_validate(event) for event in found]
        return EventPage(items=page, next_cursor=cursor_of(seen + len(page)) if more else None)

    @router.get("/stats", response_model=Statistics, summary="Numbers of waiting and running jobs", openapi_extra=extra)
    async def statistics(caller: Caller = may_operate) -> Statistics:
        return Statistics.model_validate(await (await state.operations()).statistics(tenant=tenant_of(caller)))

    return router

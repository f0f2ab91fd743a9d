"""`/ops/bulk`: one action on all jobs that fit a filter; with `admin`, on those of all tenants."""

from __future__ import annotations

from uuid import UUID

from fastapi import APIRouter, Depends, Request, Response

from holdfast.model.key import Caller
from holdfast.web.auth import secured
from holdfast.web.bodies import read_body, read_optional_body
from holdfast.web.cursors import cursor_of, id_of
from holdfast.web.description import body_of
from holdfast.web.ops.bodies import Note
from holdfast.web.ops.bulk_shapes import BulkDetails, BulkMatches, BulkPage, BulkStarted, MatchingJob, NewBulk
from holdfast.web.ops.jobs import Cursor, Limit, tenant_of, who
from holdfast.web.problems import Problem
from holdfast.web.state import AppState

__all__ = ["ops_bulk_router"]

_JSON = "application/json"


def ops_bulk_router(state: AppState) -> APIRouter:
    """The routes, over what an app shares."""
    router = APIRouter(prefix="/ops/bulk", tags=["bulk operations"])
    may_operate, extra = Depends(state.auth.requires("operate")), secured("operate")

    @router.post(
        "",
        status_code=202,
        response_model=BulkStarted,
        responses={200: {"model": BulkMatches, "description": "A dry run: how many jobs fit"}},
        summary="Start a bulk operation, or count the jobs that it would be about",
        operation_id="start_bulk",
        openapi_extra=secured("operate", requestBody=body_of(NewBulk)),
    )
    async def start(request: Request, caller: Caller = may_operate) -> Response:
        asked = await read_body(request, NewBulk)
        bulk, args = (await state.operations()).bulk, None if asked.args is None else asked.args.given()
        if asked.dry_run:
            found = await bulk.preview(asked.action, asked.q, args=args, tenant=tenant_of(caller))
            sample = [MatchingJob.model_validate(job) for job in found.sample]
            matches = BulkMatches(matches=found.matches, exact=found.exact, sample=sample)
            return Response(matches.model_dump_json(), media_type=_JSON)
        started = await bulk.start(
            asked.action,
            asked.q,
            args=args,
            note=asked.note,
            **who(caller),
        )
        return Response(BulkStarted(bulk_id=started).model_dump_json(), 202, media_type=_JSON)

    @router.get(
        "",
        response_model=BulkPage,
        summary="Bulk operations, newest first",
        operation_id="list_bulks",
        openapi_extra=extra,
    )
    async def listed(limit: Limit = 50, cursor: Cursor = None, caller: Caller = may_operate) -> BulkPage:
        bulk = (await state.operations()).bulk
        found = await bulk.list(tenant=tenant_of(caller), before=id_of(cursor), limit=limit)
        page = [BulkDetails.model_validate(each) for each in found]
        return BulkPage(items=page, next_cursor=cursor_of(page[-1].id) if len(page) == limit else None)

    @router.get(
        "/{bulk_id}",
        response_model=BulkDetails,
        summary="How far a bulk operation is",
        operation_id="show_bulk",
        openapi_extra=extra,
    )
    async def show(bulk_id: str, caller: Caller = may_operate) -> BulkDetails:
        found = await (await state.operations()).bulk.get(_id(bulk_id), tenant=tenant_of(caller))
        return BulkDetails.model_validate(found)

    @router.post(
        "/{bulk_id}/stop",
        status_code=202,
        response_model=BulkDetails,
        summary="Stop a bulk operation; what it has already done is kept",
        operation_id="stop_bulk",
        openapi_extra=secured("operate", requestBody=body_of(Note, required=False)),
    )
    async def stop(request: Request, bulk_id: str, caller: Caller = may_operate) -> BulkDetails:
        wanted, said = _id(bulk_id), await read_optional_body(request, Note)
        stopped = await (await state.operations()).bulk.stop(wanted, note=said.note, **who(caller))
        return BulkDetails.model_validate(stopped)

    return router


def _id(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise Problem(404, "not-found", "There is no such bulk operation.") from None

"""`GET /jobs/{jobId}/items`: the items of a job, page by page, also while it stores more."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic_core import to_json

from holdfast.client.control import StoredItem
from holdfast.model.key import Caller
from holdfast.web.auth import secured
from holdfast.web.control.jobs import job_id_of
from holdfast.web.control.schemas import ItemPage, JobItem
from holdfast.web.cursors import cursor_of, number_of
from holdfast.web.state import AppState

__all__ = ["items_router"]

Limit = Annotated[int, Query(ge=1, le=1000, description="the most that a page has")]
Cursor = Annotated[str | None, Query(max_length=40, description="`nextCursor` of the previous page")]


def items_router(state: AppState) -> APIRouter:
    """The route, over what an app shares."""
    router = APIRouter(tags=["jobs"])
    may_read = Depends(state.auth.requires("read"))

    @router.get(
        "/jobs/{job_id}/items",
        response_model=ItemPage,
        summary="The items of a job, oldest first",
        openapi_extra=secured("read"),
    )
    async def items(
        request: Request, job_id: str, limit: Limit = 100, cursor: Cursor = None, caller: Caller = may_read
    ) -> Response:
        control = await state.control()
        after = number_of(cursor, highest=2**63 - 1)
        await state.answers.take(request)
        found, more = await control.items(caller, job_id_of(job_id), after=after, limit=limit)
        page = ",".join(map(_written, found))
        next_cursor = to_json(cursor_of(found[-1].id) if more else None).decode()
        return Response(f'{{"items":[{page}],"nextCursor":{next_cursor}}}', media_type="application/json")

    return router


def _written(item: StoredItem) -> str:
    """As JSON. The data is returned as stored: parsed, it would take many times as much memory."""
    model = JobItem(key=item.key, data=None, collection=item.collection, createdAt=item.created_at)
    return f'{model.model_dump_json(by_alias=True, exclude={"data"})[:-1]},"data":{item.data}}}'

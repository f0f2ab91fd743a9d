"""`GET /jobs/{jobId}/items`: the items of a job, page by page, also while it stores more; or all of them, line by line.

With `?format=ndjson` the answer is a stream of all items, an object in each line, read page by page, so
that its length costs no memory. It is complete if its end arrives: if something goes wrong, the connection is cut.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Annotated, Literal
from uuid import UUID

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic_core import to_json
from starlette.types import Receive, Scope, Send

from holdfast.client.control import StoredItem
from holdfast.errors import HoldfastError
from holdfast.model.key import Caller
from holdfast.web.auth import secured
from holdfast.web.bodies import unhurried
from holdfast.web.control.jobs import job_id_of
from holdfast.web.control.schemas import ItemPage, JobItem
from holdfast.web.cursors import cursor_of, number_of
from holdfast.web.problems import Problem
from holdfast.web.standing import standing_of
from holdfast.web.state import AppState

__all__ = ["items_router"]

_NDJSON = "application/x-ndjson"
_PAGE, _LARGEST_PAGE = 100, 1000

Limit = Annotated[
    int | None, Query(ge=1, le=_LARGEST_PAGE, description="the most that a page (100 if not given) or the export has")
]
Format = Annotated[Literal["json", "ndjson"], Query(description="`ndjson`: all items, one per line, as a stream")]
Cursor = Annotated[str | None, Query(max_length=40, description="`nextCursor` of the previous page")]


def items_router(state: AppState) -> APIRouter:
    """The route, over what an app shares."""
    router = APIRouter(tags=["jobs"])
    may_read = Depends(state.auth.requires("read"))

    @router.get(
        "/jobs/{job_id}/items",
        response_model=ItemPage,
        summary="The items of a job, oldest first",
        responses={200: {"content": {_NDJSON: {"schema": {"type": "string"}}}}},
        openapi_extra=secured("read"),
    )
    async def items(
        request: Request,
        job_id: str,
        *,
        limit: Limit = None,
        cursor: Cursor = None,
        format: Format = "json",  # noqa: A002 - the parameter's name
        caller: Caller = may_read,
    ) -> Response:
        control = await state.control()
        job, after = job_id_of(job_id), number_of(cursor, highest=2**63 - 1)
        exports = format == "ndjson"
        await state.answers.take(request)
        size = limit or (_LARGEST_PAGE if exports else _PAGE)
        found, more = await control.items(caller, job, after=after, limit=size)
        if exports:
            state.begin_to_wait(caller)
            return _Export(state, request, caller, job, limit=limit, found=found, more=more)
        page = ",".join(map(_written, found))
        next_cursor = to_json(cursor_of(found[-1].id) if more else None).decode()
        return Response(f'{{"items":[{page}],"nextCursor":{next_cursor}}}', media_type="application/json")

    return router


class _Export(StreamingResponse):
    """All items, of which a first page was `found`. It counts as a stream until it ends, however it ends."""

    def __init__(
        self,
        state: AppState,
        request: Request,
        caller: Caller,
        job: UUID,
        *,
        limit: int | None,
        found: Sequence[StoredItem],
        more: bool,
    ) -> None:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(self._lines(job, limit, found, more=more), media_type=_NDJSON, headers=headers)
        self._state, self._request, self._caller = state, request, caller

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        try:
            await super().__call__(scope, unhurried(receive), send)
        finally:
            self._state.end_to_wait(self._caller)

    async def _lines(
        self, job: UUID, left: int | None, found: Sequence[StoredItem], *, more: bool
    ) -> AsyncIterator[str]:
        """Page after page. Each has a place among large answers until it was handed to the connection."""
        state, request = self._state, self._request
        while found:
            yield "".join(f"{_written(item)}\n" for item in found)
            state.answers.give_back(request.scope)
            left = None if left is None else left - len(found)
            if not more or left == 0:
                return
            try:
                found, more = await self._next(job, found[-1].id, min(left or _LARGEST_PAGE, _LARGEST_PAGE))
            except (HoldfastError, Problem):
                if not standing_of(request.scope).cut():
                    raise  # somebody else's server cuts it then
                return

    async def _next(self, job: UUID, after: int, size: int) -> tuple[Sequence[StoredItem], bool]:
        state, request = self._state, self._request
        if state.draining:
            raise Problem(503, "unavailable", "The server is about to stop.")
        await state.auth.look_again(request)
        await state.answers.take(request)
        return await (await state.control()).items(self._caller, job, after=after, limit=size)


def _written(item: StoredItem) -> str:
    """As JSON. The data is returned as stored: parsed, it would take many times as much memory."""
    model = JobItem(key=item.key, data=None, collection=item.collection, createdAt=item.created_at)
    return f'{model.model_dump_json(by_alias=True, exclude={"data"})[:-1]},"data":{item.data}}}'

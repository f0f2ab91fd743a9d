"""`/ops/dead-letters`: list, show, acknowledge and requeue dead jobs; with `admin`, those of all tenants."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter, Depends, Query, Request, Response

from holdfast.model.key import Caller
from holdfast.model.letter import LetterPlace
from holdfast.web.auth import secured
from holdfast.web.bodies import read_optional_body
from holdfast.web.control.jobs import job_id_of
from holdfast.web.description import body_of
from holdfast.web.ops.jobs import Limit, Words, stored_json, tenant_of, who
from holdfast.web.ops.letter_shapes import (
    DeadLetterPage,
    LetterAcknowledged,
    LetterDetails,
    LetterNote,
    LetterSummary,
    Requeue,
    Requeued,
)
from holdfast.web.ops.places import NameCursor, cursor_behind, invalid_cursor, moment_place
from holdfast.web.ops.schemas import AttemptDetails
from holdfast.web.state import AppState

__all__ = ["ops_letters_router"]

Which = Annotated[
    Literal["false", "true", "all"] | None,
    Query(description="letters that nobody has acknowledged (the default, unless `q` asks), acknowledged ones, or all"),
]
Fingerprint = Annotated[str | None, Query(max_length=255, description="only failures with this fingerprint")]
_WHICH: dict[str, bool | Literal["all"]] = {"false": False, "true": True, "all": "all"}


def ops_letters_router(state: AppState) -> APIRouter:
    """The routes, over what an app shares."""
    router = APIRouter(prefix="/ops/dead-letters", tags=["dead letters"])
    may_operate, extra = Depends(state.auth.requires("operate")), secured("operate")

    @router.get(
        "",
        response_model=DeadLetterPage,
        summary="Dead letters, newest first",
        operation_id="list_dead_letters",
        openapi_extra=extra,
    )
    async def listed(
        q: Words = "",
        *,
        acknowledged: Which = None,
        fingerprint: Fingerprint = None,
        limit: Limit = 50,
        cursor: NameCursor = None,
        caller: Caller = may_operate,
    ) -> DeadLetterPage:
        page = await (await state.operations()).dead.list(
            q,
            acknowledged=None if acknowledged is None else _WHICH[acknowledged],
            fingerprint=fingerprint,
            tenant=tenant_of(caller),
            before=_place(cursor),
            limit=limit,
        )
        return DeadLetterPage(
            items=[LetterSummary.model_validate(letter) for letter in page.letters],
            next_cursor=None
            if page.reached is None
            else cursor_behind(page.reached.died_at.isoformat(), str(page.reached.job_id)),
        )

    @router.get(
        "/{job_id}",
        response_model=LetterDetails,
        summary="A dead letter, with its job and the end of its last attempt",
        operation_id="show_dead_letter",
        openapi_extra=extra,
    )
    async def show(request: Request, job_id: str, caller: Caller = may_operate) -> Response:
        await state.answers.take(request)
        dead = (await state.operations()).dead
        letter, job, texts, attempt = await dead.show_texts(job_id_of(job_id), tenant=tenant_of(caller))
        details = "null" if attempt is None else AttemptDetails.model_validate(attempt).model_dump_json()
        head = LetterSummary.model_validate(letter).model_dump_json()[:-1]
        body = f'{head},"original_job":{stored_json(job, texts)},"error_details":{details}}}'
        return Response(body, media_type="application/json")

    @router.post(
        "/{job_id}/ack",
        response_model=LetterAcknowledged,
        summary="Acknowledge a dead letter: retention applies from now on",
        operation_id="acknowledge_dead_letter",
        openapi_extra=secured("operate", requestBody=body_of(LetterNote, required=False)),
    )
    async def ack(request: Request, job_id: str, caller: Caller = may_operate) -> LetterAcknowledged:
        wanted, said = job_id_of(job_id), await read_optional_body(request, LetterNote)
        done = await (await state.operations()).dead.ack(wanted, note=said.note, **who(caller))
        shown: dict[str, Any] = LetterSummary.model_validate(done.letter).model_dump()
        return LetterAcknowledged(**shown, changed=done.changed)

    @router.post(
        "/{job_id}/requeue",
        status_code=202,
        response_model=Requeued,
        summary="Run a dead job again as a new one, once",
        operation_id="requeue_dead_letter",
        openapi_extra=secured("operate", requestBody=body_of(Requeue, required=False)),
    )
    async def requeue(request: Request, job_id: str, caller: Caller = may_operate) -> Requeued:
        wanted, asked = job_id_of(job_id), await read_optional_body(request, Requeue)
        created = await (await state.operations()).dead.requeue(
            wanted,
            note=asked.note,
            payload=asked.payload,
            options=None if asked.options is None else asked.options.given(),
            **who(caller),
        )
        return Requeued(job_id=created)

    return router


def _place(cursor: str | None) -> LetterPlace | None:
    """The place in a cursor."""
    place = moment_place(cursor, 1)
    if place is None:
        return None
    died_at, (job_id,) = place
    try:
        return LetterPlace(died_at, UUID(job_id))
    except ValueError:
        raise invalid_cursor() from None

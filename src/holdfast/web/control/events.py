"""`GET /jobs/{jobId}/events`: the public fields whenever they change, as server-sent events, until the job has ended.

`POST /jobs/{jobId}/events/token` is for pages: a browser's EventSource can send no key, so whoever has one asks for a
token, which is good for the events of this one job, for some minutes, and no longer than the key.

Every event is whole and has the moment of the change as its id: who comes back with `Last-Event-ID` gets what
changed since, and nothing twice. A stream lasts about a minute: then the client comes back. It ends within a second
when its key has ended.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from holdfast.client.control import PublicJob
from holdfast.errors import HoldfastError
from holdfast.model.key import Caller
from holdfast.web.auth import LAST_EVENT_ID, TOKEN, secret_of, secured
from holdfast.web.bodies import read_optional_body, unhurried
from holdfast.web.control.jobs import job_id_of
from holdfast.web.control.schemas import JobStatus, TokenAnswer, TokenWish
from holdfast.web.description import body_of
from holdfast.web.problems import Problem
from holdfast.web.state import AppState

__all__ = ["events_router"]

_PING_SECONDS = 15.0
_LONGEST_SECONDS = 60.0
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def events_router(state: AppState) -> APIRouter:
    """The route, over what an app shares."""
    router = APIRouter(tags=["jobs"])
    may_listen = Depends(state.auth.requires("read", tokens=True))
    may_read = Depends(state.auth.requires("read"))

    @router.get(
        "/jobs/{job_id}/events",
        summary="The status of a job, whenever it changes",
        response_class=StreamingResponse,
        responses={
            200: {"content": {"text/event-stream": {}}},
            204: {"description": "The job has ended, and the client knows it"},
        },
        openapi_extra=secured("read", parameters=[LAST_EVENT_ID, TOKEN]),
    )
    async def events(request: Request, job_id: str, caller: Caller = may_listen) -> Response:
        job = await (await state.control()).job(caller, job_id_of(job_id))
        known = request.headers.get("last-event-id", "")
        if job.state.terminal and known == _id(job):
            return Response(status_code=204)  # tells a browser not to come back
        state.begin_to_wait(caller)
        return _Stream(state, request, caller, job, known)

    @router.post(
        "/jobs/{job_id}/events/token",
        status_code=201,
        summary="An address at which a browser can follow a job without a key",
        response_model=TokenAnswer,
        openapi_extra=secured("read", requestBody=body_of(TokenWish, required=False)),
    )
    async def token(request: Request, response: Response, job_id: str, caller: Caller = may_read) -> TokenAnswer:
        wish = await read_optional_body(request, TokenWish)
        control = await state.control()
        job = await control.job(caller, job_id_of(job_id))
        response.headers["Cache-Control"] = "no-store"
        url = f"{request.scope.get('root_path', '')}/jobs/{job.id}/events"
        if caller.key_id is None:
            return TokenAnswer(url=url, token=None, expiresAt=None)
        issued = await control.keyring.issue_token(secret_of(request), job.id, wish.seconds)
        if issued is None:  # it has ended within the second
            await state.auth.look_again(request)
            raise Problem(401, "bad-key", "The key is unknown, revoked or expired.")
        text, expires_at = issued
        return TokenAnswer(url=f"{url}?token={text}", token=text, expiresAt=expires_at)

    return router


class _Stream(StreamingResponse):
    """An event stream. It counts as a wait until it ends, however it ends."""

    def __init__(self, state: AppState, request: Request, caller: Caller, job: PublicJob, known: str) -> None:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(_stream(state, request, caller, job, known), media_type="text/event-stream", headers=headers)
        self._state, self._caller = state, caller

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        try:
            await super().__call__(scope, unhurried(receive), send)
        finally:
            self._state.end_to_wait(self._caller)


async def _stream(state: AppState, request: Request, caller: Caller, job: PublicJob, known: str) -> AsyncIterator[str]:
    yield "retry: 1000\n\n"
    end = time.monotonic() + _LONGEST_SECONDS
    while True:
        if _id(job) != known:
            known = _id(job)
            yield f"id: {known}\nevent: status\ndata: {JobStatus.of(job).text()}\n\n"
        if job.state.terminal or state.draining or time.monotonic() > end:
            return
        try:
            job = await state.changed(request, caller, job, _PING_SECONDS)
        except (HoldfastError, Problem):
            return  # the answer has begun: who is still interested comes back, and is told then
        if _id(job) == known:
            yield ": still here\n\n"


def _id(job: PublicJob) -> str:
    return f"{(job.updated_at - _EPOCH) // timedelta(microseconds=1)}-{job.status.value}"

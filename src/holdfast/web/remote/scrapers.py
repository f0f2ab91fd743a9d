"""`/api/pull_job` and `/api/report_results`: the paths and shapes of a fleet of before, on what `/worker` does.

They exist if HOLDFAST_PULL_JOB_TYPES names job types. They translate, and have no rules of their own.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Header, Query, Request, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast.config import names_of
from holdfast.model.key import Caller
from holdfast.model.remote import PullWish
from holdfast.web.auth import secured
from holdfast.web.bodies import read_body
from holdfast.web.description import body_of
from holdfast.web.fields import also_read
from holdfast.web.problems import Problem
from holdfast.web.proofs import key_field
from holdfast.web.remote.scraper_shapes import (
    Handle,
    PulledAnswer,
    ResultsAnswer,
    ScraperReport,
    lease_of,
    pulled_text,
    worker_of,
)
from holdfast.web.state import AppState

__all__ = ["ScraperKeys", "scrapers_router"]

_PULL, _REPORT = "/api/pull_job", "/api/report_results"
_PATHS = (_PULL, f"{_PULL}.php", _REPORT, f"{_REPORT}.php")
_UNSTORED = {"Cache-Control": "no-store"}

LeaseSec = Annotated[float | None, Query(allow_inf_nan=False, description="how long the job is to be leased")]
WorkerName = Annotated[str | None, Query(max_length=1000, description="the same as `X-Worker-Id`")]
WorkerHeader = Annotated[str | None, Header(alias="X-Worker-Id", description="the scraper's own name")]


def scrapers_router(state: AppState) -> APIRouter:
    """The routes, over what an app shares."""
    router = APIRouter(tags=["scrapers"])
    may_work = Depends(state.auth.requires("work"))
    config = state.hf.config
    types, queues = names_of(config.pull_job_types), names_of(config.pull_job_queues)

    @router.get(_PULL, response_model=PulledAnswer, summary="Take a job to scrape", openapi_extra=secured("work"))
    @router.get(f"{_PULL}.php", include_in_schema=False)
    async def pull_job(
        request: Request,
        lease_sec: LeaseSec = None,
        worker_id: WorkerName = None,
        x_worker_id: WorkerHeader = None,
        caller: Caller = may_work,
    ) -> Response:
        worker = worker_of(worker_id or x_worker_id, "nowhere" if request.client is None else request.client.host)
        wish = PullWish(tuple(sorted(set(types))), tuple(sorted(set(queues))) or None, 1, lease_of(lease_sec))
        work = await state.hf.remote_work()
        told = (await work.pull(caller, worker, wish, request_id=None, seconds=0)).told
        if told.jobs and await request.is_disconnected():
            await work.hand_back(caller, worker, told)
        text = pulled_text(told.jobs[0] if told.jobs else None, worker)
        return Response(text, media_type="application/json", headers=_UNSTORED)

    @router.post(
        _REPORT,
        response_model=ResultsAnswer,
        summary="Report what was scraped",
        openapi_extra=secured("work", requestBody=body_of(ScraperReport)),
    )
    @router.post(f"{_REPORT}.php", include_in_schema=False)
    async def report_results(request: Request, caller: Caller = may_work) -> Response:
        asked = await read_body(request, ScraperReport)
        handle = Handle.read(asked.job_id)
        if handle is None:
            wrong = [{"pointer": "/job_id", "detail": "is not a job_id of /api/pull_job"}]
            raise Problem(422, "invalid", "The body is not valid.", errors=wrong)
        report = asked.report(handle, config.pull_job_item_key)
        work = await state.hf.remote_work()
        (told,) = await work.report(caller, handle.worker, [(handle.job_id, handle.attempt, report.text())])
        answer = ResultsAnswer.of(told, config.pull_job_item_key)
        return Response(answer.model_dump_json(), media_type="application/json")

    return router


class ScraperKeys:
    """Around every request: takes the key of a scraper from the one header that it can set."""

    def __init__(self, app: ASGIApp, header: str) -> None:
        self._app, self._header = app, header.lower().encode()
        also_read(header)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] == "http" and scope["path"].endswith(_PATHS) and not key_field(scope):
            key = next((value for name, value in scope["headers"] if name == self._header), b"")
            if key:
                scope = {**scope, "headers": [*scope["headers"], (b"authorization", b"Bearer " + key)]}
        await self._app(scope, receive, send)

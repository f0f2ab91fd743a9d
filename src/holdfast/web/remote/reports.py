"""`/worker/report`: what attempts have found, how far they are, and how they ended."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Depends, Request, Response
from pydantic import ValidationError
from pydantic_core import to_json

from holdfast.errors import HoldfastError
from holdfast.model.key import Caller
from holdfast.model.remote import ReportTold
from holdfast.web.auth import secured
from holdfast.web.bodies import problem_of, read_body
from holdfast.web.description import also_described, body_of
from holdfast.web.problems import Problem, translated
from holdfast.web.remote.answers import report_of
from holdfast.web.remote.schemas import (
    ReportAnswer,
    ReportBatch,
    ReportBody,
    ReportedFailure,
    ReportFields,
    ReportResults,
    SingleReport,
)
from holdfast.web.state import AppState

__all__ = ["reports_router"]

also_described(ReportFields, ReportedFailure)


def reports_router(state: AppState) -> APIRouter:
    """The route, over what an app shares."""
    router = APIRouter(prefix="/worker", tags=["worker"])
    may_work = Depends(state.auth.requires("work"))

    @router.post(
        "/report",
        response_model=ReportAnswer | ReportResults,
        summary="Report about jobs",
        openapi_extra=secured("work", requestBody=body_of(ReportBody)),
    )
    async def report(request: Request, caller: Caller = may_work) -> Response:
        asked = (await read_body(request, ReportBody)).root
        below = str(request.scope.get("root_path", ""))
        answer = (
            await _many(state, caller, asked, below)
            if isinstance(asked, ReportBatch)
            else await _one(state, caller, asked)
        )
        return Response(to_json(answer), media_type="application/json")

    return router


async def _one(state: AppState, caller: Caller, asked: SingleReport) -> dict[str, Any]:
    work = await state.hf.remote_work()
    (told,) = await work.report(caller, asked.worker_id, [(asked.job_id, asked.attempt, asked.text())])
    return _answer(told)


async def _many(state: AppState, caller: Caller, asked: ReportBatch, below: str) -> dict[str, Any]:
    """The answer to each report, whatever is wrong with the others."""
    results: list[Any] = []
    fitting: list[tuple[int, ReportFields]] = []
    for place, text in enumerate(asked.texts):
        try:
            fitting.append((place, ReportFields.model_validate_json(text)))
            results.append(None)
        except ValidationError as fault:
            results.append(_refused(problem_of(fault, ReportFields, within=f"/reports/{place}"), below))
    if fitting:
        work = await state.hf.remote_work()
        told = await work.report(caller, asked.worker_id, [(one.job_id, one.attempt, one.text()) for _, one in fitting])
        for (place, _), one in zip(fitting, told, strict=True):
            try:
                results[place] = _answer(one, within=f"/reports/{place}")
            except Problem as problem:
                results[place] = _refused(problem, below)
    return {"results": results}


def _answer(told: ReportTold | HoldfastError, *, within: str = "") -> dict[str, Any]:
    if isinstance(told, HoldfastError):
        raise translated(told, within=within)
    return report_of(told)


def _refused(problem: Problem, below: str) -> dict[str, Any]:
    return {"problem": problem.body(below)}

"""`/jobs`: record one or many jobs, and read their status and result."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Sequence
from functools import partial
from http import HTTPStatus
from typing import Any
from uuid import UUID

from fastapi import APIRouter, Depends, Request, Response
from pydantic import ValidationError
from pydantic_core import to_json

from holdfast.bounds import shown
from holdfast.client.control import Keyed, PublicJob
from holdfast.client.job_ref import JobRef
from holdfast.client.recording import Asked
from holdfast.errors import HoldfastError, NotFound
from holdfast.model.key import Caller
from holdfast.model.states import Status
from holdfast.web.auth import PREFER, TRACEPARENT, secured
from holdfast.web.bodies import problem_of, received
from holdfast.web.control.schemas import (
    Accepted,
    Batch,
    BatchAnswer,
    JobError,
    JobResult,
    JobStatus,
    Submission,
)
from holdfast.web.deadline import Deadline
from holdfast.web.description import body_of
from holdfast.web.prefer import applied, wanted_wait
from holdfast.web.problems import Problem, translated
from holdfast.web.state import AppState

__all__ = ["job_id_of", "jobs_router"]

_JSON = "application/json"
_RETRY_AFTER = "1"
#: How many jobs of a batch are checked before other requests get a turn.
_AT_A_TIME = 10
#: A batch of fewer bytes has some hundred jobs at most; others are recorded in turns.
_SMALL_BATCH = 4 * 1024


def job_id_of(text: str) -> UUID:
    """A job's id as it stands in an address."""
    try:
        return UUID(text)
    except ValueError:
        raise NotFound(f"{shown(text)} is not a job id") from None


def jobs_router(state: AppState) -> APIRouter:
    """The routes, over what an app shares."""
    router = APIRouter(tags=["jobs"])
    # Called directly: as a dependency it would cost as much as the rest of a submission.
    submitter = state.auth.requires("submit")
    may_read = Depends(state.auth.requires("read"))

    @router.post(
        "/jobs",
        status_code=202,
        response_model=Accepted,
        responses={
            200: {
                "model": Accepted,
                "description": "The job ended within the requested time",
                "x-headers": ["Location"],
            },
            202: {"x-headers": ["Location"]},
        },
        summary="Record a job",
        openapi_extra=secured("submit", requestBody=body_of(Submission), parameters=[PREFER, TRACEPARENT]),
    )
    async def submit(request: Request) -> Response:
        deadline = Deadline()
        caller = await deadline.holds(submitter(request))
        async with received(request, Submission, deadline) as submission:
            with await deadline.holds(state.backlog.admit(caller, 1, partial(_keyed, [submission]))):
                ref = await _record(state, caller, submission, request, deadline)
        del submission  # nobody needs it during a wait of up to a minute
        seconds = wanted_wait(request)
        job = await _waited(state, request, caller, ref.id, seconds) if seconds else None
        status, code = (ref.status, 202) if job is None else (job.status, 200 if job.state.terminal else 202)
        response = Response(_accepted(ref.id, status), code, media_type=_JSON)
        response.headers["Location"] = _place(request, ref.id)
        return response if job is None else applied(response, seconds)

    @router.post(
        "/jobs/batch",
        status_code=202,
        response_model=BatchAnswer,
        summary="Record up to a thousand jobs, each on its own",
        openapi_extra=secured("submit", requestBody=body_of(Batch)),
    )
    async def submit_batch(request: Request) -> Response:
        deadline = Deadline()
        caller = await deadline.holds(submitter(request))
        async with received(request, Batch, deadline, small=_SMALL_BATCH) as batch:
            with await deadline.holds(state.backlog.admit(caller, len(batch.jobs), partial(_keyed_of, batch))):
                answers = await _record_each(state, caller, batch, request, deadline)
        return Response(to_json({"results": answers}), 202, media_type=_JSON)

    @router.get(
        "/jobs/{job_id}",
        response_model=JobStatus,
        summary="The status of a job",
        openapi_extra=secured("read", parameters=[PREFER]),
    )
    async def read(request: Request, job_id: str, caller: Caller = may_read) -> Response:
        job = await (await state.control()).job(caller, job_id_of(job_id))
        seconds = wanted_wait(request)
        if seconds:
            job = await state.ended(request, caller, job, seconds)
        return applied(Response(JobStatus.of(job).text(), media_type=_JSON), seconds)

    @router.get(
        "/jobs/{job_id}/result",
        response_model=JobResult,
        responses={202: {"model": Accepted, "description": "The job has not ended yet", "x-headers": ["Retry-After"]}},
        summary="How a job ended",
        openapi_extra=secured("read", parameters=[PREFER]),
    )
    async def result(request: Request, job_id: str, caller: Caller = may_read) -> Response:
        control, wanted = await state.control(), job_id_of(job_id)
        job = await control.job(caller, wanted)
        seconds = wanted_wait(request)
        if seconds:
            job = await state.ended(request, caller, job, seconds)
        if not job.state.terminal:
            response = _answer(Accepted(jobId=job.id, status=job.status), 202)
            response.headers["Retry-After"] = _RETRY_AFTER
            return applied(response, seconds)
        await state.answers.take(request)
        ended = await control.result(caller, wanted)
        failed = ended.error_type is not None or ended.error_message is not None
        error = JobError(type=ended.error_type, message=ended.error_message) if failed else None
        answer = JobResult(jobId=job.id, status=job.status, result=None, error=error)
        # Returned as stored: parsed, it would take many times as much memory.
        head = answer.model_dump_json(by_alias=True, exclude={"result"})[:-1]
        body = f'{head},"result":{"null" if ended.result is None else ended.result}}}'
        return applied(Response(body, media_type=_JSON), seconds)

    return router


async def _record(
    state: AppState, caller: Caller, submission: Submission, request: Request, deadline: Deadline
) -> JobRef:
    control = await state.control()
    job_type, payload, options = _asked(submission, _trace(request))
    return await control.submit(caller, job_type, payload, within_seconds=deadline.seconds, **options)


async def _waited(state: AppState, request: Request, caller: Caller, job_id: UUID, seconds: int) -> PublicJob | None:
    """A job that was just recorded, once it has ended or the time is over; None if the server could not wait.

    Whatever becomes of the wait, the answer says that the job is recorded, also to a caller whose key has ended.
    """
    try:
        job = await (await state.control()).job(caller, job_id)
        return await state.ended(request, caller, job, seconds)
    except HoldfastError:
        return None
    except Problem as problem:
        if problem.status != HTTPStatus.UNAUTHORIZED:
            return None
        detail = f"{problem.detail} The job {job_id} was recorded before."
        headers = {**problem.headers, "Location": _place(request, job_id)}
        raise Problem(problem.status, problem.code, detail, headers=headers) from None


async def _record_each(
    state: AppState, caller: Caller, batch: Batch, request: Request, deadline: Deadline
) -> list[dict[str, Any]]:
    """The answer for each job, independent of the others."""
    trace = _trace(request)
    asked: list[Asked | ValidationError] = []
    for place, text in enumerate(batch.texts, 1):
        try:
            asked.append(_asked(Submission.model_validate_json(text), trace))
        except ValidationError as fault:
            asked.append(fault)
        if place % _AT_A_TIME == 0:
            await asyncio.sleep(0)  # give other tasks a turn
    control = await state.control()
    fitting = [one for one in asked if not isinstance(one, ValidationError)]
    try:
        refs = iter(await control.submit_each(caller, fitting, within_seconds=deadline.seconds))
    except HoldfastError as fault:
        refs = itertools.repeat(fault)  # all of them
    below = _below(request)
    return [
        _told(one if isinstance(one, ValidationError) else next(refs), place, below) for place, one in enumerate(asked)
    ]


def _told(answer: JobRef | HoldfastError | ValidationError, place: int, below: str) -> dict[str, Any]:
    if isinstance(answer, JobRef):
        return {"jobId": str(answer.id), "status": answer.status.value}
    within = f"/jobs/{place}"
    if isinstance(answer, ValidationError):
        return {"problem": problem_of(answer, Submission, within=within).body(below)}
    return {"problem": translated(answer, within=within).body(below)}


def _asked(submission: Submission, trace: str | None) -> Asked:
    options = submission.options()
    if trace is not None:
        options.setdefault("traceparent", trace)
    return submission.job_type, submission.payload, options


def _keyed(submissions: Sequence[Submission]) -> list[Keyed]:
    return [(one.job_type, one.idempotency_key, one.dedup_key) for one in submissions]


def _keyed_of(batch: Batch) -> list[Keyed]:
    keyed: list[Keyed] = []
    for text in batch.texts:
        with contextlib.suppress(ValidationError):  # its answer says what is wrong with it
            keyed += _keyed([Submission.model_validate_json(text)])
    return keyed


def _trace(request: Request) -> str | None:
    trace = request.headers.get("traceparent")
    return trace if trace is not None and _is_trace(trace) else None


def _place(request: Request, job_id: UUID) -> str:
    return f"{_below(request)}/jobs/{job_id}"


def _below(request: Request) -> str:
    """The path that the app is mounted below."""
    return str(request.scope.get("root_path", ""))


def _is_trace(text: str) -> bool:
    """An invalid value is ignored, as the standard requires."""
    parts = text.split("-")
    return [len(part) for part in parts] == [2, 32, 16, 2] and all(c in "0123456789abcdef-" for c in text)


def _accepted(job_id: UUID, status: Status) -> str:
    return f'{{"jobId":"{job_id}","status":"{status.value}"}}'


def _answer(model: Accepted, status: int = 200) -> Response:
    return Response(model.model_dump_json(by_alias=True), status, media_type=_JSON)

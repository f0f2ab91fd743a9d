"""`POST /jobs` and `GET /jobs/{jobId}`: record an intent, and ask how it stands."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated, Any, Self
from uuid import UUID

from fastapi import APIRouter, Request, Response
from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

from holdfast.app import Holdfast
from holdfast.errors import NotFound
from holdfast.model.states import Status
from holdfast.web.bodies import read_body

__all__ = ["jobs_router"]

#: Without keys there is one tenant.
TENANT = "default"
_LONGEST_DELAY_SECONDS = 100 * 365 * 86400


def _without_nul(text: str) -> str:
    if "\x00" in text:
        raise ValueError("a NUL character cannot be stored")
    return text


def _visible(key: str) -> str:
    if not re.fullmatch(r"[\x21-\x7e]{1,255}", key):
        raise ValueError("must be 1 to 255 visible ASCII characters")
    return key


def _text(longest: int) -> Any:
    return Annotated[str, Field(min_length=1, max_length=longest), AfterValidator(_without_nul)]


class _Model(BaseModel):
    model_config = ConfigDict(
        alias_generator=to_camel, extra="forbid", strict=True, allow_inf_nan=False, validate_by_name=False
    )


class Submission(_Model):
    """A job to be recorded."""

    job_type: _text(200)  # type: ignore[valid-type]
    payload: dict[str, Any] = Field(default_factory=dict)
    idempotency_key: Annotated[str, AfterValidator(_visible)] | None = None
    dedup_key: _text(255) | None = None  # type: ignore[valid-type]
    correlation_id: _text(255) | None = None  # type: ignore[valid-type]
    target: _text(255) | None = None  # type: ignore[valid-type]
    queue: _text(200) | None = None  # type: ignore[valid-type]
    priority: Annotated[int, Field(ge=0, le=1_000_000_000)] | None = None
    max_attempts: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    target_count: Annotated[int, Field(ge=1, le=2**63 - 1)] | None = None
    run_at: AwareDatetime | None = None
    delay: Annotated[float, Field(ge=0, le=_LONGEST_DELAY_SECONDS)] | None = None
    parent_id: UUID | None = None
    hold: bool | None = None

    @model_validator(mode="after")
    def _one_time(self) -> Self:
        if self.run_at is not None and self.delay is not None:
            raise ValueError("give runAt or delay, not both")
        return self

    def options(self) -> dict[str, Any]:
        """As the client takes them."""
        given = self.model_dump(exclude={"job_type", "payload"}, exclude_none=True)
        if "parent_id" in given:
            given["parent"] = given.pop("parent_id")
        return given


class Accepted(_Model):
    """A job was recorded."""

    job_id: UUID
    status: Status


class PublicJob(Accepted):
    """What clients may know of a job."""

    job_type: str
    created_at: datetime
    updated_at: datetime


def jobs_router(hf: Holdfast) -> APIRouter:
    """The routes, over one app's client."""
    router = APIRouter(tags=["jobs"])
    schema = Submission.model_json_schema()

    @router.post(
        "/jobs",
        status_code=202,
        response_model=Accepted,
        summary="Record a job",
        openapi_extra={"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}},
    )
    async def submit(request: Request, response: Response) -> Accepted:
        submission = await read_body(request, Submission)
        ref = await hf.enqueue(submission.job_type, submission.payload, tenant=TENANT, **submission.options())
        response.headers["Location"] = f"{request.scope.get('root_path', '')}/jobs/{ref.id}"
        # A repeat of a key cannot be told from the first call, whatever became of the job.
        status = Status.PENDING if submission.idempotency_key is not None else ref.status
        return Accepted(jobId=ref.id, status=status)

    @router.get("/jobs/{job_id}", response_model=PublicJob, summary="How a job stands")
    async def read(job_id: str) -> PublicJob:
        job = await hf.get(job_id)
        if job.tenant != TENANT or job.type.startswith("holdfast."):
            raise NotFound(f"there is no job {job_id}")
        return PublicJob(
            jobId=job.id, status=job.status, jobType=job.type, createdAt=job.created_at, updatedAt=job.updated_at
        )

    return router

"""The requests and answers of the control plane."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated, Any, Self, cast
from uuid import UUID

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, WithJsonSchema, model_validator
from pydantic.alias_generators import to_camel
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import to_json

from holdfast.bounds import BOUNDS
from holdfast.client.control import PublicJob
from holdfast.definitions.json_text import JsonText
from holdfast.model.progress import DoneReason
from holdfast.model.states import Status

__all__ = [
    "Accepted",
    "Batch",
    "BatchAnswer",
    "ItemPage",
    "JobError",
    "JobItem",
    "JobResult",
    "JobStatus",
    "Reason",
    "Submission",
    "TokenAnswer",
    "TokenWish",
    "Words",
    "without_nul",
]

BATCH_LIMIT = 1000


def without_nul(text: str) -> str:
    """A text that PostgreSQL can store."""
    if "\x00" in text:
        raise ValueError("a NUL character cannot be stored")
    return text


def _visible(key: str) -> str:
    if not re.fullmatch(r"[\x21-\x7e]{1,255}", key):
        raise ValueError("must be 1 to 255 visible ASCII characters")
    return key


def _not_reserved(job_type: str) -> str:
    if job_type.startswith("holdfast."):
        raise ValueError('job types beginning with "holdfast." are reserved')
    return job_type


def _text(longest: int) -> Any:
    return Annotated[str, Field(min_length=1, max_length=longest), AfterValidator(without_nul)]


#: A reason, as it is stored.
Words = Annotated[str, Field(min_length=1, max_length=1000), AfterValidator(without_nul)]


class _Model(BaseModel):
    model_config = ConfigDict(
        alias_generator=to_camel, extra="forbid", strict=True, allow_inf_nan=False, validate_by_name=False
    )


class Submission(_Model):
    """A job to be recorded."""

    job_type: Annotated[_text(200), AfterValidator(_not_reserved)]  # type: ignore[valid-type]
    #: Text once it was checked: see JsonText.
    payload: Annotated[dict[str, Any], AfterValidator(JsonText.of)] = Field(default={}, validate_default=True)
    idempotency_key: (
        Annotated[str, Field(min_length=1, max_length=255, pattern=r"^[\x21-\x7e]+$"), AfterValidator(_visible)] | None
    ) = None
    dedup_key: _text(255) | None = None  # type: ignore[valid-type]
    correlation_id: _text(255) | None = None  # type: ignore[valid-type]
    target: _text(255) | None = None  # type: ignore[valid-type]
    queue: _text(200) | None = None  # type: ignore[valid-type]
    priority: Annotated[int, Field(ge=0, le=BOUNDS["priority"].high)] | None = None
    max_attempts: Annotated[int, Field(ge=1, le=BOUNDS["max_attempts"].high)] | None = None
    target_count: Annotated[int, Field(ge=1, le=BOUNDS["target_count"].high)] | None = None
    run_at: AwareDatetime | None = None
    delay: Annotated[float, Field(ge=0, le=BOUNDS["delay"].high)] | None = None
    parent_id: UUID | None = None
    hold: bool | None = None
    traceparent: Annotated[str, Field(pattern=r"^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$")] | None = Field(
        default=None, description="the job's trace (W3C Trace Context), if not that of the header `traceparent`"
    )

    @model_validator(mode="after")
    def _one_time(self) -> Self:
        if self.run_at is not None and self.delay is not None:
            raise ValueError("give runAt or delay, not both")
        return self

    def options(self) -> dict[str, Any]:
        """The options, as the client takes them."""
        given = {
            name: value
            for name in self.model_fields_set
            if name not in ("job_type", "payload") and (value := getattr(self, name)) is not None
        }
        if "parent_id" in given:
            given["parent"] = given.pop("parent_id")
        return given


class Batch(_Model):
    """Many jobs. Each is recorded or refused on its own."""

    # Each is checked later, from its own text: an invalid one must not fail the others.
    jobs: Annotated[
        list[
            Annotated[
                dict[str, Any], WithJsonSchema({"$ref": "#/components/schemas/Submission"}), AfterValidator(to_json)
            ]
        ],
        Field(min_length=1, max_length=BATCH_LIMIT),
    ]

    @property
    def texts(self) -> list[bytes]:
        """The jobs as JSON, one by one."""
        return cast("list[bytes]", self.jobs)


class Reason(_Model):
    """The reason for a request, stored in the job's history; its `message` while it is PAUSED or CANCELED."""

    reason: Words | None = None


class TokenWish(_Model):
    """How long the token should be valid."""

    seconds: Annotated[float, Field(ge=1, le=3600)] = 600


class TokenAnswer(_Model):
    """Where a page can follow a job's events, and until when. There is no token if no key is needed."""

    url: str
    token: str | None
    expires_at: datetime | None


class Accepted(_Model):
    """A job was recorded."""

    job_id: UUID
    status: Status


class JobStatus(Accepted):
    """What clients see of a job. Fields without a value are absent, never null."""

    job_type: str
    created_at: datetime
    updated_at: datetime
    message: str | SkipJsonSchema[None] = Field(
        default=None, description="why the job is PAUSED, ERROR or CANCELED, if somebody gave a reason"
    )
    progress_count: int | SkipJsonSchema[None] = Field(default=None, description="how many items were reported")
    result_count: int | SkipJsonSchema[None] = Field(default=None, description="how many items were stored, each once")
    target_count: int | SkipJsonSchema[None] = Field(default=None, description="how many items are wanted")
    last_progress_at: datetime | SkipJsonSchema[None] = Field(default=None, description="when the job reported last")
    done_reason: DoneReason | SkipJsonSchema[None] = Field(default=None, description="why the job ended")

    @classmethod
    def of(cls, job: PublicJob) -> JobStatus:
        """A job as clients may see it."""
        return cls(
            jobId=job.id,
            status=job.status,
            jobType=job.type,
            createdAt=job.created_at,
            updatedAt=job.updated_at,
            message=job.message,
            progressCount=job.progress_count,
            resultCount=job.result_count,
            targetCount=job.target_count,
            lastProgressAt=job.last_progress_at,
            doneReason=job.done_reason,
        )

    def text(self) -> str:
        """As JSON, without fields that have no value."""
        return self.model_dump_json(by_alias=True, exclude_none=True)


class JobItem(_Model):
    """One item of a job."""

    key: str
    data: Any
    collection: str
    created_at: datetime


class ItemPage(_Model):
    """The items of a job, in the order in which they were stored."""

    items: list[JobItem]
    next_cursor: str | None


class JobError(_Model):
    """Why a job failed."""

    type: str | None
    message: str | None


class JobResult(Accepted):
    """The result of a job."""

    result: Any
    error: JobError | None


class BatchAnswer(_Model):
    """The answer for each job of a batch, in order: `{jobId, status}` or `{problem}`."""

    results: list[
        Annotated[
            dict[str, Any],
            WithJsonSchema(
                {"anyOf": [{"$ref": "#/components/schemas/Accepted"}, {"$ref": "#/components/schemas/Refused"}]}
            ),
        ]
    ]

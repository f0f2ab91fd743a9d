"""The requests and answers of remote workers (docs/decisions/035-remote-workers.md)."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal, Self, cast
from uuid import UUID

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    RootModel,
    SkipValidation,
    Tag,
    WithJsonSchema,
    field_validator,
    model_validator,
)
from pydantic_core import to_json

from holdfast.bounds import BOUNDS
from holdfast.definitions.json_text import encode_value
from holdfast.errors import InvalidInput
from holdfast.model.progress import DoneReason
from holdfast.model.remote import PullWish
from holdfast.web.control.schemas import Words, without_nul
from holdfast.web.remote.mending import mended

__all__ = [
    "Extension",
    "LeaseState",
    "LeaseStates",
    "PullBody",
    "PulledJobs",
    "Release",
    "ReleasedLeases",
    "ReportAnswer",
    "ReportBatch",
    "ReportBody",
    "ReportFields",
    "ReportResults",
    "ReportedFailure",
    "SingleReport",
]

_MOST_JOBS, _MOST_REPORTS, _MOST_LEASES, _MOST_ITEMS = 100, 100, 1000, 10_000
#: How long a call may wait.
LONGEST_SECONDS = 60.0
#: Longer texts are cut: they are for people.
_MESSAGE, _TRACEBACK, _LOG = 10_000, 50_000, 10_000
#: How many bytes the names of job types and queues of a pull may have together: thousands of pulls may wait.
_NAMES_BYTES = 8192
_REPLACEMENT = "\ufffd"


class _Asked(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


def _without_reserved(names: list[str]) -> list[str]:
    if any(name.startswith("holdfast.") for name in names):
        raise ValueError('job types beginning with "holdfast." are reserved')
    return names


class StoredValue(str):
    """A JSON value as text, which PostgreSQL can store."""

    __slots__ = ()


def _stored(value: Any) -> StoredValue:
    try:
        return StoredValue(encode_value(value, "the value"))
    except InvalidInput as fault:
        raise ValueError(str(fault)) from None


def _readable(text: str) -> str:
    """A text for people: what cannot be stored is replaced, because the report matters more."""
    return text.replace("\x00", _REPLACEMENT)


_Name = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(without_nul)]
_Names = Annotated[list[_Name], Field(min_length=1, max_length=100)]
#: Any JSON value; its text once it was checked.
_Value = Annotated[Any, AfterValidator(_stored)]
_VISIBLE = r"^[\x21-\x7e]+$"
_WorkerId = Annotated[str, Field(min_length=1, max_length=100, pattern=_VISIBLE)]
_RequestId = Annotated[str, Field(min_length=1, max_length=255, pattern=_VISIBLE)]
_Attempt = Annotated[int, Field(ge=1, le=BOUNDS["max_attempts"].high)]
_Lease = Annotated[float, Field(ge=1, le=3600)]
_Wait = Annotated[float, Field(ge=0, le=LONGEST_SECONDS)]
_Seq = Annotated[int, Field(ge=1, le=2**31 - 1)]


class PullBody(_Asked):
    """What a worker can run, and how much of it it wants now."""

    worker_id: _WorkerId
    types: Annotated[_Names, AfterValidator(_without_reserved)]
    queues: _Names | None = None
    request_id: _RequestId | None = Field(default=None, description="the same for five minutes: the same jobs again")
    max: Annotated[int, Field(ge=1, le=_MOST_JOBS)] = 1
    lease_sec: _Lease | None = None
    wait_sec: _Wait = 0

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        if sum(len(name.encode()) for name in (*self.types, *(self.queues or ()))) > _NAMES_BYTES:
            raise ValueError(f"the names of types and queues may have {_NAMES_BYTES} bytes together: pull with fewer")
        return self

    def wish(self) -> PullWish:
        """What is asked of the engine."""
        queues = None if self.queues is None else tuple(sorted(set(self.queues)))
        return PullWish(tuple(sorted(set(self.types))), queues, self.max, self.lease_sec)


class ReportedItem(_Asked):
    """Something that a job has found. Without a key, the hash of its data is the key."""

    key: Annotated[str, Field(min_length=1, max_length=255), AfterValidator(without_nul)] | None = None
    data: _Value

    def text(self) -> str:
        """As JSON."""
        key = "" if self.key is None else f'"key":{to_json(self.key).decode()},'
        return f'{{{key}"data":{self.data}}}'


class ReportedFailure(_Asked):
    """Why an attempt ended without success, and what should become of the job."""

    kind: Literal["retryable", "fatal", "hold", "snooze"] = "retryable"
    message: Annotated[str, Field(min_length=1), AfterValidator(lambda text: _readable(text)[:_MESSAGE])]
    type: Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_readable)] | None = None
    traceback: Annotated[str, AfterValidator(lambda text: _readable(text)[-_TRACEBACK:])] | None = None
    delay_sec: Annotated[float, Field(ge=0, le=BOUNDS["delay"].high)] | None = None
    circuit: _Name | None = None


class ReportFields(_Asked):
    """What an attempt has found, how far it has come, and how it ended."""

    job_id: Annotated[UUID, Field(strict=False)]
    attempt: _Attempt
    seq: _Seq | None = None
    items: Annotated[list[ReportedItem], Field(max_length=_MOST_ITEMS)] | None = None
    collection: _Name | None = None
    cursor: _Value | None = None
    progress: Annotated[int, Field(ge=0, le=2**63 - 1)] | None = None
    extend_lease_sec: _Lease | None = None
    done: bool = False
    done_reason: DoneReason | None = None
    result: _Value | None = None
    error: Annotated[
        ReportedFailure | None,
        WithJsonSchema(
            {"anyOf": [{"type": "string"}, {"$ref": "#/components/schemas/ReportedFailure"}, {"type": "null"}]}
        ),
    ] = None
    log: Annotated[str, AfterValidator(lambda text: _readable(text)[-_LOG:])] | None = None

    @field_validator("error", mode="before")
    @classmethod
    def _worded(cls, error: Any) -> Any:
        return {"message": error or "no message"} if isinstance(error, str) else error

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.done and self.error is not None:
            raise ValueError("a report says done or error, not both")
        if self.seq is None and (self.items or self.progress or self.cursor is not None):
            raise ValueError("seq is required with items, progress or cursor: it tells a repeat from another report")
        if not self.done and (self.result is not None or self.done_reason is not None):
            raise ValueError("result and done_reason need done")
        return self

    def text(self) -> str:
        """What the engine is asked: the report as JSON."""
        parts = {
            "seq": self.seq,
            "collection": self.collection,
            "progress": self.progress,
            "extend_lease_sec": self.extend_lease_sec,
            "done": self.done or None,
            "done_reason": self.done_reason,
            "error": None if self.error is None else self.error.model_dump(exclude_none=True),
            "log": self.log,
        }
        texts = [f'"{name}":{to_json(value).decode()}' for name, value in parts.items() if value is not None]
        if self.items:
            texts.append(f'"items":[{",".join(item.text() for item in self.items)}]')
        texts += [f'"{name}":{v}' for name, v in (("cursor", self.cursor), ("result", self.result)) if v is not None]
        return f"{{{','.join(texts)}}}"


class SingleReport(ReportFields):
    """A report about one job."""

    worker_id: _WorkerId


class ReportBatch(_Asked):
    """Reports about many jobs. Each is recorded or refused on its own."""

    worker_id: _WorkerId
    # Each is checked later, from its own text: an invalid one must not fail the others.
    reports: Annotated[
        list[
            Annotated[
                dict[str, SkipValidation[Any]],
                WithJsonSchema({"$ref": "#/components/schemas/ReportFields"}),
                AfterValidator(to_json),
            ]
        ],
        Field(min_length=1, max_length=_MOST_REPORTS),
    ]

    @property
    def texts(self) -> list[bytes]:
        """The reports as JSON, one by one."""
        return cast("list[bytes]", self.reports)


def _which(body: Any) -> str:
    return "many" if isinstance(body, dict) and "reports" in body else "one"


class ReportBody(
    RootModel[
        Annotated[Annotated[SingleReport, Tag("one")] | Annotated[ReportBatch, Tag("many")], Discriminator(_which)]
    ]
):
    """A report about one job, or many."""

    @classmethod
    def mended(cls, raw: bytes) -> bytes | None:
        """A body with broken Unicode, as it can be read; None if something else is wrong with it."""
        return mended(raw)


class LeaseRef(_Asked):
    """An attempt of a job."""

    job_id: Annotated[UUID, Field(strict=False)]
    attempt: _Attempt


class LeaseWish(LeaseRef):
    """A lease that is to be prolonged: by `lease_sec`, or by its own length."""

    lease_sec: _Lease | None = None


class Extension(_Asked):
    """The leases that a worker wants to keep."""

    worker_id: _WorkerId
    leases: Annotated[list[LeaseWish], Field(min_length=1, max_length=_MOST_LEASES)]
    wait_sec: _Wait = Field(default=0, description="answer later, unless one of the jobs is to stop, or is lost")


class Release(_Asked):
    """The jobs that a worker hands back."""

    worker_id: _WorkerId
    leases: Annotated[list[LeaseRef], Field(min_length=1, max_length=_MOST_LEASES)]
    reason: Words | None = None


_Directive = Literal["continue", "cancel", "pause", "drain"]


class JobForWorker(BaseModel):
    """A job for a worker."""

    job_id: UUID
    type: str
    queue: str
    payload: dict[str, Any]
    attempt: int
    max_attempts: int
    correlation_id: str
    target: str | None
    cursor: Any
    progress_count: int
    result_count: int
    target_count: int | None
    traceparent: str | None
    timeout_sec: float
    lease_sec: float
    lease_expires_at: datetime
    lease_remaining_ms: int


class InterruptedJob(BaseModel):
    """A job that its worker is to stop, or has lost."""

    job_id: UUID
    attempt: int
    directive: Literal["cancel", "pause", "lost"]


class PulledJobs(BaseModel):
    """The jobs that a worker was given, and what else it should know."""

    jobs: list[JobForWorker]
    directive: Literal["continue", "drain"]
    interrupts: list[InterruptedJob]


class ReportAnswer(BaseModel):
    """What became of a report, and what the worker is to do with the job."""

    state: str
    owned: bool
    directive: _Directive
    lease_expires_at: datetime | None
    lease_remaining_ms: int | None
    progress_count: int
    result_count: int
    duplicate: bool


class ReportResults(BaseModel):
    """The answer for each report of a batch, in order."""

    results: list[
        Annotated[
            dict[str, Any],
            WithJsonSchema(
                {"anyOf": [{"$ref": "#/components/schemas/ReportAnswer"}, {"$ref": "#/components/schemas/Refused"}]}
            ),
        ]
    ]


class LeaseState(BaseModel):
    """How a lease stands."""

    job_id: UUID
    attempt: int
    owned: bool
    directive: _Directive | None
    lease_expires_at: datetime | None
    lease_remaining_ms: int | None


class LeaseStates(BaseModel):
    """How leases stand, in the order of the request; and what concerns the worker."""

    leases: list[LeaseState]
    directive: Literal["continue", "drain"]


class ReleasedLease(BaseModel):
    """What became of a job that was handed back; without `owned` it was lost before."""

    job_id: UUID
    attempt: int
    owned: bool
    state: str | None


class ReleasedLeases(BaseModel):
    """What became of them, in the order of the request."""

    leases: list[ReleasedLease]

"""The shapes of the operators' side, in snake_case."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from pydantic import ConfigDict, Field

from holdfast.model.key import SCOPES, Scope
from holdfast.web.ops.bodies import Shown

__all__ = [
    "AttemptDetails",
    "AttemptPage",
    "AuditPage",
    "AuditRecord",
    "EventDetails",
    "EventPage",
    "JobDetails",
    "JobPage",
    "JobSummary",
    "KeyDetails",
    "KeyMade",
    "KeyPage",
    "NewKey",
    "Rotation",
    "Statistics",
]


class JobSummary(Shown):
    """A job in a list."""

    id: UUID
    type: str
    queue: str
    lane: str
    tenant: str
    state: str
    status: str
    reason: str | None
    priority: int
    attempt: int
    failures: int
    max_attempts: int
    target: str | None
    idempotency_key: str | None
    dedup_key: str | None
    correlation_id: str
    parent_id: UUID | None
    retry_of: UUID | None
    created_by: str | None
    created_at: datetime
    updated_at: datetime
    run_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    last_error: str | None
    last_error_at: datetime | None
    target_count: int | None
    lease_owner: str | None
    lease_expires_at: datetime | None
    interrupt: str | None
    traceparent: str | None
    progress_count: int | None
    result_count: int | None
    last_progress_at: datetime | None
    done_reason: str | None


class JobDetails(JobSummary):
    """Everything about a job."""

    payload: dict[str, Any]
    result: Any
    cursor: Any


class JobPage(Shown):
    """Jobs, newest first. A page searches a bounded number of jobs, back to `looked_back_to` (null: all jobs)."""

    items: list[JobSummary]
    next_cursor: str | None
    looked_back_to: datetime | None


class AttemptDetails(Shown):
    """One ended attempt."""

    job_id: UUID
    attempt: int
    worker: str
    started_at: datetime
    finished_at: datetime
    queue_ms: int | None
    duration_ms: int | None
    outcome: str
    error_type: str | None
    error_message: str | None
    traceback: str | None
    log_excerpt: str | None


class AttemptPage(Shown):
    """Ended attempts, oldest first."""

    items: list[AttemptDetails]
    next_cursor: str | None


class EventDetails(Shown):
    """One entry in a job's history, with who and why."""

    job_id: UUID
    at: datetime
    event: str
    by: str | None
    note: str | None


class EventPage(Shown):
    """The history of a job without its attempts, oldest first."""

    items: list[EventDetails]
    next_cursor: str | None


class StreamFigures(Shown):
    """Numbers of jobs of one type in one queue of one tenant."""

    tenant: str
    queue: str
    type: str
    ready: int
    running: int
    oldest_ready_at: datetime | None


class Statistics(Shown):
    """Numbers of waiting and running jobs: the thousand busiest streams, and whether there are more."""

    streams: list[StreamFigures]
    more_streams: bool
    due: int
    waiting: int
    dead: int


class KeyDetails(Shown):
    """A key; its secret was shown once, when it was made."""

    id: UUID
    tenant: str
    name: str
    prefix: str
    scopes: list[str]
    requests_per_second: float | None
    max_waiting: int | None
    created_at: datetime
    created_by: str | None
    expires_at: datetime | None
    revoked_at: datetime | None
    revoked_by: str | None
    replaced_by: UUID | None
    last_used_at: datetime | None


class KeyMade(KeyDetails):
    """A new key with its secret, which is not stored anywhere."""

    secret: str


class KeyPage(Shown):
    """Keys, oldest first."""

    items: list[KeyDetails]
    next_cursor: str | None


class NewKey(Shown):
    """A key to be made."""

    model_config = ConfigDict(extra="forbid")

    name: Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00]+$")]
    tenant: Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00]+$")] = "default"
    scopes: Annotated[list[Scope], Field(min_length=1, max_length=len(SCOPES))]
    expires_in_seconds: Annotated[int, Field(gt=0, le=10 * 365 * 86400)] | None = None
    requests_per_second: Annotated[float, Field(gt=0, le=1e6)] | None = None
    max_waiting: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = None


class Rotation(Shown):
    """How long the old key stays valid."""

    model_config = ConfigDict(extra="forbid")

    overlap_seconds: Annotated[int, Field(ge=0, le=30 * 86400)] = 86400


class AuditRecord(Shown):
    """One entry of the audit log."""

    id: int
    at: datetime
    actor: str
    key_id: UUID | None
    tenant: str | None
    action: str
    subject: str | None
    detail: dict[str, Any] | None
    address: str | None
    request_id: str | None


class AuditPage(Shown):
    """The audit log, newest first."""

    items: list[AuditRecord]
    next_cursor: str | None

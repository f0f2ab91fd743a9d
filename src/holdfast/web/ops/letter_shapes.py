"""The shapes of dead letters, in snake_case."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Self
from uuid import UUID

from pydantic import AfterValidator, AwareDatetime, Field, model_validator

from holdfast.bounds import BOUNDS
from holdfast.definitions.json_text import JsonText
from holdfast.web.control.schemas import without_nul
from holdfast.web.ops.bodies import Asked, Note, Shown
from holdfast.web.ops.schemas import AttemptDetails, JobDetails

__all__ = [
    "DeadLetterPage",
    "LetterAcknowledged",
    "LetterDetails",
    "LetterNote",
    "LetterSummary",
    "Requeue",
    "RequeueOptions",
    "Requeued",
]


class LetterSummary(Shown):
    """A dead job in a list."""

    job_id: UUID
    tenant: str
    type: str
    queue: str
    error_type: str | None
    error_message: str | None
    fingerprint: str | None
    attempts: int
    died_at: datetime
    acknowledged: bool
    acknowledged_by: str | None
    acknowledged_at: datetime | None
    note: str | None
    requeued_as: UUID | None


class LetterDetails(LetterSummary):
    """A dead letter with the dead job and the end of its last attempt."""

    original_job: JobDetails
    error_details: AttemptDetails | None


class LetterAcknowledged(LetterSummary):
    """The letter as it is now. It is not `changed` if it was acknowledged before: the first acknowledgement stays."""

    changed: bool


class DeadLetterPage(Shown):
    """Dead letters, newest first. A page looks at a bounded number of letters, so it may have fewer than asked for."""

    items: list[LetterSummary]
    next_cursor: str | None


_Name = Annotated[str, Field(min_length=1, max_length=255), AfterValidator(without_nul)]
_Queue = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(without_nul)]


class LetterNote(Note):
    """Why a letter is acknowledged, for other operators."""


class RequeueOptions(Asked):
    """What the new job has other than the dead one. An option that is null is left to the job type."""

    priority: Annotated[int, Field(ge=0, le=BOUNDS["priority"].high)] | None = None
    queue: _Queue | None = None
    target: _Name | None = None
    max_attempts: Annotated[int, Field(ge=1, le=BOUNDS["max_attempts"].high)] | None = None
    target_count: Annotated[int, Field(ge=1, le=BOUNDS["target_count"].high)] | None = None
    dedup_key: _Name | None = None
    run_at: AwareDatetime | None = None
    delay: Annotated[float, Field(ge=0, le=BOUNDS["delay"].high)] | None = None
    hold: bool | None = None
    traceparent: Annotated[str, Field(pattern=r"^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$")] | None = None

    @model_validator(mode="after")
    def _one_time(self) -> Self:
        if self.run_at is not None and self.delay is not None:
            raise ValueError("give run_at or delay, not both")
        return self

    def given(self) -> dict[str, Any]:
        """The options that were named."""
        return {name: getattr(self, name) for name in self.model_fields_set}


class Requeue(LetterNote):
    """How a dead job runs again; without a payload or options, as it was."""

    payload: Annotated[dict[str, Any], AfterValidator(JsonText.of)] | None = None
    options: RequeueOptions | None = None


class Requeued(Shown):
    """The job that the dead one runs again as."""

    job_id: UUID

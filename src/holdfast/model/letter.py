"""Dead letters, as operators see them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from holdfast.model.job import Attempt, Job

__all__ = ["Acknowledgement", "DeadLetter", "DeadLetterDetails", "LetterPage", "LetterPlace", "RequeueAnswer"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A dead job in a list, with who acknowledged it and the job that it was requeued as."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterDetails:
    """A letter with the dead job and the end of its last attempt."""

    letter: DeadLetter
    original_job: Job
    error_details: Attempt | None


class LetterPlace(NamedTuple):
    """Where a letter stands in the list."""

    died_at: datetime
    job_id: UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterPage:
    """Letters, newest first. `reached` is where to go on, None if everything was looked at."""

    letters: list[DeadLetter]
    reached: LetterPlace | None


class Acknowledgement(NamedTuple):
    """The letter as it is now; not `changed` if it was acknowledged before."""

    letter: DeadLetter
    changed: bool


class RequeueAnswer(NamedTuple):
    """The job that a dead one runs again as, and whether it was made now: a repeated requeue answers the same job."""

    runs_as: UUID
    is_new: bool

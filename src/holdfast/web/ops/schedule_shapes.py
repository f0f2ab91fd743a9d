"""The shapes of schedules, in snake_case."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, cast
from uuid import UUID

from pydantic import AfterValidator, Field

from holdfast.bounds import BOUNDS
from holdfast.definitions.json_text import JsonText
from holdfast.model.schedule import CATCH_UP_SECONDS, Overlap
from holdfast.web.control.schemas import without_nul
from holdfast.web.ops.bodies import Asked, Note, Shown

__all__ = [
    "FireDetails",
    "NewSchedule",
    "NextFires",
    "ScheduleChange",
    "ScheduleDetails",
    "SchedulePage",
    "ScheduleRun",
    "ScheduleSummary",
]

_Name = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(without_nul)]
_Text = Annotated[str, Field(min_length=1, max_length=255), AfterValidator(without_nul)]


def _seconds(bound: str) -> Any:
    return Field(ge=BOUNDS[bound].low, le=BOUNDS[bound].high)


class ScheduleOptions(Asked):
    """The options of a schedule's jobs."""

    priority: Annotated[int, Field(ge=0, le=BOUNDS["priority"].high)] | None = None
    queue: _Name | None = None
    target: _Text | None = None
    max_attempts: Annotated[int, Field(ge=1, le=BOUNDS["max_attempts"].high)] | None = None
    target_count: Annotated[int, Field(ge=1, le=BOUNDS["target_count"].high)] | None = None
    dedup_key: _Text | None = None
    correlation_id: _Text | None = None

    def given(self) -> dict[str, Any]:
        """The options that were named."""
        return {name: getattr(self, name) for name in self.model_fields_set}


class ScheduleChange(Note):
    """When a schedule fires, by a `cron` expression in the zone `tz` or `every` many seconds, and what it records."""

    cron: _Name | None = None
    every: Annotated[float, _seconds("every")] | None = None
    job: _Name
    payload: Annotated[dict[str, Any], AfterValidator(JsonText.of)] = Field(default={}, validate_default=True)
    tz: Annotated[str, Field(min_length=1, max_length=100), AfterValidator(without_nul)] = "UTC"
    overlap: Overlap = "skip"
    catch_up: Annotated[float, _seconds("catch_up")] = CATCH_UP_SECONDS
    jitter: Annotated[float, _seconds("jitter")] = 0.0
    options: ScheduleOptions = ScheduleOptions()

    @property
    def text(self) -> str:
        """The payload as JSON text."""
        return cast("str", self.payload)

    def given(self) -> dict[str, Any]:
        """The arguments of the client's verbs."""
        definition = {name: getattr(self, name) for name in ScheduleChange.model_fields if name != "options"}
        return {**definition, "options": self.options.given()}


class NewSchedule(ScheduleChange):
    """A schedule to be made."""

    name: _Name


class ScheduleSummary(Shown):
    """A schedule in a list, without its payload.

    `words` say when it fires; `last_error` why it could not, the last `failures` times.
    """

    tenant: str
    name: str
    state: str
    cron: str | None
    every: float | None
    tz: str
    words: str
    job: str
    options: dict[str, Any]
    overlap: str
    catch_up: float
    jitter: float
    declared: bool
    declared_at: datetime | None
    next_fire_at: datetime | None
    last_fire_at: datetime | None
    last_job_id: UUID | None
    missed_at: datetime | None
    fired: int
    skipped: int
    failures: int
    last_error: str | None
    last_error_at: datetime | None
    paused_at: datetime | None
    paused_by: str | None
    paused_note: str | None
    created_at: datetime
    created_by: str
    updated_at: datetime
    updated_by: str


class FireDetails(Shown):
    """What became of a fire time: fired, existing, skipped, missed (all up to `missed_to`), or by-hand; and its job."""

    fire_at: datetime
    outcome: str
    job_id: UUID | None
    state: str | None
    missed_to: datetime | None
    by: str | None
    decided_at: datetime


class ScheduleDetails(ScheduleSummary):
    """A schedule with its payload and its last fire times, newest first."""

    payload: dict[str, Any]
    fires: list[FireDetails]


class SchedulePage(Shown):
    """Schedules by tenant and name."""

    items: list[ScheduleSummary]
    next_cursor: str | None


class NextFires(Shown):
    """The next fire times; none while the schedule is paused or retired."""

    items: list[datetime]


class ScheduleRun(Shown):
    """The job that was recorded."""

    job_id: UUID

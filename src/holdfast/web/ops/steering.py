"""The shapes of steering, in snake_case."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from pydantic import Field, PlainValidator, WithJsonSchema

from holdfast.errors import InvalidInput
from holdfast.model.limits import Rate
from holdfast.model.subject import Draining, Lane, Queue, Tenant, Type
from holdfast.web.control.schemas import Reason
from holdfast.web.ops.bodies import Asked, Shown

__all__ = [
    "AskedFor",
    "DrainState",
    "ExplanationDetails",
    "JobReason",
    "LaneDetails",
    "LanePage",
    "Limits",
    "PauseReason",
    "QueueDetails",
    "QueuePage",
    "TargetDetails",
    "TargetList",
    "TenantDetails",
    "TenantLimits",
    "TenantPage",
    "TypeDetails",
    "TypePage",
    "shown",
]


class PauseReason(Reason):
    """The reason for a pause. Tenants see the reason of the installation's operators only if it is public."""

    public: bool = False


class JobReason(Reason):
    """The reason for a request. The job's clients see it, as `message`, only if it is public."""

    public: bool = False


class Pause(Shown):
    """Who stopped claims, why, and since when. A tenant sees who and why only of its own pauses, and public reasons."""

    by: str | None
    reason: str | None
    since: datetime

    @classmethod
    def of(cls, subject: Queue | Type | Lane | Tenant | Draining) -> Pause | None:
        """The pause of a subject, if it is paused."""
        if subject.paused_at is None:
            return None
        return cls(by=subject.paused_by, reason=subject.paused_note, since=subject.paused_at)


class Closing(Shown):
    """Who closed a job type to new jobs, why, and since when."""

    by: str
    reason: str | None
    since: datetime

    @classmethod
    def of(cls, found: Type) -> Closing | None:
        """The closing of a type, if it is closed."""
        if found.closed_at is None or found.closed_by is None:
            return None
        return cls(by=found.closed_by, reason=found.closed_note, since=found.closed_at)


def _read(value: Any) -> Rate:
    """A rate as callers may send it."""
    if isinstance(value, Mapping) and set(value) == {"count", "seconds"}:
        return Rate(value["count"], value["seconds"])
    if not isinstance(value, str):
        raise InvalidInput('a rate looks like "100/min"')
    rate = Rate.of(value)
    assert rate is not None  # noqa: S101 - which a text cannot be
    return rate


def _checked(value: Any) -> Rate:
    try:
        return _read(value)
    except InvalidInput as fault:
        raise ValueError(str(fault)) from None


#: In the description, a part of what is understood: `{"count": 100, "seconds": 60}` is, too, which servers before took.
_RATE = {
    "type": "string",
    "pattern": "^[1-9][0-9]{0,3}/[1-9]?[0-9]?(s|min|h)$|^[1-9][0-9]{0,3}/d$",
    "examples": ["10/s", "100/min", "1000/d", "5/30s"],
    "description": "How many jobs may start per time; 31 days at most.",
}


class Limits(Asked):
    """How many jobs may run at once and start per time. A limit that is left out is cleared."""

    limit: Annotated[int, Field(ge=0, le=10_000)] | None = None
    #: A `Rate` after the check. If the class were named here, OpenAPI would describe a shape that nobody sends.
    rate: Annotated[Any, PlainValidator(_checked), WithJsonSchema(_RATE)] | None = None


class TenantLimits(Limits):
    """A tenant's slots, its rate, and its weight (1 if left out)."""

    weight: Annotated[float, Field(ge=0.001, le=1000)] | None = None


class _ScopeDetails(Shown):
    """`waiting` counts the jobs that wait for a worker, up to 10 000; `waiting_more`: there are more."""

    name: str
    waiting: int
    waiting_more: bool
    running: int
    paused: Pause | None


class QueueDetails(_ScopeDetails):
    """A queue."""

    limit: int | None
    rate: str | None


class TypeDetails(QueueDetails):
    """A job type, with what its code declares and how many live workers know it."""

    queue: str
    lane: str
    version: int | None
    declared_limit: int | None
    declared_limit_key: str | None
    declared_rate: str | None
    declared_rate_key: str | None
    workers: int
    closed: Closing | None


class LaneDetails(_ScopeDetails):
    """A lane, with the slots of live workers. `utilisation` is used slots divided by slots."""

    slots: int
    used: int
    utilisation: float | None


class TenantDetails(QueueDetails):
    """A tenant. `limit` is the number of its slots."""

    weight: float | None


class QueuePage(Shown):
    """Queues by name."""

    items: list[QueueDetails]
    next_cursor: str | None


class TypePage(Shown):
    """Job types by name."""

    items: list[TypeDetails]
    next_cursor: str | None


class LanePage(Shown):
    """Lanes by name."""

    items: list[LaneDetails]
    next_cursor: str | None


class TenantPage(Shown):
    """Tenants by name."""

    items: list[TenantDetails]
    next_cursor: str | None


class DrainState(Shown):
    """Whether claims are stopped, and how many jobs still run.

    `drained`: claims are stopped, nothing runs, and no claim is under way that could still begin a job.
    """

    paused: Pause | None
    running: int
    drained: bool

    @classmethod
    def of(cls, drain: Draining) -> DrainState:
        """The current state."""
        return cls(paused=Pause.of(drain), running=drain.running, drained=drain.drained)


class TargetDetails(Shown):
    """A target with open jobs: the job at its head, which blocks the target if `blocked` is true, and those behind it.

    `waiting` counts up to 10 000. `line` has the first jobs behind the head, if one target was asked for.
    """

    tenant: str
    target: str
    blocked: bool
    job_id: UUID | None
    type: str | None
    state: str | None
    since: datetime | None
    run_at: datetime | None
    worker: str | None
    by: str | None
    note: str | None
    last_error: str | None
    waiting: int
    waiting_more: bool
    line: list[UUID]


class TargetList(Shown):
    """By tenant and target. A page searches a bounded number of targets, and may be empty before the last page."""

    items: list[TargetDetails]
    next_cursor: str | None


class ExplanationDetails(Shown):
    """Why a job does not run: a code for programs, a sentence for people, and what is to blame."""

    code: str
    sentence: str
    culprit: dict[str, Any] | None


class AskedFor(Shown):
    """The request was recorded; this is the job's current state."""

    job_id: UUID
    state: str


def shown(subject: Queue | Type | Lane | Tenant) -> QueueDetails | TypeDetails | LaneDetails | TenantDetails:
    """A subject as it is answered."""
    kind = _DETAILS[type(subject)]
    values: dict[str, Any] = {name: getattr(subject, name, None) for name in kind.model_fields}
    values["paused"] = Pause.of(subject)
    if isinstance(subject, Queue):
        values |= {"limit": subject.limit_count, "rate": None if subject.rate is None else str(subject.rate)}
    if isinstance(subject, Type):
        values["closed"] = Closing.of(subject)
        values["declared_rate"] = None if subject.declared_rate is None else str(subject.declared_rate)
    return kind(**values)


_DETAILS: dict[type, type[QueueDetails | TypeDetails | LaneDetails | TenantDetails]] = {
    Queue: QueueDetails,
    Type: TypeDetails,
    Lane: LaneDetails,
    Tenant: TenantDetails,
}

"""The events that a process publishes.

Subscribers are called where an event happens: in the event loop, or in the thread that keeps the leases. They must be
quick, and must not wait.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

__all__ = [
    "AttemptEnded",
    "AttemptStarted",
    "ClockJumped",
    "DatabaseBack",
    "DatabaseLost",
    "DutyBack",
    "DutyFailed",
    "Event",
    "JobEnqueued",
    "LeaderChanged",
    "LeaseLost",
    "LoopBlocked",
    "Mended",
    "PayloadMisfit",
    "RequestServed",
    "ScheduleFailed",
    "ScheduleMissed",
    "ScheduleRefused",
    "SettingOverruled",
    "SettlementDelayed",
    "SweepPostponed",
    "WorkerChanged",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """The base class of all events."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEnqueued(Event):
    """This process recorded a job, or the job already existed (`outcome` says which).

    A job recorded on a caller's connection exists only once that transaction commits.
    """

    job_id: UUID
    type: str
    tenant: str
    state: str
    outcome: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PayloadMisfit(Event):
    """A job was recorded whose payload no live worker accepts (`VALIDATE_PAYLOADS` is `warn`)."""

    type: str
    tenant: str
    fault: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptStarted(Event):
    """A handler is about to run."""

    job_id: UUID
    type: str
    tenant: str
    queue: str
    attempt: int
    queue_seconds: float
    correlation_id: str
    worker: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptEnded(Event):
    """An attempt was settled: how long it took, why it failed, how many failures there were, what became of the job."""

    job_id: UUID
    type: str
    tenant: str
    queue: str
    attempt: int
    outcome: str
    state: str
    failures: int
    duration_seconds: float
    queue_seconds: float
    correlation_id: str
    worker: str
    error_type: str | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseLost(Event):
    """A settlement or renewal came too late: the attempt no longer owns the job, and its result was dropped."""

    job_id: UUID
    type: str
    attempt: int
    worker: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SettlementDelayed(Event):
    """An outcome could repeatedly not be recorded, even on its own. Its lease is kept, and it is tried again."""

    job_id: UUID
    type: str
    attempt: int
    worker: str
    fault: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopBlocked(Event):
    """A handler blocks the event loop: its lease is kept, but everything else in this worker waits.

    `job_id`, `type` and `attempt` name the attempt that blocks it; they are None if it is not known.
    """

    worker: str
    seconds: float
    job_id: UUID | None = None
    type: str | None = None
    attempt: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerChanged(Event):
    """A worker started, follows settings that were changed meanwhile, began to drain, or stopped.

    It also says when somebody stopped claims everywhere, and when it claims again.
    """

    worker: str
    change: str
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderChanged(Event):
    """This process became the leader of maintenance, or stopped leading it."""

    holder: str
    leading: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Mended(Event):
    """Maintenance found something inconsistent and repaired it."""

    what: str
    job_id: UUID | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DutyFailed(Event):
    """A duty of maintenance failed, and will be tried again."""

    duty: str
    fault: str
    failures: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleFailed(Event):
    """A schedule could not fire, and will be tried again."""

    name: str
    tenant: str
    fault: str
    failures: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleMissed(Event):
    """Fire times of a schedule, from this one on, came later than its catch-up window allows."""

    name: str
    tenant: str
    since: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleRefused(Event):
    """The engine did not take a schedule that this process declares."""

    name: str
    tenant: str
    fault: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DutyBack(Event):
    """A duty of maintenance that had failed succeeded again."""

    duty: str
    failures: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPostponed(Event):
    """Leases have lapsed by the clock but are not swept yet, because their workers had no full chance to renew them."""

    leases: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockJumped(Event):
    """The database's clock was set, or its machine was suspended. No lease is swept for a while."""

    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseLost(Event):
    """A part of this process cannot use the database and keeps trying. `away`: no server can be reached at all."""

    part: str
    fault: str
    away: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseBack(Event):
    """The database answers again."""

    part: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestServed(Event):
    """The control plane answered a request. `route` is the route's pattern, not the address with its ids."""

    method: str
    route: str
    status: int
    duration_seconds: float
    tenant: str | None = None
    key: str | None = None
    request_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingOverruled(Event):
    """The server has a setting that Holdfast overrides in its own transactions. Published when a process starts."""

    name: str
    value: str
    origin: str

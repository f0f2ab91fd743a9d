"""What the engine answers to maintenance, by name: see holdfast.store.maintenance."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

__all__ = [
    "AddedUp",
    "Admitted",
    "Aged",
    "BroughtNearer",
    "DueSchedule",
    "Elected",
    "FiredSchedule",
    "JudgedLease",
    "MendedJob",
    "Place",
    "Presidency",
    "Promoted",
    "PromotedBehind",
    "Reconciled",
    "Retired",
    "ReviewedLease",
    "ScheduleDecision",
    "Walked",
    "WatchedLease",
]

#: An entry of `due`: when, and which job.
Place = tuple[datetime, UUID]


class AddedUp(NamedTuple):
    """How many failures were added up, and the last of them."""

    added: int
    reached: int


class Presidency(NamedTuple):
    """The answer to a renewal of the leader's term."""

    leads: bool
    clock: datetime
    server_started: datetime
    unheard: bool
    renewals: int


class Promoted(NamedTuple):
    """How many jobs became queued, when the next one is due, and how far the call has come."""

    promoted: int
    next_in_seconds: float | None
    reached: datetime | None


class PromotedBehind(NamedTuple):
    """Whether everything due was seen, how far the call has come, and where each tenant with more jobs goes on."""

    ended: bool
    reached: Place
    left: dict[str, Place]


class Elected(NamedTuple):
    """How many targets were called, and the last call that was answered."""

    called: int
    reached: int


class Admitted(NamedTuple):
    """How many gates with parked jobs were looked at, and the last of them; empty at the end."""

    looked: int
    reached: str


class WatchedLease(NamedTuple):
    """A lease that nobody has renewed for long, as it was at the last look."""

    job_id: UUID
    attempt: int
    expires_at: datetime


class JudgedLease(NamedTuple):
    """A lapsed lease: taken back, with the state of its job, or spared (None)."""

    job_id: UUID
    attempt: int
    worker: str
    state: str | None
    expires_at: datetime
    lease_seconds: float


class ReviewedLease(NamedTuple):
    """A lease whose end was checked, and perhaps brought nearer."""

    job_id: UUID
    attempt: int
    lease_seconds: float
    was: datetime
    expires_at: datetime


class BroughtNearer(NamedTuple):
    """How many times were brought nearer, and where to go on; None at the end."""

    changed: int
    reached: tuple[Any, Any] | None


class Aged(NamedTuple):
    """Where to go on, None at the end; and the lowest and highest rank that were seen."""

    reached: tuple[int, int] | None
    ranks: tuple[int, int] | None


class MendedJob(NamedTuple):
    """A job that lacked a side row, and the repair."""

    job_id: UUID
    repair: str


class Reconciled(NamedTuple):
    """The repairs on some pages, whether they have open jobs, and the page to go on with; None at the end."""

    mended: list[MendedJob]
    has_open_jobs: bool
    reached: int | None


class Walked(NamedTuple):
    """How many entries were mended or forgotten, and where to go on; None at the end."""

    mended: int
    reached: list[str] | None


class DueSchedule(NamedTuple):
    """A schedule that is to be looked at, as it was when the database's clock said `clock`."""

    id: int
    tenant: str
    name: str
    revision: int
    cron: str | None
    every_seconds: float | None
    anchor: datetime
    tz: str
    next_fire_at: datetime | None
    reckoned_from: datetime
    catch_up: float
    clock: datetime


class ScheduleDecision(NamedTuple):
    """What is to become of a schedule: fire times that are due, the next one, and up to when it came too late."""

    schedule: DueSchedule
    following: datetime | None
    missed_to: datetime | None
    fires: list[datetime]


class FiredSchedule(NamedTuple):
    """What a schedule fired and skipped, since when it missed fire times, or why it failed, and how many times."""

    id: int
    tenant: str
    name: str
    fired: int
    skipped: int
    missed_from: datetime | None
    fault: str | None
    failures: int


class Retired(NamedTuple):
    """How many jobs were deleted, how far the call has come (None at the end), and the first job that was kept."""

    deleted: int
    reached: UUID | None
    kept: UUID | None

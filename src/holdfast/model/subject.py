"""What can be steered (queues, types, lanes, tenants), targets, and why a job does not run."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, TypedDict
from uuid import UUID

from holdfast.model.limits import Rate

__all__ = [
    "Decision",
    "Draining",
    "Explanation",
    "Kind",
    "Lane",
    "LimitChanges",
    "Queue",
    "Subject",
    "Target",
    "Tenant",
    "Type",
]

Kind = Literal["queue", "type", "lane", "tenant", "everything"]


class LimitChanges(TypedDict, total=False):
    """What is to change, None to clear it: jobs at once, starts per time ("100/min"), and a tenant's share."""

    limit: int | None
    rate: Rate | str | None
    weight: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What somebody decided, and still holds.

    `paused_tenant` is the tenant whose own operators paused it, None for those of the installation; `paused_public`
    says whether tenants are told the reason.
    """

    kind: Kind
    name: str
    paused_at: datetime | None
    paused_by: str | None
    paused_note: str | None
    paused_tenant: str | None
    paused_public: bool
    limit_count: int | None
    rate_count: int | None
    rate_seconds: float | None
    weight: float | None
    updated_at: datetime
    updated_by: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What waits and runs somewhere, and whether claims there are paused, by whom, why and since when.

    For a tenant, `paused_by` and `paused_note` are None where others paused it, but for a public reason.
    `waiting` ends at 10 000; with `waiting_more` there are more. Jobs behind the head of their target do not count.
    """

    name: str
    waiting: int
    waiting_more: bool
    running: int
    paused_at: datetime | None
    paused_by: str | None
    paused_note: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue(Subject):
    """A queue, with how many of its jobs may run at once and start per time."""

    limit_count: int | None
    rate_count: int | None
    rate_seconds: float | None

    @property
    def rate(self) -> Rate | None:
        """How many may start per time, as operators have set it."""
        return _rate(self.rate_count, self.rate_seconds, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Type(Queue):
    """A job type, with what its code declares (None where no worker published it) and how many live workers know it.

    With `closed_at` it takes no new jobs.
    """

    queue: str
    lane: str
    version: int | None
    declared_limit: int | None
    declared_limit_key: str | None
    declared_rate_count: int | None
    declared_rate_seconds: float | None
    declared_rate_key: str | None
    workers: int
    closed_at: datetime | None
    closed_by: str | None
    closed_note: str | None

    @property
    def declared_rate(self) -> Rate | None:
        """How many may start per time, as the code declares it."""
        return _rate(self.declared_rate_count, self.declared_rate_seconds, self.declared_rate_key)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane(Subject):
    """A lane, with the slots of live workers; `utilisation` is the part of them that is used, None without slots.

    `running` counts jobs of the lane's types, `used` the lane's own slots: general slots run fast jobs, too.
    """

    slots: int
    used: int
    utilisation: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant(Queue):
    """A tenant; `limit_count` are its slots, `weight` (1 if None) its share where tenants compete."""

    weight: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Draining:
    """Whether claims are stopped somewhere, or everywhere, and how many jobs still run there.

    `drained`: they are stopped, nothing runs, and no claim from before the stop is under way that could still begin a
    job.
    """

    paused_at: datetime | None
    paused_by: str | None
    paused_note: str | None
    running: int
    drained: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A target with open jobs: the one at its head, and those behind it.

    Blocked means that the head is paused or in error: nothing runs there before somebody decides. `job_id` is None for
    the moment in which a new head is found. `line` has the first ones behind, where that was asked for.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Why a job does not run: a code for programs, a sentence for people, and what is to blame."""

    code: str
    sentence: str
    culprit: dict[str, Any] | None


def _rate(count: int | None, seconds: float | None, key: str | None) -> Rate | None:
    return None if count is None or seconds is None else Rate(count, seconds, key)

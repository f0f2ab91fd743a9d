"""What remote workers ask over HTTP, and what they are answered."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NamedTuple
from uuid import UUID

__all__ = [
    "Directive",
    "LeaseAsk",
    "LeaseTold",
    "PullAsk",
    "PullTold",
    "PullWish",
    "PulledJob",
    "ReleaseAsk",
    "ReportAsk",
    "ReportTold",
]

#: What a worker is told: go on; stop this job, or let it rest; or finish what runs, and pull no more.
Directive = Literal["continue", "cancel", "pause", "drain"]
Verdict = Literal["counted", "repeated", "lease-lost", "already-reported"]


class PullWish(NamedTuple):
    """What a worker can run, how many jobs it wants, and for how long it wants to lease them."""

    types: tuple[str, ...]
    queues: tuple[str, ...] | None
    most: int
    lease_seconds: float | None

    def text(self) -> str:
        """As the engine is asked."""
        return json.dumps(
            {"types": self.types, "queues": self.queues, "max": self.most, "lease_sec": self.lease_seconds}
        )


class PullAsk(NamedTuple):
    """A pull. `wish` is JSON text."""

    tenant: str
    worker: str
    request_id: str | None
    wish: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PulledJob:
    """A job that a remote worker was given. `payload` and `cursor` are JSON text."""

    job_id: UUID
    attempt: int
    type: str
    queue: str
    payload: str
    max_attempts: int
    correlation_id: str
    target: str | None
    cursor: str | None
    progress_count: int
    result_count: int
    target_count: int | None
    traceparent: str | None
    timeout_seconds: float
    lease_seconds: float
    lease_expires_at: datetime
    lease_remaining: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PullTold:
    """The jobs of a pull. `repeated`: its request id was given them before."""

    jobs: list[PulledJob]
    directive: Directive
    repeated: bool


class ReportAsk(NamedTuple):
    """A report. `report` is JSON text."""

    tenant: str
    worker: str
    job_id: UUID
    attempt: int
    report: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportTold:
    """What became of a report; with `already-reported`, `outcome` says how the attempt had ended."""

    verdict: Verdict
    state: str | None
    owned: bool
    directive: Directive | None
    lease_expires_at: datetime | None
    lease_remaining: float | None
    progress_count: int | None
    result_count: int | None
    outcome: str | None


class LeaseAsk(NamedTuple):
    """A lease that is to be prolonged; by its own length, if no seconds are given."""

    tenant: str
    worker: str
    job_id: UUID
    attempt: int
    seconds: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTold:
    """How a lease stands; without `owned` it is lost."""

    owned: bool
    directive: Directive | None
    lease_expires_at: datetime | None
    lease_remaining: float | None
    #: How long the job may still run; negative if its time is over.
    timeout_remaining: float | None


class ReleaseAsk(NamedTuple):
    """A job that is to be handed back."""

    tenant: str
    worker: str
    job_id: UUID
    attempt: int
    reason: str | None

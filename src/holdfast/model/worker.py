"""A worker as operators see it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal
from uuid import UUID

__all__ = ["LaneUse", "ListedWorker", "Quiet", "WorkerJob"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneUse:
    """The slots that a worker has in a lane, and how many are in use; None if that is unknown."""

    slots: int
    used: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerJob:
    """A job that a worker runs."""

    job_id: UUID
    type: str
    tenant: str
    queue: str
    attempt: int
    started_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Quiet:
    """Since when a worker is to claim no more, who told it, and why. A tenant sees only since when."""

    since: datetime
    by: str | None
    note: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedWorker:
    """A worker, its slots, and the jobs that it runs: the oldest hundred of `running`.

    None means all queues or tenants. `lost`: without a heartbeat in the last 15 seconds, or 90 for a remote one; it is
    forgotten after a day.
    """

    worker: str
    host: str
    pid: int
    version: str
    kind: Literal["python", "remote"]
    lanes: Mapping[str, LaneUse]
    slots: int
    used: int
    types: list[str]
    queues: list[str] | None
    tenants: list[str] | None
    started_at: datetime
    heartbeat_at: datetime
    state: Literal["live", "draining", "lost"]
    quiet: Quiet | None
    running: int
    jobs: list[WorkerJob]

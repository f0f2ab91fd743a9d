"""Schedules, as their authors write them and as operators see them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, NamedTuple, get_args
from uuid import UUID

__all__ = ["CATCH_UP_SECONDS", "OVERLAPS", "Fire", "Overlap", "Schedule"]

#: What becomes of a fire time while the job of an earlier one is open: it is left out, waits behind it, or runs beside.
Overlap = Literal["skip", "queue", "allow"]
OVERLAPS: tuple[str, ...] = get_args(Overlap)
#: How late a fire time may be made up for, unless the schedule says otherwise: a day.
CATCH_UP_SECONDS = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A schedule: when it fires (`cron` in the zone `tz`, or `every` in seconds), and the job that it records.

    `declared` ones belong to the code that declares them, others to operators. `state` is active, paused, or retired
    (no code has declared it for a day). `failures` counts the tries since it last fired, `last_error` says why.
    """

    id: int
    tenant: str
    name: str
    state: str
    cron: str | None
    every: float | None
    tz: str
    #: When it fires, in words.
    words: str
    job: str
    #: None in lists, and in what changes answer.
    payload: Mapping[str, Any] | None
    options: Mapping[str, Any]
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
    #: From where its times are counted.
    anchor: datetime
    reckoned_from: datetime


class Fire(NamedTuple):
    """What became of a fire time.

    `fired`, with its job; `existing`, a job that its dedup key found; `skipped`, because an earlier job was open;
    `missed`, because it came too late; or `by-hand`, a run that `by` asked for. With `missed_to`, all later fire times
    up to that moment came too late as well.
    """

    fire_at: datetime
    outcome: str
    job_id: UUID | None
    state: str | None
    missed_to: datetime | None
    by: str | None
    decided_at: datetime

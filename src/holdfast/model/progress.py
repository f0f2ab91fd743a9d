"""What a job reports while it runs: items, where to go on from, how far it has come."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, get_args

__all__ = ["DONE_REASONS", "DoneReason", "Item", "Report", "Reported"]

#: Why a job that reports was done: its handler returned, it has as many items as were wanted, or there are no more.
DoneReason = Literal["worker_done", "target_reached", "no_more_results"]
DONE_REASONS: tuple[DoneReason, ...] = get_args(DoneReason)


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One item that a job has stored. `id` numbers the items of a job, with gaps."""

    id: int
    collection: str
    key: str
    data: Any
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What an attempt reports at once; items and cursor are JSON text."""

    items: str | None = None
    collection: str | None = None
    cursor: str | None = None
    progress: int = 0
    done_reason: DoneReason | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported:
    """The progress of a job after a report: how much was reported and stored, over all attempts.

    `target_reached`: the job has as many items as were wanted (`target_count`), so the handler should return.
    """

    progress_count: int
    result_count: int
    target_count: int | None
    target_reached: bool

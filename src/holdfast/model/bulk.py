"""Bulk operations, as operators see them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, NamedTuple, get_args
from uuid import UUID

from holdfast.model.job import ListedJob

__all__ = ["BULK_ACTIONS", "Bulk", "BulkAction", "BulkPreview"]

BulkAction = Literal["cancel", "pause", "resume", "retry", "requeue", "ack", "delete", "reprioritize"]
BULK_ACTIONS: tuple[str, ...] = get_args(BulkAction)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bulk:
    """One action on all jobs that fit a filter.

    While it is `fixing`, the jobs that fit are counted (`matched`). While it is `running`, each of them is `done`,
    `skipped` (it does not fit any more, or somebody was first) or `failed`; `error` is the first failure.
    """

    id: UUID
    tenant: str | None
    action: str
    query: str
    args: Mapping[str, Any]
    by: str
    note: str | None
    state: str
    matched: int
    done: int
    skipped: int
    failed: int
    error: str | None
    started_at: datetime
    finished_at: datetime | None

    @property
    def ended(self) -> bool:
        """Whether nothing more will happen."""
        return self.state in ("done", "stopped")


class BulkPreview(NamedTuple):
    """How many jobs fit, and some of them. The exact number if `exact`, otherwise a lower bound."""

    matches: int
    exact: bool
    sample: list[ListedJob]

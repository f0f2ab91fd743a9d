"""Failures that have the same cause, as far as their type, error type and message tell."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

__all__ = ["FailureGroup"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureGroup:
    """The failures of one tenant that have the same fingerprint.

    `count` is how many attempts failed so. `open_count` is how many jobs still do, or died of it without anybody having
    acknowledged that; with `open_more` there are more than that. `message` has `?` for numbers, ids and quoted texts;
    it is None if the only jobs that had it were erased.
    """

    fingerprint: str
    tenant: str
    type: str
    error_type: str | None
    message: str | None
    count: int
    open_count: int
    open_more: bool
    first_seen: datetime
    last_seen: datetime
    sample_job_id: UUID | None

"""The shapes of bulk operations, in snake_case."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from pydantic import AfterValidator, Field

from holdfast.bounds import BOUNDS
from holdfast.model.bulk import BulkAction
from holdfast.web.control.schemas import without_nul
from holdfast.web.ops.bodies import Asked, Note, Shown
from holdfast.web.ops.letter_shapes import RequeueOptions

__all__ = ["BulkArguments", "BulkDetails", "BulkMatches", "BulkPage", "BulkStarted", "MatchingJob", "NewBulk"]


class BulkArguments(Asked):
    """What an action needs to know: `options` of a requeue, `priority` of a reprioritization."""

    options: RequeueOptions | None = None
    priority: Annotated[int, Field(ge=0, le=BOUNDS["priority"].high)] | None = None

    def given(self) -> dict[str, Any]:
        """What was named."""
        options = {} if self.options is None else {"options": self.options.given()}
        return options if self.priority is None else {**options, "priority": self.priority}


class NewBulk(Note):
    """An action on all jobs that fit the filter `q`; with `dry_run`, only how many they are."""

    action: BulkAction
    q: Annotated[str, Field(max_length=2000), AfterValidator(without_nul)]
    args: BulkArguments | None = None
    dry_run: bool = False


class BulkStarted(Shown):
    """The operation, which is under way."""

    bulk_id: UUID


class MatchingJob(Shown):
    """One of the jobs that fit."""

    id: UUID
    tenant: str
    type: str
    state: str


class BulkMatches(Shown):
    """How many jobs match (at least this many, unless `exact`), and some of them."""

    matches: int
    exact: bool
    sample: list[MatchingJob]


class BulkDetails(Shown):
    """A bulk operation and how far it is. `error` is the first failure; `tenant` is null if it is about all."""

    id: UUID
    tenant: str | None
    action: str
    q: Annotated[str, Field(validation_alias="query")]
    args: dict[str, Any]
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


class BulkPage(Shown):
    """Bulk operations, newest first."""

    items: list[BulkDetails]
    next_cursor: str | None

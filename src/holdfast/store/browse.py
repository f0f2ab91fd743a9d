"""What operators see of jobs, as statements of the engine. Role: operator."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from holdfast.model.job import Attempt, Job, JobEvent, ListedJob
from holdfast.model.query import Tree
from holdfast.store.database import Session
from holdfast.store.rows import attempt_of, event_of, job_of, listed_job_of

__all__ = ["BrowseStore", "Family", "Page", "Relative"]


#: A tenant may have ten thousand; each takes up to 2 KB of an answer.
_STREAMS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Jobs that match, newest first. `reached` is where to go on, None if everything was looked at.

    It is a job of the tenant that was asked for; `reached_at` says how far back the search went.
    """

    jobs: list[ListedJob]
    reached: UUID | None
    reached_at: datetime | None


class Relative(NamedTuple):
    """A job of a family; its parents and their parents have negative depths, its children and theirs positive ones."""

    job: ListedJob
    depth: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A job with its ancestors, the oldest first, and its descendants, level by level.

    It is not `complete` if there are more than were asked for.
    """

    members: list[Relative]
    complete: bool


class BrowseStore:
    """Reads over the jobs of one tenant, or (None) of all."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def search(self, tree: Tree, *, tenant: str | None, before: UUID | None, limit: int, visit: int) -> Page:
        """One page of a search."""
        (row,) = await self._session.rows("search_jobs", json.dumps(tree), tenant, before, limit, visit)
        found = await self._session.rows("summaries", row["ids"], tenant) if row["ids"] else []
        jobs = sorted(map(listed_job_of, found), key=lambda job: job.id, reverse=True)
        return Page(jobs=jobs, reached=row["reached"], reached_at=row["reached_at"])

    async def correlated(
        self, correlation_id: str, *, tenant: str | None, after: UUID | None, limit: int
    ) -> list[ListedJob]:
        """Jobs of one correlation id, oldest first, after this one."""
        (row,) = await self._session.rows("correlated_ids", correlation_id, tenant, after, limit)
        found = await self._session.rows("summaries", row["ids"], tenant) if row["ids"] else []
        return sorted(map(listed_job_of, found), key=lambda job: job.id)

    async def family(self, job_id: UUID, *, tenant: str | None, limit: int) -> Family | None:
        """A job with its ancestors and descendants."""
        members = await self._session.rows("job_family", job_id, tenant, limit)
        if not members:
            return None
        rows = await self._session.rows("summaries", [member["job_id"] for member in members], tenant)
        jobs = {job.id: job for job in map(listed_job_of, rows)}
        return Family(
            members=[Relative(jobs[m["job_id"]], m["depth"]) for m in members if m["job_id"] in jobs],
            complete=members[0]["complete"],
        )

    async def clean_up(
        self, *, by: str, dry_run: bool, after: UUID | None, visit: int
    ) -> tuple[tuple[int, int, int], UUID | None]:
        """Delete, or count, jobs whose retention is over: of `success`, `canceled` and `dead`, and where to go on."""
        (row,) = await self._session.rows("clean_up", by, dry_run, after, visit)
        return (row["success"], row["canceled"], row["dead"]), row["reached"]

    async def job(self, job_id: UUID, tenant: str | None) -> Job | None:
        """One job, with all its fields."""
        for row in await self._session.rows("get_jobs", [job_id], tenant):
            return job_of(row)
        return None

    async def summaries(self, job_ids: Sequence[UUID], tenant: str | None) -> list[ListedJob]:
        """Jobs as lists show them, as far as there are any."""
        return [listed_job_of(row) for row in await self._session.rows("summaries", job_ids, tenant)]

    async def exists(self, job_id: UUID, tenant: str | None) -> bool:
        """Whether there is such a job."""
        return bool(await self.summaries([job_id], tenant))

    async def job_texts(self, job_id: UUID, tenant: str | None) -> tuple[ListedJob, dict[str, str]] | None:
        """One job, with payload, result and cursor as JSON text, for callers that pass them on without parsing."""
        for row in await self._session.rows("get_jobs", [job_id], tenant):
            values = dict(row)
            texts = {name: values.pop(name) or "null" for name in ("payload", "result", "cursor")}
            return listed_job_of(values), texts
        return None

    async def attempts(
        self, job_id: UUID, tenant: str | None, *, after: int, limit: int
    ) -> tuple[Sequence[Attempt], bool]:
        """Ended attempts, oldest first, after this number, and whether there are more."""
        rows = await self._session.rows("attempts_page", job_id, tenant, after, limit)
        return [attempt_of(row) for row in rows], bool(rows) and rows[-1]["more"]

    async def events(
        self, job_id: UUID, tenant: str | None, *, after: int, limit: int
    ) -> tuple[Sequence[JobEvent], bool]:
        """The history, oldest first, without the first `after` events, and whether there are more."""
        rows = await self._session.rows("events_page", job_id, tenant, after, limit)
        return [event_of(row) for row in rows], bool(rows) and rows[-1]["more"]

    async def statistics(self, tenant: str | None) -> dict[str, Any]:
        """Ready and running jobs of the thousand busiest streams, and the totals that are not kept per stream."""
        streams = [dict(row) for row in await self._session.rows("job_statistics", tenant, _STREAMS + 1)]
        (totals,) = await self._session.rows("job_totals", tenant)
        return {"streams": streams[:_STREAMS], "more_streams": len(streams) > _STREAMS, **dict(totals)}

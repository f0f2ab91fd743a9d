"""What operators may do: search, look, count, steer, decide, and manage keys; within one tenant, or across all.

Searches, lists and figures may take seconds. They have separate connections, shared among tenants, so that searches
never keep operators from managing keys, looking at single jobs or stopping work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from holdfast.client.acceptance import Acceptance
from holdfast.client.bulk import Bulks
from holdfast.client.by_hand import ByHand
from holdfast.client.circuits import CircuitBreakers
from holdfast.client.keyring import Keys
from holdfast.client.letters import DeadLetters
from holdfast.client.schedules import Schedules
from holdfast.client.settings import EngineSettings
from holdfast.client.steering import Steering
from holdfast.client.turns import Turns
from holdfast.client.workers import Workers
from holdfast.errors import NotFound
from holdfast.model.job import Attempt, Job, JobEvent, ListedJob
from holdfast.model.pages import checked_limit
from holdfast.model.query import parse_query
from holdfast.store.browse import BrowseStore, Family, Page
from holdfast.store.database import Database
from holdfast.store.failures import FailurePage, FailureStore, LastSeen
from holdfast.store.keys import KeyStore
from holdfast.store.roster import Roster
from holdfast.store.settings import SettingStore

__all__ = ["Cleanup", "FailurePage", "Family", "LastSeen", "Operations", "Page"]

#: How many jobs one page looks at before it ends early.
VISITED = 100_000


#: How many jobs one portion of a clean-up looks at.
_CLEANED = 5_000


class Cleanup(NamedTuple):
    """How many jobs were deleted, or would be, by the state in which they had ended."""

    success: int = 0
    canceled: int = 0
    dead: int = 0


class Operations(Steering, ByHand):
    """The operator's verbs, over a database in that role. `tenant` None means all of them."""

    def __init__(self, database: Database, browsing: Database, acceptance: Acceptance) -> None:
        Steering.__init__(self, database, browsing)
        ByHand.__init__(self, database)
        self._store = BrowseStore(database)
        self._found = BrowseStore(browsing)
        self._failures = FailureStore(browsing)
        self._searching = Turns()
        self.keys = Keys(KeyStore(database))
        self.settings = EngineSettings(SettingStore(database))
        self.workers = Workers(Roster(database), Roster(browsing), self._listing)
        self.dead = DeadLetters(database, browsing, self._searching, acceptance)
        self.schedules = Schedules(database, acceptance)
        self.bulk = Bulks(database, browsing, self._searching)
        self.circuits = CircuitBreakers(database)

    async def search(
        self, query: str, *, tenant: str | None = None, before: UUID | None = None, limit: int = 50
    ) -> Page:
        """Jobs that fit a query (see holdfast.model.query), newest first."""
        tree = parse_query(query)
        checked_limit(limit)
        async with self._searching.one(tenant):
            return await self._found.search(tree, tenant=tenant, before=before, limit=limit, visit=VISITED)

    async def correlated(
        self, correlation_id: str, *, tenant: str | None = None, after: UUID | None = None, limit: int = 50
    ) -> Sequence[ListedJob]:
        """Jobs of one correlation id, oldest first, after the given one."""
        checked_limit(limit)
        async with self._listing.one(tenant):
            return await self._found.correlated(correlation_id, tenant=tenant, after=after, limit=limit)

    async def tree(self, job_id: UUID, *, tenant: str | None = None, limit: int = 500) -> Family:
        """A job with its ancestors and descendants."""
        checked_limit(limit)
        async with self._listing.one(tenant):
            family = await self._found.family(job_id, tenant=tenant, limit=limit)
        if family is None:
            raise NotFound(f"there is no job {job_id}")
        return family

    async def cleanup(
        self, *, by: str, dry_run: bool = False, progress: Callable[[Cleanup], None] | None = None
    ) -> Cleanup:
        """Delete ended jobs of all tenants whose retention is over, as the leader does; or only count them.

        Answers what was deleted. A job that somebody has locked stays until the next time. It goes through jobs in
        portions, and after each tells `progress` what was deleted, or counted, so far.
        """
        total, reached = Cleanup(), None
        while True:
            portion, reached = await self._found.clean_up(by=by, dry_run=dry_run, after=reached, visit=_CLEANED)
            total = Cleanup(*(sum(each) for each in zip(total, portion, strict=True)))
            if progress is not None:
                progress(total)
            if reached is None:
                return total

    async def job(self, job_id: UUID, *, tenant: str | None = None) -> Job:
        """Everything about a job."""
        job = await self._store.job(job_id, tenant)
        if job is None:
            raise NotFound(f"there is no job {job_id}")
        return job

    async def job_texts(self, job_id: UUID, *, tenant: str | None = None) -> tuple[ListedJob, dict[str, str]]:
        """The same with payload, result and cursor as JSON text."""
        found = await self._store.job_texts(job_id, tenant)
        if found is None:
            raise NotFound(f"there is no job {job_id}")
        return found

    async def attempts(
        self, job_id: UUID, *, tenant: str | None = None, after: int = 0, limit: int = 50
    ) -> tuple[Sequence[Attempt], bool]:
        """Ended attempts of a job, oldest first, behind this number; and whether there are more."""
        await self._refuse_unknown(job_id, tenant)
        return await self._store.attempts(job_id, tenant, after=after, limit=limit)

    async def events(
        self, job_id: UUID, *, tenant: str | None = None, after: int = 0, limit: int = 50
    ) -> tuple[Sequence[JobEvent], bool]:
        """The rarer moves of a job, oldest first, after the first `after` ones; and whether there are more."""
        await self._refuse_unknown(job_id, tenant)
        return await self._store.events(job_id, tenant, after=after, limit=limit)

    async def failures(
        self,
        *,
        tenant: str | None = None,
        type: str | None = None,  # noqa: A002 - the name that it has everywhere
        before: LastSeen | None = None,
        limit: int = 50,
    ) -> FailurePage:
        """Failures by cause, most recent first; `before` is where the page before ended."""
        checked_limit(limit)
        async with self._listing.one(tenant):
            return await self._failures.page(tenant, type, before, limit)

    async def statistics(self, *, tenant: str | None = None) -> dict[str, Any]:
        """What stands where."""
        async with self._listing.one(tenant):
            return await self._found.statistics(tenant)

    async def _refuse_unknown(self, job_id: UUID, tenant: str | None) -> None:
        if not await self._store.exists(job_id, tenant):
            raise NotFound(f"there is no job {job_id}")

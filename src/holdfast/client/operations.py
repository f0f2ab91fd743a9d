"""What operators may do: search, look, count, steer, and manage keys; within one tenant, or across all.

Searches, lists and figures may take seconds. They have connections of their own, so that keys can be made and
revoked, single jobs looked at, and work stopped, whoever searches; and a share of those per tenant.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from holdfast.client.keyring import Keys
from holdfast.client.steering import Steering
from holdfast.client.turns import Turns
from holdfast.errors import NotFound
from holdfast.model.job import Attempt, Event, Job
from holdfast.model.query import parse_query
from holdfast.store.browse import BrowseStore, Page
from holdfast.store.database import Database
from holdfast.store.keys import KeyStore

__all__ = ["Operations", "Page"]

#: How many jobs one page looks at before it ends early.
VISITED = 100_000


class Operations(Steering):
    """The operator's verbs, over a database in that role. `tenant` None means all of them."""

    def __init__(self, database: Database, browsing: Database) -> None:
        super().__init__(database, browsing)
        self._store = BrowseStore(database)
        self._found = BrowseStore(browsing)
        self._searching = Turns()
        self.keys = Keys(KeyStore(database))

    async def search(
        self, query: str, *, tenant: str | None = None, before: UUID | None = None, limit: int = 50
    ) -> Page:
        """Jobs that fit a query (see holdfast.model.query), newest first."""
        tree = parse_query(query)
        async with self._searching.one(tenant):
            return await self._found.search(tree, tenant=tenant, before=before, limit=limit, visit=VISITED)

    async def job(self, job_id: UUID, *, tenant: str | None = None) -> Job:
        """Everything that is known of a job."""
        job = await self._store.job(job_id, tenant)
        if job is None:
            raise NotFound(f"there is no job {job_id}")
        return job

    async def attempts(
        self, job_id: UUID, *, tenant: str | None = None, after: int = 0, limit: int = 50
    ) -> Sequence[Attempt]:
        """Ended attempts of a job, oldest first, behind this number."""
        await self.job(job_id, tenant=tenant)
        return await self._store.attempts(job_id, tenant, after=after, limit=limit)

    async def events(
        self, job_id: UUID, *, tenant: str | None = None, after: int = 0, limit: int = 50
    ) -> Sequence[Event]:
        """The rarer moves of a job, oldest first, behind the first so many."""
        await self.job(job_id, tenant=tenant)
        return await self._store.events(job_id, tenant, after=after, limit=limit)

    async def statistics(self, *, tenant: str | None = None) -> dict[str, Any]:
        """What stands where."""
        async with self._listing.one(tenant):
            return await self._found.statistics(tenant)

"""What operators may do: search, look, count, steer, and manage keys; within one tenant, or across all.

Searches and figures may take seconds. They have a share of the connections, so that keys can be made and revoked, and
single jobs looked at, whoever searches.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Any
from uuid import UUID

from holdfast.client.keyring import Keys
from holdfast.client.steering import Steering
from holdfast.errors import DatabaseBusy, NotFound
from holdfast.model.job import Attempt, Event, Job
from holdfast.model.query import parse_query
from holdfast.store.browse import BrowseStore, Page
from holdfast.store.database import Database
from holdfast.store.keys import KeyStore

__all__ = ["Operations", "Page"]

#: How many jobs one page looks at before it ends early.
VISITED = 100_000
_SEARCH_SECONDS = 15.0
#: How many search or count at a time, and how long others wait for their turn.
_SEARCHING, _TURN_SECONDS = 2, 3.0


class Operations(Steering):
    """The operator's verbs, over a database in that role. `tenant` None means all of them."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._store = BrowseStore(database)
        self._turns = asyncio.Semaphore(_SEARCHING)
        self.keys = Keys(KeyStore(database))

    async def search(
        self, query: str, *, tenant: str | None = None, before: UUID | None = None, limit: int = 50
    ) -> Page:
        """Jobs that fit a query (see holdfast.model.query), newest first."""
        tree = parse_query(query)
        async with self._turn():
            return await self._store.search(tree, tenant=tenant, before=before, limit=limit, visit=VISITED)

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
        async with self._turn():
            return await self._store.statistics(tenant)

    @contextlib.asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """One of the few places of those who search; DatabaseBusy if none gets free, or it takes too long."""
        try:
            async with asyncio.timeout(_TURN_SECONDS):
                await self._turns.acquire()
        except TimeoutError:
            raise DatabaseBusy("others search already; repeat the request") from None
        try:
            async with asyncio.timeout(_SEARCH_SECONDS):
                yield
        except TimeoutError:
            raise DatabaseBusy("the search took too long; ask for less") from None
        finally:
            self._turns.release()

"""Workers of the installation: what runs where, and stopping one from claiming."""

from __future__ import annotations

from uuid import UUID

from holdfast.bounds import shown
from holdfast.client.turns import Turns
from holdfast.errors import NotFound
from holdfast.model.pages import checked_limit
from holdfast.model.worker import ListedWorker
from holdfast.store.roster import Roster

__all__ = ["Workers"]


class Workers:
    """Look at workers and quiet them. `tenant` None means all; a tenant sees the workers that serve it."""

    def __init__(self, roster: Roster, lists: Roster, listing: Turns) -> None:
        self._roster, self._lists, self._listing = roster, lists, listing

    async def list(self, *, tenant: str | None = None, after: str | None = None, limit: int = 50) -> list[ListedWorker]:
        """Workers by id, after the given one: live ones, and those that vanished within the last day."""
        checked_limit(limit)
        async with self._listing.one(tenant):
            return await self._lists.list(tenant, None, after, limit)

    async def get(self, worker: str, *, tenant: str | None = None) -> ListedWorker:
        """One worker; NotFound if there is none, or if it does not serve the tenant."""
        for found in await self._roster.list(tenant, worker, None, 1):
            return found
        raise _unknown(worker)

    async def quiet(self, worker: str, *, by: str, note: str | None = None, by_key: UUID | None = None) -> ListedWorker:
        """Tell a worker to stop claiming jobs, with its next heartbeat. Its running jobs continue.

        This cannot be undone: start another worker instead. `by`, `by_key` and `note` say who decides, and why.
        """
        if await self._roster.quiet(worker, by=by, note=note, by_key=by_key) is None:
            raise _unknown(worker)
        return await self.get(worker)


def _unknown(worker: str) -> NotFound:
    return NotFound(f"there is no worker {shown(worker)}; workers that left, or vanished a day ago, are not listed")

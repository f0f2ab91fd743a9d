"""What workers over HTTP may do, within their tenant: pull jobs, report about them, keep and hand back their leases."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from holdfast.errors import HoldfastError
from holdfast.model.key import Caller
from holdfast.model.remote import (
    LeaseAsk,
    LeaseTold,
    PullAsk,
    PullTold,
    ReleaseAsk,
    ReportAsk,
    ReportTold,
)
from holdfast.store.database import Database
from holdfast.store.remote import RemoteStore

__all__ = ["RemoteWork", "worker_name"]


def worker_name(caller: Caller, worker_id: str) -> str:
    """How a worker is stored: under its key, so that no worker can use another's name."""
    return f"remote:{caller.key_id or 'open'}:{worker_id}"


class RemoteWork:
    """The verbs of remote workers, over a database in the role `remote`."""

    def __init__(self, database: Database) -> None:
        self._store = RemoteStore(database)

    async def pull(self, caller: Caller, worker_id: str, *, request_id: str | None, wish: str) -> PullTold:
        """Claim jobs for a worker."""
        ask = PullAsk(caller.tenant, worker_name(caller, worker_id), request_id, wish)
        return _good((await self._store.pull([ask]))[0])

    async def report(
        self, caller: Caller, worker_id: str, reports: Sequence[tuple[UUID, int, str]]
    ) -> list[ReportTold | HoldfastError]:
        """Record reports of a worker (job, attempt, JSON text); an error of one of them is its own answer."""
        name = worker_name(caller, worker_id)
        return await self._store.report([ReportAsk(caller.tenant, name, *report) for report in reports])

    async def extend(
        self, caller: Caller, worker_id: str, leases: Sequence[tuple[UUID, int, float | None]]
    ) -> list[LeaseTold]:
        """Prolong leases of a worker (job, attempt, seconds)."""
        name = worker_name(caller, worker_id)
        return await self._store.extend([LeaseAsk(caller.tenant, name, *lease) for lease in leases])

    async def release(
        self, caller: Caller, worker_id: str, leases: Sequence[tuple[UUID, int]], *, reason: str | None
    ) -> list[str | HoldfastError | None]:
        """Hand back jobs of a worker. Answers each job's state; None for a lease that is lost."""
        name = worker_name(caller, worker_id)
        return await self._store.release([ReleaseAsk(caller.tenant, name, *lease, reason) for lease in leases])


def _good(answer: PullTold | HoldfastError) -> PullTold:
    if isinstance(answer, HoldfastError):
        raise answer
    return answer

"""What the control plane may do for a caller: record, look, wait and ask, within the caller's tenant."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from uuid import UUID

from holdfast.client.client import Client
from holdfast.client.job_ref import JobRef
from holdfast.client.keyring import Keyring
from holdfast.client.refusals import judge
from holdfast.client.watch import Watcher
from holdfast.errors import HoldfastError, InvalidInput, NotFound
from holdfast.model.key import Caller
from holdfast.store.database import Database
from holdfast.store.jobs import JobStore
from holdfast.store.keys import KeyStore
from holdfast.store.sharing import PATIENCE_SECONDS, patience_seconds
from holdfast.store.submissions import Submissions
from holdfast.store.tenancy import Ended, Keyed, PublicJob, StoredItem, TenancyStore

__all__ = ["ControlPlane", "Ended", "Keyed", "PublicJob", "StoredItem"]


class ControlPlane:
    """The verbs of the control plane, over a database in the role `client`."""

    def __init__(self, database: Database, client: Client) -> None:
        self._store = TenancyStore(database)
        store = JobStore(database, recorder=Submissions(database))
        self._client = client.with_store(store).for_strangers()
        self._watcher = Watcher(self._store)
        self.keyring = Keyring(KeyStore(database))

    async def submit(
        self, caller: Caller, job_type: str, payload: Any, *, within_seconds: float | None = None, **options: Any
    ) -> JobRef:
        """Record one job in the caller's name; DatabaseUnavailable says, in time, whether that is certain."""
        with _in_time(caller, within_seconds):
            return await self._client.enqueue(
                job_type, payload, tenant=caller.tenant, created_by=caller.name, **options
            )

    async def submit_each(
        self,
        caller: Caller,
        jobs: Sequence[tuple[str, Any, Mapping[str, Any]]],
        *,
        within_seconds: float | None = None,
    ) -> list[JobRef | HoldfastError]:
        """The same for many, each by itself: what is wrong with one of them is its own answer."""
        own = {"tenant": caller.tenant, "created_by": caller.name}
        with _in_time(caller, within_seconds):
            return await self._client.enqueue_each([(kind, payload, {**more, **own}) for kind, payload, more in jobs])

    async def probe(self) -> None:
        """Write, as a submission would; DatabaseUnavailable says why that cannot be done now."""
        await self._store.probe()

    async def job(self, caller: Caller, job_id: UUID) -> PublicJob:
        """The job as it stands; NotFound if there is none, or it is another tenant's."""
        for job in await self._store.jobs([(caller.tenant, job_id)]):
            return job
        raise NotFound(f"there is no job {job_id}")

    async def changed(self, job: PublicJob, seconds: float) -> PublicJob:
        """The job once it has changed; TimeoutError if that takes longer."""
        return await self._watcher.changed(job, seconds)

    async def result(self, caller: Caller, job_id: UUID) -> Ended:
        """How the job ended, or that it has not."""
        ended = await self._store.result(caller.tenant, job_id)
        if ended is None:
            raise NotFound(f"there is no job {job_id}")
        return ended

    async def items(
        self, caller: Caller, job_id: UUID, *, after: int | None, limit: int
    ) -> tuple[list[StoredItem], bool]:
        """What the job has stored, in order, beginning behind the item with that id; and whether there is more."""
        items, more = await self._store.items(caller.tenant, job_id, after=after, limit=limit)
        if not items:
            await self.job(caller, job_id)
        return items, more

    async def request(
        self, caller: Caller, verb: str, job_id: UUID, *, reason: str | None = None, target: str | None = None
    ) -> None:
        """Ask that a job be canceled, paused, resumed, released or deleted."""
        answer = await self._store.request(caller, verb, job_id, reason=reason, target=target)
        judge(verb, job_id, answer)

    async def repeats(self, caller: Caller, keyed: Sequence[Keyed]) -> int:
        """How many of these jobs were recorded before, by their keys: recording them again adds none."""
        with_keys = [one for one in keyed if one[1:] != (None, None)]
        return await self._store.repeats(caller.tenant, with_keys) if with_keys else 0

    async def waiting(self, caller: Caller, up_to: int) -> int:
        """How many of the tenant's jobs wait, counted no further than `up_to`."""
        return await self._store.waiting(caller.tenant, up_to)


@contextlib.contextmanager
def _in_time(caller: Caller, seconds: float | None) -> Iterator[None]:
    if not caller.tenant:
        raise InvalidInput("a caller without a tenant cannot submit jobs")
    token = patience_seconds.set(PATIENCE_SECONDS if seconds is None else max(0.001, seconds))
    try:
        yield
    finally:
        patience_seconds.reset(token)

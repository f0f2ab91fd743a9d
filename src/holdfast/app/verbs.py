"""What can be done to jobs, by an app. Each verb exists once: `hf.sync` blocks on these very coroutines.

With `conn=` (a connection or session of the caller, in a transaction) a verb takes effect if and only if that
transaction commits; see holdfast.store.foreign. Such calls need no open app.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Unpack
from uuid import UUID

from holdfast.client.client import Client, JobId
from holdfast.client.job_ref import JobRef
from holdfast.model.filters import Filters
from holdfast.model.job import Attempt, Event, Job, ListedJob
from holdfast.model.options import Options
from holdfast.model.progress import Item

__all__ = ["Verbs"]


class Verbs:
    """Enqueue, look, wait, and ask."""

    client: Client

    def _over(self, conn: Any) -> Client:
        return self.client if conn is None else self.client.over(conn)

    async def enqueue(
        self, job_type: str, payload: Any = None, *, conn: Any = None, **options: Unpack[Options]
    ) -> JobRef:
        """Record one job. A key that belongs to a job of another type or payload raises `KeyConflict`."""
        return await self._over(conn).enqueue(job_type, payload, **options)

    async def enqueue_many(self, jobs: Iterable[Sequence[Any]], *, conn: Any = None) -> list[JobRef]:
        """Record many jobs: `("type", {payload})` or `("type", {payload}, {options})` each, answered in that order.

        All are checked before any is recorded. A conflicting key is an answer with outcome `conflict`.
        """
        return await self._over(conn).enqueue_many(jobs)

    async def get(self, job_id: JobId, *, conn: Any = None) -> Job:
        """The job as it stands; `NotFound` if there is none."""
        return await self._over(conn).get(job_id)

    async def find(self, *, conn: Any = None, **filters: Unpack[Filters]) -> list[ListedJob]:
        """Jobs without payloads and results, newest first.

        Filters are states, types, queues, tenant, target, correlation_id, before, limit.
        """
        return await self._over(conn).find(**filters)

    async def attempts(self, job_id: JobId, *, limit: int = 1000, after: int = 0) -> Sequence[Attempt]:
        """Ended attempts of a job, oldest first; the next page is `after` the last one's number.

        A page ends early where its texts are large, after at least one attempt.
        """
        return await self.client.attempts(job_id, limit=limit, after=after)

    async def history(self, job_id: JobId, *, limit: int = 1000, after: int = 0) -> Sequence[Event]:
        """The rarer moves of a job, oldest first; the next page is `after` as many as were read so far."""
        return await self.client.events(job_id, limit=limit, after=after)

    async def items(
        self, job_id: JobId, *, limit: int = 100, after: int | None = None, conn: Any = None
    ) -> Sequence[Item]:
        """What a job has stored, in the order in which it did; the next page is `after` the last item's `id`.

        A page ends early where its items are large, after at least one.
        """
        return await self._over(conn).items(job_id, limit=limit, after=after)

    async def wait(self, job_id: JobId, timeout: float | None = None) -> Job:
        """Wait until the job has ended; `WaitTimeout` if it has not within `timeout` seconds."""
        return await self.client.wait(job_id, timeout)

    async def cancel(
        self, job_id: JobId, *, by: str | None = None, reason: str | None = None, conn: Any = None
    ) -> None:
        """Ask that a job be canceled, for good. `AlreadyFinal` if it has ended."""
        await self._over(conn).cancel(job_id, by=by, reason=reason)

    async def pause(self, job_id: JobId, *, by: str | None = None, reason: str | None = None, conn: Any = None) -> None:
        """Ask that a job be paused: a running handler is interrupted, its target is blocked."""
        await self._over(conn).pause(job_id, by=by, reason=reason)

    async def resume(
        self, job_id: JobId, *, by: str | None = None, reason: str | None = None, conn: Any = None
    ) -> None:
        """Ask that a paused job, or one held in error, go on, with a fresh budget."""
        await self._over(conn).resume(job_id, by=by, reason=reason)

    async def release(self, job_id: JobId, *, by: str | None = None, conn: Any = None) -> None:
        """Release a job that was recorded with `hold`."""
        await self._over(conn).release(job_id, by=by)

    async def retry(self, job_id: JobId, *, by: str | None = None, reason: str | None = None, conn: Any = None) -> UUID:
        """Run again: a waiting job now, a held one by resuming it, an ended one as a new job, whose id is answered."""
        return await self._over(conn).retry(job_id, by=by, reason=reason)

    async def delete(
        self, job_id: JobId, *, by: str | None = None, reason: str | None = None, conn: Any = None
    ) -> None:
        """Ask that a job be canceled if it is open, and its payload, result, items and logs be erased."""
        await self._over(conn).delete(job_id, by=by, reason=reason)

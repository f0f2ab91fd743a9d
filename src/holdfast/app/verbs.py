"""What an app can do with jobs. Each verb exists once: `hf.sync` blocks on these coroutines.

With `conn=` (the caller's connection or session, in a transaction) a verb takes effect if and only if that
transaction commits; see holdfast.store.foreign. Such calls do not need an open app.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Unpack
from uuid import UUID

from holdfast.client.client import Client, JobId
from holdfast.client.job_ref import JobRef
from holdfast.model.filters import Filters
from holdfast.model.job import Attempt, Job, JobEvent, ListedJob
from holdfast.model.options import Options
from holdfast.model.progress import Item

__all__ = ["Verbs"]


class Verbs:
    """Enqueue jobs, read them, wait for them, and make requests."""

    client: Client

    def _over(self, conn: Any) -> Client:
        return self.client if conn is None else self.client.over(conn)

    async def enqueue(
        self, job_type: str, payload: Any = None, *, conn: Any = None, **options: Unpack[Options]
    ) -> JobRef:
        """Record one job. A key that belongs to a job with another type or payload raises `KeyConflict`."""
        return await self._over(conn).enqueue(job_type, payload, **options)

    async def enqueue_many(self, jobs: Iterable[Sequence[Any]], *, conn: Any = None) -> list[JobRef]:
        """Record many jobs: `("type", {payload})` or `("type", {payload}, {options})` each; answers in that order.

        All jobs are checked before any is recorded. A conflicting key gives an answer whose `conflict` is true, and a
        warning in the log; the other jobs are recorded.
        """
        return await self._over(conn).enqueue_many(jobs)

    async def get(self, job_id: JobId, *, conn: Any = None) -> Job:
        """The current job; raises `NotFound` if there is none."""
        return await self._over(conn).get(job_id)

    async def find(self, *, conn: Any = None, **filters: Unpack[Filters]) -> list[ListedJob]:
        """Jobs without payloads and results, newest first.

        Filters are states, types, queues, tenant, target, correlation_id, before, limit.
        """
        return await self._over(conn).find(**filters)

    async def attempts(self, job_id: JobId, *, limit: int = 1000, after: int = 0) -> Sequence[Attempt]:
        """Ended attempts of a job, oldest first; the next page is `after` the last one's number.

        A page ends early if its texts are large, after at least one attempt.
        """
        return await self.client.attempts(job_id, limit=limit, after=after)

    async def history(self, job_id: JobId, *, limit: int = 1000, after: int = 0) -> Sequence[JobEvent]:
        """The history of a job without its attempts, oldest first; for the next page, `after` is how many were read."""
        return await self.client.events(job_id, limit=limit, after=after)

    async def items(
        self, job_id: JobId, *, limit: int = 100, after: int | None = None, conn: Any = None
    ) -> Sequence[Item]:
        """The items of a job, in the order in which they were stored; the next page is `after` the last item's `id`.

        A page ends early if its items are large, after at least one.
        """
        return await self._over(conn).items(job_id, limit=limit, after=after)

    async def wait(self, job_id: JobId, timeout: float | None = None) -> Job:
        """Wait until the job has ended; raises `WaitTimeout` after `timeout` seconds."""
        return await self.client.wait(job_id, timeout)

    async def cancel(
        self, job_id: JobId, *, by: str | None = None, reason: str | None = None, conn: Any = None
    ) -> None:
        """Ask that a job be canceled for good; raises `AlreadyFinal` if it has ended."""
        await self._over(conn).cancel(job_id, by=by, reason=reason)

    async def pause(self, job_id: JobId, *, by: str | None = None, reason: str | None = None, conn: Any = None) -> None:
        """Ask that a job be paused: a running handler is interrupted, and its target is blocked."""
        await self._over(conn).pause(job_id, by=by, reason=reason)

    async def resume(
        self, job_id: JobId, *, by: str | None = None, reason: str | None = None, conn: Any = None
    ) -> None:
        """Ask that a paused job, or one held in `error`, be resumed with all its attempts."""
        await self._over(conn).resume(job_id, by=by, reason=reason)

    async def release(self, job_id: JobId, *, by: str | None = None, conn: Any = None) -> None:
        """Release a job that was recorded with `hold`."""
        await self._over(conn).release(job_id, by=by)

    async def retry(self, job_id: JobId, *, by: str | None = None, reason: str | None = None, conn: Any = None) -> UUID:
        """Run a job again: a waiting job now, a held job by resuming it, an ended job as a new job. Answers the id."""
        return await self._over(conn).retry(job_id, by=by, reason=reason)

    async def delete(
        self, job_id: JobId, *, by: str | None = None, reason: str | None = None, conn: Any = None
    ) -> None:
        """Ask that a job be canceled if it is open, and its payload, result, items and logs be erased."""
        await self._over(conn).delete(job_id, by=by, reason=reason)

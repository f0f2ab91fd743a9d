"""The client's verbs over a store. Every call is one statement; ids may be given as UUID, text or job."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any, Protocol, Unpack
from uuid import UUID

from holdfast.bounds import BOUNDS, shown
from holdfast.client.acceptance import Acceptance
from holdfast.client.recording import Recording
from holdfast.client.refusals import judge
from holdfast.errors import InvalidInput, NotFound, WaitTimeout
from holdfast.model.filters import Filters
from holdfast.model.job import Attempt, Job, JobEvent, ListedJob
from holdfast.model.names import Named
from holdfast.model.pages import checked_limit
from holdfast.model.progress import Item
from holdfast.store.jobs import JobStore

__all__ = ["Client", "JobId"]

_FIRST_LOOK, _LONGEST_LOOK = 0.005, 0.25
_LARGEST, _LARGEST_ID = 2**31 - 1, 2**63 - 1


class _HasId(Protocol):
    @property
    def id(self) -> UUID: ...


JobId = UUID | str | _HasId


class Client(Recording):
    """Enqueue, browse, ask and wait."""

    def over(self, conn: Any) -> Client:
        """The same client on a caller's connection: what it does happens when that transaction commits."""
        return self.with_store(self._store.over(conn))

    def with_store(self, store: JobStore) -> Client:
        """The same client over another store."""
        return Client(store, self._registry, bus=self._bus, middleware=self._middleware)

    def for_strangers(self) -> Client:
        """The same client for callers who do not have the handlers: payloads are recorded as they were sent, unless no
        live worker takes them.
        """
        acceptance = Acceptance(self._store, self._registry, self._bus)
        return Client(self._store, self._registry, bus=self._bus, middleware=self._middleware, acceptance=acceptance)

    async def get(self, job_id: JobId) -> Job:
        """The job as it stands; NotFound if there is none."""
        found = await self._store.get([_uuid(job_id)])
        if not found:
            raise NotFound(f"there is no job {_uuid(job_id)}")
        return found[0]

    async def find(self, **filters: Unpack[Filters]) -> list[ListedJob]:
        """Jobs without payloads and results, newest first.

        Filters are states, types, queues, tenant, target, correlation_id, before, limit.
        """
        return await self._store.list(**filters)

    async def attempts(self, job_id: JobId, *, limit: int = 1000, after: int = 0) -> Sequence[Attempt]:
        """Ended attempts of a job, oldest first; the next page is `after` the last one's number."""
        return await self._store.attempts(_uuid(job_id), after=_count("after", after), limit=checked_limit(limit))

    async def events(self, job_id: JobId, *, limit: int = 1000, after: int = 0) -> Sequence[JobEvent]:
        """The rarer moves of a job, oldest first; the next page is `after` as many as were read so far."""
        return await self._store.events(_uuid(job_id), after=_count("after", after), limit=checked_limit(limit))

    async def items(self, job_id: JobId, *, limit: int = 100, after: int | None = None) -> Sequence[Item]:
        """What a job has stored, in the order in which it did; the next page is `after` the last item's `id`."""
        wanted, behind = _uuid(job_id), None if after is None else _count("after", after, _LARGEST_ID)
        return await self._store.items(wanted, after=behind, limit=checked_limit(limit)) or await self._no_items(wanted)

    async def _no_items(self, job_id: UUID) -> Sequence[Item]:
        await self.get(job_id)
        return []

    async def other_names(self, kind: Named, name: str) -> list[str] | None:
        """None if a job type was published, or a queue is in use; else some names that it may be confused with."""
        return await self._store.other_names(kind, name)

    async def backlog(self) -> dict[str, int]:
        """How much stands where."""
        return await self._store.backlog()

    async def wait(self, job_id: JobId, timeout: float | None = None) -> Job:
        """Wait until the job has ended; WaitTimeout if it has not within `timeout` seconds."""
        if timeout is not None and not (timeout <= 0 or BOUNDS["delay"].holds(timeout)):
            raise InvalidInput(f"timeout must be {BOUNDS['delay']}, not {shown(timeout)}")
        end = None if timeout is None else time.monotonic() + timeout
        pause = _FIRST_LOOK
        wanted = _uuid(job_id)
        while True:
            found = await self._store.listed([wanted])
            if not found or found[0].state.terminal:
                return await self.get(wanted)
            (job,) = found
            left = None if end is None else end - time.monotonic()
            if left is not None and left <= 0:
                raise WaitTimeout(f"job {job.id} is still {job.state.value} after {timeout:g} s")
            await asyncio.sleep(pause if left is None else min(pause, left))
            pause = min(_LONGEST_LOOK, pause * 1.5)

    async def cancel(self, job_id: JobId, *, by: str | None = None, reason: str | None = None) -> None:
        """Ask that a job be canceled, for good. AlreadyFinal if it has ended."""
        await self._request("cancel", job_id, by, reason)

    async def pause(self, job_id: JobId, *, by: str | None = None, reason: str | None = None) -> None:
        """Ask that a job be paused: a running handler is interrupted, its target is blocked."""
        await self._request("pause", job_id, by, reason)

    async def resume(self, job_id: JobId, *, by: str | None = None, reason: str | None = None) -> None:
        """Ask that a paused job, or one held in error, go on, with a fresh budget."""
        await self._request("resume", job_id, by, reason)

    async def delete(self, job_id: JobId, *, by: str | None = None, reason: str | None = None) -> None:
        """Ask that a job be canceled if it is open, and its payload, result, items and logs be erased."""
        await self._request("delete", job_id, by, reason)

    async def retry(self, job_id: JobId, *, by: str | None = None, reason: str | None = None) -> UUID:
        """Run again: a waiting job now, a held one by resuming it, an ended one as a new job, whose id is answered."""
        return await self._request("retry", job_id, by, reason)

    async def release(self, job_id: JobId, *, by: str | None = None) -> None:
        """Release a job that was recorded with `hold`."""
        wanted = _uuid(job_id)
        ((_, outcome),) = await self._store.release_held([wanted], by=by, tenant=None)
        judge("release", wanted, outcome)

    async def _request(self, verb: str, job_id: JobId, by: str | None, reason: str | None) -> UUID:
        wanted = _uuid(job_id)
        ((_, outcome, created),) = await self._store.request(verb, [wanted], by=by, reason=reason, tenant=None)
        judge(verb, wanted, outcome)
        return created if outcome == "new-job" and created is not None else wanted


def _count(name: str, value: Any, most: int = _LARGEST) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise InvalidInput(f"{name} must be a whole number from 0 to {most}, not {shown(value)}")
    return value


def _uuid(job_id: JobId) -> UUID:
    if isinstance(job_id, UUID):
        return job_id
    text = job_id if isinstance(job_id, str) else getattr(job_id, "id", None)
    try:
        return UUID(str(text))
    except ValueError:
        raise NotFound(f"{shown(job_id)} is not a job id") from None

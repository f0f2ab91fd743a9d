"""Running jobs inside the test: claimed, executed and settled by the worker's own parts, one after the other.

1. What is due is decided by the engine's clock. Before every claim, maintenance does what it would do about now:
   executes requests, seats targets, promotes what is due, sweeps lapsed leases, lets old jobs go first.
2. The order is that of a worker with one slot: by priority, then by age.
3. Nothing is waited for: a job that is to be retried in a second is run when the engine's time has come there.
4. Handlers run in the event loop that asks for it, with the app's lifespan around them.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import lru_cache
from uuid import UUID

from holdfast.app import Holdfast
from holdfast.definitions.job_type import JobType
from holdfast.errors import HoldfastError, InvalidInput
from holdfast.model.hints import Hints
from holdfast.model.job import Claim, Stream
from holdfast.store.jobs import JobStore
from holdfast.store.leases import LeaseStore
from holdfast.store.workers import WorkerStore
from holdfast.testing.attempts import AttemptRunner, Run
from holdfast.testing.failures import Failures
from holdfast.testing.sandbox import Sandbox
from holdfast.testing.upkeep import Upkeep
from holdfast.worker.enlistment import new_worker_id

__all__ = ["Runner"]

#: More runs than this in one go, and some handler must be enqueueing itself for ever.
MOST_RUNS = 10_000


class Runner:
    """A worker without a loop of its own: it takes a step when it is told to."""

    def __init__(self, app: Holdfast, sandbox: Sandbox, failures: Failures) -> None:
        self._app, self._sandbox = app, sandbox
        self._worker = new_worker_id()
        self._store = LeaseStore(sandbox.worker, self._worker)
        self._jobs = JobStore(sandbox.worker)
        self._upkeep = Upkeep(sandbox.worker)
        self._published: set[str] = set()
        self._attempts = AttemptRunner(app, sandbox, failures, self._worker)

    async def run_due(
        self, types: Sequence[str] | None, queues: Sequence[str] | None, limit: int | None, raise_errors: bool
    ) -> list[Run]:
        """Run what is due, and what that enqueues, to the end."""
        names = [self.known(name).name for name in types] if types is not None else [t.name for t in self._app.registry]
        runs: list[Run] = []
        async with self._at_work():
            while limit is None or len(runs) < limit:
                if len(runs) >= MOST_RUNS:
                    raise HoldfastError(
                        f"{MOST_RUNS} jobs were run and more are due: does {runs[-1].type!r} never end?"
                    )
                await self._upkeep.briefly()
                streams = await self._store.streams(names, queues, None)
                if not streams:
                    break
                claims = await self._store.claim(Hints.everything(list(streams)), streams, 1, None)
                if not claims:
                    break
                runs.append(await self._run(claims[0], raise_errors))
        return runs

    async def run_one(self, job_id: UUID, raise_errors: bool) -> Run | None:
        """Run one job, whatever else is waiting; None when it cannot be claimed."""
        async with self._at_work():
            await self._upkeep.briefly()
            claim = await self._claim(job_id)
            return None if claim is None else await self._run(claim, raise_errors)

    def known(self, name: str) -> JobType:
        """The app's job type of that name."""
        found = self._app.registry.get(name)
        if found is None:
            has = ", ".join(t.name for t in self._app.registry) or "none"
            raise InvalidInput(f"the app has no job type {name!r}; it has {has}")
        return found

    def could_run(self, job_id: UUID, name: str) -> bool:
        """Whether the app has a handler for that job, and others than who recorded it can see it yet.

        It blocks, and never waits in the event loop's sense: on a blocking connection there may be no loop.
        """
        known = self._app.registry.get(name) is not None
        return known and bool(self._sandbox.wait(self._jobs.get([job_id])))

    async def upkeep(self) -> None:
        """Do all that maintenance does, once and to the end."""
        await self._publish()
        await self._upkeep.thoroughly()

    async def _run(self, claim: Claim, raise_errors: bool) -> Run:
        return await self._attempts.run(claim, self.known(claim.stream.type), raise_errors)

    async def _claim(self, job_id: UUID) -> Claim | None:
        found = await self._sandbox.kit.claim(self._worker, job_id)
        if found is None:
            return None
        (job,) = await self._jobs.get([job_id])
        claimed_at = job.started_at or job.updated_at
        return Claim(
            job_id=job_id,
            attempt=found.attempt,
            stream=Stream(id=0, tenant=found.tenant, queue=found.queue, type=found.type),
            rank=0,
            seq=0,
            payload=found.payload,
            correlation_id=job.correlation_id,
            target=found.target,
            failures=job.failures,
            max_attempts=job.max_attempts,
            ready_at=claimed_at,
            claimed_at=claimed_at,
            lease_seconds=(found.lease_expires_at - claimed_at).total_seconds(),
            cursor=found.cursor,
            traceparent=job.traceparent,
        )

    @asynccontextmanager
    async def _at_work(self) -> AsyncIterator[None]:
        """With job types published and resources set up, as in a worker."""
        await self._publish()
        async with self._attempts.at_work():
            yield

    async def _publish(self) -> None:
        """Let the engine know the job types, as a worker does when it starts."""
        new = [t for t in self._app.registry if t.name not in self._published]
        if new:
            await WorkerStore(self._sandbox.worker).publish_types(f"[{','.join(map(_published, new))}]")
            self._published |= {t.name for t in new}


@lru_cache(1024)
def _published(job_type: JobType) -> str:
    """What a worker publishes of a type; making its schema takes longer than many a test."""
    return json.dumps(job_type.published())

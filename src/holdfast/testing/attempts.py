"""One attempt inside a test: executed, interrupted and settled by the worker's own parts.

Around it stands what a worker sets up: the app's lifespan and middleware, threads, processes and transactions. A run
within a run, which inline mode makes, shares it.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, cast
from uuid import UUID

from holdfast.app import Holdfast
from holdfast.definitions.job_type import JobType
from holdfast.errors import HoldfastError
from holdfast.lifecycle.elapsed import elapsed
from holdfast.model.job import Claim
from holdfast.model.outcome import COSTS_ATTEMPT, Outcome
from holdfast.model.states import State
from holdfast.store.jobs import JobStore
from holdfast.store.leases import LeaseStore
from holdfast.store.reports import ReportStore
from holdfast.store.transactions import Transactions
from holdfast.telemetry.bus import Bus
from holdfast.telemetry.events import AttemptEnded
from holdfast.testing.failures import Failure, Failures, raising, stalling
from holdfast.testing.sandbox import Sandbox
from holdfast.worker.claimed import Claimed, ClaimedAttempts, Interrupt
from holdfast.worker.execution import Execution
from holdfast.worker.settings import WorkerSettings
from holdfast.worker.settlement import SettlementService

__all__ = ["AttemptRunner", "JobFailed", "Run"]

_LOOK_SECONDS = 0.05
_STALL_SECONDS = 0.001
#: Inline runs nest, and every handler in a thread keeps its own until the inner one has ended.
_THREADS = 500
_TRANSACTIONS = 10


class JobFailed(HoldfastError):
    """A handler failed where `raise_errors` was asked for, and its own exception is not at hand."""

    code = "job-failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One attempt that was run: how it ended, and what became of the job.

    `outcome` is that of the attempt (`Kind` in holdfast.model.outcome), `crashed` where the worker was made to crash,
    or `lease-lost`. `error` is what the handler raised.
    """

    job_id: UUID
    type: str
    attempt: int
    outcome: str
    state: State
    result: Any = None
    error: BaseException | None = None
    error_message: str | None = None


class AttemptRunner:
    """Carries out the attempts that a worker of this app has claimed."""

    def __init__(self, app: Holdfast, sandbox: Sandbox, failures: Failures, worker: str) -> None:
        self._app, self._sandbox, self._failures, self._worker = app, sandbox, failures, worker
        self._store = LeaseStore(sandbox.worker, worker)
        self._jobs = JobStore(sandbox.worker)
        self._settings = WorkerSettings(app.config)

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        """With everything set up that handlers need."""
        if self._execution is not None:
            yield
            return
        self._settings.learn(await self._store.settings())
        async with AsyncExitStack() as stack:
            lifespan = self._app.resources
            resources = await stack.enter_async_context(lifespan()) if lifespan is not None else None
            transactions = Transactions(self._app.config, self._worker, size=_TRANSACTIONS)
            transactions.result_limit = lambda: self._settings.result_limit
            stack.push_async_callback(transactions.close)
            reports = ReportStore(self._app.config, self._worker)
            stack.push_async_callback(reports.close)
            execution = self._new_execution(resources, transactions, reports)
            stack.callback(execution.shutdown)
            stack.callback(_at_work.reset, _at_work.set((self, execution)))
            yield

    async def run(self, claim: Claim, job_type: JobType, raise_errors: bool) -> Run:
        """Carry out one attempt, and say what became of it."""
        claimed = Claimed(claim, "general", elapsed())
        raised: list[BaseException] = []
        failure = self._failures.take(job_type.name)
        outcome = await self._execute(claimed, _watched(job_type, raised), failure, raised)
        if outcome is None:
            return await self._ended(claimed, "crashed", None, raised)
        if failure is not None and failure.kind == "lose lease":
            await self._sandbox.kit.lapse(claim.job_id, claim.attempt)
        settled = await self._settle(claimed, outcome)
        run = await self._ended(claimed, outcome.kind if settled else "lease-lost", outcome, raised)
        if raise_errors and run.outcome in COSTS_ATTEMPT:
            raise run.error or JobFailed(f"{run.type}: {outcome.error_type}: {outcome.message}")
        return run

    async def _execute(
        self, claimed: Claimed, job_type: JobType, failure: Failure | None, raised: list[BaseException]
    ) -> Outcome | None:
        """How the attempt ended; None if the worker crashed."""
        timeout = job_type.timeout_seconds or self._settings.lane_timeout(job_type.lane)
        if failure is None or failure.kind == "lose lease":
            return await self._perform(claimed, job_type, timeout)
        if failure.after:
            await self._perform(claimed, job_type, timeout)
        if failure.kind == "crash":
            return None
        if failure.kind == "time out":
            await self._perform(claimed, stalling(job_type), _STALL_SECONDS)
            return Outcome.timed_out(timeout)
        error = failure.error or RuntimeError("a failure that the test asked for")
        raised[:] = [error]
        return await self._perform(claimed, raising(job_type, error), timeout)

    async def _perform(self, claimed: Claimed, job_type: JobType, timeout: float) -> Outcome:
        """Run the handler, and tell it when somebody wants it to stop."""
        execution = self._execution
        assert execution is not None  # noqa: S101 - only called at work
        task = asyncio.create_task(execution.run(claimed, job_type, timeout))
        claimed.task = task  # type: ignore[assignment]
        claim = claimed.claim
        try:
            while not (await asyncio.wait({task}, timeout=_LOOK_SECONDS))[0]:
                if (wish := await self._store.interrupted(claim.job_id, claim.attempt)) is not None:
                    claimed.stop(cast("Interrupt", wish))
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.wait({task})
            raise
        return task.result()

    async def _settle(self, claimed: Claimed, outcome: Outcome) -> bool:
        """Through the worker's own settlement, whose events the app hears; False if the lease was lost."""
        ended: list[AttemptEnded] = []
        bus = Bus()
        bus.subscribe(self._app.events.emit)
        bus.subscribe(ended.append, AttemptEnded)
        settlement = SettlementService(self._store, ClaimedAttempts(), bus, self._worker)
        settlement.add(claimed, outcome)
        await settlement.round()
        return bool(ended)

    async def _ended(self, claimed: Claimed, kind: str, outcome: Outcome | None, raised: list[BaseException]) -> Run:
        (job,) = await self._jobs.get([claimed.claim.job_id])
        return Run(
            job_id=job.id,
            type=job.type,
            attempt=claimed.claim.attempt,
            outcome=kind,
            state=job.state,
            result=job.result,
            error=raised[-1] if raised and kind != "success" else None,
            error_message=outcome.message if outcome is not None else None,
        )

    @property
    def _execution(self) -> Execution | None:
        """What was set up further out, if anything was."""
        owner, execution = _at_work.get() or (None, None)
        return execution if owner is self else None

    def _new_execution(self, resources: Any, transactions: Transactions, reports: ReportStore) -> Execution:
        return Execution(
            self._app.config,
            self._worker,
            self._app.client,
            resources,
            threads=_THREADS,
            pauses_drained=lambda _claimed: False,
            stuck_after_seconds=3600,
            on_stuck=lambda _claimed: None,
            transactions=transactions,
            send=reports.report,
            middleware=self._app.middleware,
            result_limit=lambda: self._settings.result_limit,
        )


_at_work: ContextVar[tuple[AttemptRunner, Execution] | None] = ContextVar("holdfast_testing_at_work", default=None)


def _watched(job_type: JobType, raised: list[BaseException]) -> JobType:
    """The same job type, whose handler's exceptions are kept as they are; those of other processes cannot be."""
    handler: Callable[..., Any] = job_type.handler

    async def coroutine(*arguments: Any, **keywords: Any) -> Any:
        try:
            return await handler(*arguments, **keywords)
        except Exception as error:
            raised.append(error)
            raise

    def function(*arguments: Any, **keywords: Any) -> Any:
        try:
            return handler(*arguments, **keywords)
        except Exception as error:
            raised.append(error)
            raise

    if job_type.executor == "process":
        return job_type
    return dataclasses.replace(job_type, handler=coroutine if job_type.executor == "async" else function)

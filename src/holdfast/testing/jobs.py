"""What a test does with the jobs of an app: let time pass, run what is due, look at what was enqueued, break things.

Only what runs handlers is a coroutine, because handlers belong into the test's own event loop; a test without one has
the same verbs, blocking, in `jobs.sync`. All other verbs are plain calls in either kind of test: an assertion that
could be forgotten to be awaited would be no assertion.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import update_wrapper
from typing import Any, Concatenate, ParamSpec, TypeVar, Unpack
from uuid import UUID

from holdfast.app import Handler, Holdfast
from holdfast.errors import Conflict, InvalidInput
from holdfast.model.job import Job
from holdfast.store.jobs import JobStore
from holdfast.testing.attempts import Run
from holdfast.testing.clock import Clock
from holdfast.testing.expectations import Expectation, Expected
from holdfast.testing.failures import Failure, Failures
from holdfast.testing.inline import Inline
from holdfast.testing.running import Runner
from holdfast.testing.sandbox import Sandbox

__all__ = ["Jobs", "SyncJobs"]

P = ParamSpec("P")
R = TypeVar("R")
Type = str | Handler[Any, Any]

_ALL = 10_000


class Jobs:
    """The jobs of an app in a test database."""

    def __init__(self, app: Holdfast, sandbox: Sandbox) -> None:
        #: The app under test, bound to the test database.
        self.app = app
        #: Where the test database is, for connections of the test's own.
        self.database_url = sandbox.url
        #: `run_due` and `run` for tests without an event loop.
        self.sync = SyncJobs(self, sandbox)
        self._sandbox = sandbox
        self._store = JobStore(sandbox.owner)
        self._clock = Clock(sandbox)
        self._failures = Failures()
        self._runner = Runner(app, sandbox, self._failures)

    async def run_due(
        self,
        *,
        types: Sequence[Type] | None = None,
        queues: Sequence[str] | None = None,
        limit: int | None = None,
        raise_errors: bool = False,
    ) -> list[Run]:
        """Run every job that is due by the engine's time, and what those enqueue, by priority and age.

        Nothing is waited for: what is to be retried or is scheduled for later stays. A handler's exception is
        recorded as in production, and with `raise_errors` raised here as well. Answers what was run.
        """
        names = None if types is None else [_name(wanted) for wanted in types]
        return await self._runner.run_due(names, queues, limit, raise_errors)

    async def run(self, job_id: Any, *, raise_errors: bool = False) -> Run:
        """Run one job now, whatever else is waiting. Conflict if a worker could not claim it."""
        wanted = UUID(str(getattr(job_id, "id", job_id)))
        run = await self._runner.run_one(wanted, raise_errors)
        if run is None:
            found = await self._store.get([wanted])
            raise Conflict(f"job {wanted} is {found[0].state.value if found else 'unknown'} and cannot be run now")
        return run

    def now(self) -> datetime:
        """What time it is for the engine."""
        return self._clock.now()

    def freeze(self, at: datetime | None = None) -> datetime:
        """Stop the engine's time, now or at a given moment; what time it is then."""
        return self._clock.freeze(at)

    def advance(self, by: float | timedelta) -> datetime:
        """Move the engine's time on by seconds or a timedelta; what time it is then. Runs nothing by itself."""
        return self._clock.advance(by)

    def unfreeze(self) -> datetime:
        """Let the engine's time flow again, from where it stands; what time it is then."""
        return self._clock.unfreeze()

    def maintain(self) -> None:
        """Do all that maintenance does by now: promote, sweep, execute requests, mend, and delete what is too old."""
        self._sandbox.wait(self._runner.upkeep())

    def clear(self) -> None:
        """Forget every job, such as those that the test's preparations have enqueued. Time stays as it is."""
        self._sandbox.wait(self._sandbox.kit.clear())

    def enqueued(
        self,
        job_type: Type | None = None,
        *,
        ended: bool = False,
        tolerance: float | timedelta = 1.0,
        **expected: Unpack[Expected],
    ) -> list[Job]:
        """The jobs that fit, oldest first: those that have not ended, or with `ended` all."""
        expectation = Expectation(job_type, expected, tolerance)
        return [job for job in self._recorded() if (ended or not job.state.terminal) and expectation.fits(job)]

    def assert_enqueued(
        self,
        job_type: Type | None = None,
        *,
        count: int | None = None,
        ended: bool = False,
        tolerance: float | timedelta = 1.0,
        **expected: Unpack[Expected],
    ) -> Job:
        """Fail unless a job that fits is waiting, or exactly `count` of them; the first of them.

        `payload` needs to name only what matters. `delay` and `run_at` may differ by `tolerance` seconds.
        """
        if count is not None and count < 1:
            raise InvalidInput("to assert that there is none, use assert_not_enqueued")
        found, message = self._compared(Expectation(job_type, expected, tolerance), count, ended)
        if not found or count not in (None, len(found)):
            raise AssertionError(message())
        return found[0]

    def assert_not_enqueued(
        self,
        job_type: Type | None = None,
        *,
        ended: bool = False,
        tolerance: float | timedelta = 1.0,
        **expected: Unpack[Expected],
    ) -> None:
        """Fail if a job that fits is waiting."""
        found, message = self._compared(Expectation(job_type, expected, tolerance), 0, ended)
        if found:
            raise AssertionError(message())

    def fail_next(
        self, job_type: Type, error: BaseException | None = None, *, times: int = 1, after: bool = False
    ) -> None:
        """Let the next runs raise `error`: instead of the handler, or `after` it has done its work."""
        self._plan(job_type, Failure(kind="raise", error=error, after=after), times)

    def time_out_next(self, job_type: Type, *, times: int = 1) -> None:
        """Let the next runs take too long, at once."""
        self._plan(job_type, Failure(kind="time out"), times)

    def crash_next(self, job_type: Type, *, times: int = 1, after: bool = False) -> None:
        """Let the worker die in the next runs, before the handler's work or `after` it.

        The job stays `running`, as in production, until its lease is over: advance time and run what is due.
        """
        self._plan(job_type, Failure(kind="crash", after=after), times)

    def lose_lease_next(self, job_type: Type, *, times: int = 1) -> None:
        """Let the next runs lose their lease while the handler works: its result is dropped, and the job runs again."""
        self._plan(job_type, Failure(kind="lose lease"), times)

    @contextmanager
    def database_down(self) -> Iterator[None]:
        """A real outage for the length of the block: all connections are cut, and nobody gets a new one."""
        with self._sandbox.outage():
            yield

    @contextmanager
    def inline(self, *, raise_errors: bool = False) -> Iterator[None]:
        """Every job that is enqueued in the block runs before `enqueue` returns, unless it is not due yet."""
        middleware = Inline(self._runner, raise_errors=raise_errors)
        self.app.middleware.insert(0, middleware)
        try:
            yield
        finally:
            self.app.middleware.remove(middleware)

    def _plan(self, job_type: Type, failure: Failure, times: int) -> None:
        self._failures.plan(self._runner.known(_name(job_type)).name, failure, times)

    def _recorded(self) -> list[Job]:
        ids = [job.id for job in self._sandbox.wait(self._store.list(limit=_ALL))]
        return sorted(self._sandbox.wait(self._store.get(ids)), key=lambda job: job.id)

    def _compared(
        self, expectation: Expectation, count: int | None, ended: bool
    ) -> tuple[list[Job], Callable[[], str]]:
        recorded = self._recorded()
        considered = [job for job in recorded if ended or not job.state.terminal]
        others = [] if ended else [job for job in recorded if job.state.terminal]
        found = [job for job in considered if expectation.fits(job)]
        return found, lambda: expectation.missing(considered, others, len(found), count)


def _blocking(
    verb: Callable[Concatenate[Jobs, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[SyncJobs, P], R]:
    """The blocking counterpart of a coroutine of `Jobs`, run in an event loop that the kit keeps for handlers."""

    def call(self: SyncJobs, /, *arguments: P.args, **keywords: P.kwargs) -> R:
        return self._sandbox.handlers.run(verb(self._jobs, *arguments, **keywords))

    update_wrapper(call, verb)
    return call


class SyncJobs:
    """What runs handlers, for tests without an event loop."""

    run_due = _blocking(Jobs.run_due)
    run = _blocking(Jobs.run)

    def __init__(self, jobs: Jobs, sandbox: Sandbox) -> None:
        self._jobs, self._sandbox = jobs, sandbox


def _name(job_type: Type) -> str:
    return job_type if isinstance(job_type, str) else job_type.name

"""The composition root: an app with its job types, its database, its client and its workers."""

from __future__ import annotations

import asyncio
import dataclasses
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar
from uuid import UUID

from holdfast.client.client import Client, JobId, JobRef
from holdfast.config import Config
from holdfast.definitions.job_type import Executor, JobType, Lane, OnFailure, declare
from holdfast.definitions.registry import Registry
from holdfast.errors import HoldfastError, SchemaError
from holdfast.maintenance.leader import Maintenance
from holdfast.model.job import Attempt, Event, Job
from holdfast.model.options import engine_options
from holdfast.model.retry import RetryPolicy
from holdfast.store.database import Database, check_schema
from holdfast.store.embedded import EmbeddedPostgres
from holdfast.store.jobs import JobStore
from holdfast.store.migrate import migrate
from holdfast.telemetry.bus import Bus
from holdfast.telemetry.narrator import narrate
from holdfast.worker.context import Context
from holdfast.worker.slots import parse_lanes
from holdfast.worker.worker import Worker

__all__ = ["Handler", "Holdfast"]

P = ParamSpec("P")
R = TypeVar("R")
Lifespan = Callable[["Holdfast"], AbstractAsyncContextManager[Any]]


class Handler(Generic[P, R]):
    """What `@hf.job` makes of a function: still callable, and it can be enqueued with its own arguments."""

    def __init__(
        self, app: Holdfast, job_type: JobType, function: Callable[..., R], options: dict[str, Any] | None = None
    ) -> None:
        self._app, self._options = app, options or {}
        self.job_type = job_type
        self._function = function
        self.__doc__, self.__name__ = function.__doc__, job_type.name
        self.__wrapped__ = function

    @property
    def name(self) -> str:
        """The job type's name."""
        return self.job_type.name

    def options(self, **options: Any) -> Handler[P, R]:
        """The same handler with options for its next enqueue."""
        engine_options(options)
        return Handler(self._app, self.job_type, self._function, {**self._options, **options})

    async def enqueue(self, *arguments: P.args, **keywords: P.kwargs) -> JobRef:
        """Record a job of this type, with the handler's own arguments."""
        payload = self.job_type.payload.bind(arguments, keywords)
        return await self._app.enqueue(self.job_type.name, payload, **self._options)

    def __call__(self, context: Context, *arguments: P.args, **keywords: P.kwargs) -> R:
        """Call the function itself."""
        return self._function(context, *arguments, **keywords)

    def __repr__(self) -> str:
        return f"<Handler {self.name!r}>"


class Holdfast:
    """An app. Declare job types on it, open it (`async with hf:`), enqueue, wait, or run a worker.

    Without a database URL it runs a PostgreSQL of its own, in the folder `HOLDFAST_HOME` (`.holdfast`).
    """

    def __init__(
        self,
        database_url: str | None = None,
        schema: str | None = None,
        lifespan: Lifespan | None = None,
        *,
        home: Path | str | None = None,
    ) -> None:
        self.config = Config.load(database_url=database_url, schema=schema, home=home)
        self.registry = Registry()
        self.events = Bus()
        self.events.subscribe(narrate)
        self._lifespan = lifespan
        self._embedded: EmbeddedPostgres | None = None
        self._database: Database | None = None
        self._client: Client | None = None
        self._users = 0
        self._opening: asyncio.Lock | None = None

    def job(
        self,
        name: str,
        *,
        queue: str = "default",
        lane: Lane = "general",
        retry: RetryPolicy | None = None,
        timeout: float | None = None,
        lease: float | None = None,
        on_failure: OnFailure = "retry",
        executor: Executor | None = None,
        version: int = 1,
    ) -> Callable[[Callable[Concatenate[Any, P], R]], Handler[P, R]]:
        """Declare a job type: an `async def` (run in the event loop) or a `def` (run in a thread)."""

        def decorate(function: Callable[Concatenate[Any, P], R]) -> Handler[P, R]:
            job_type = declare(
                name,
                function,
                queue=queue,
                lane=lane,
                retry=retry,
                timeout=timeout,
                lease=lease,
                on_failure=on_failure,
                executor=executor,
                version=version,
            )
            self.registry.add(job_type)
            return Handler(self, job_type, function)

        return decorate

    async def open(self) -> None:
        """Connect; without a database URL, start the embedded server first. May be called again, and counts."""
        if self._opening is None:
            self._opening = asyncio.Lock()
        async with self._opening:
            if self._users == 0:
                await self._open()
            self._users += 1

    async def close(self) -> None:
        """Undo one `open`; the last one disconnects."""
        self._users -= 1
        if self._users == 0:
            await self._close()

    async def __aenter__(self) -> Holdfast:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def use_database(self) -> None:
        """Make sure there is a database: start the embedded server where no URL is set."""
        if self.config.database_url is None:
            self._embedded = EmbeddedPostgres(self.config.home)
            url = await asyncio.to_thread(self._embedded.start)
            self.config = dataclasses.replace(
                self.config, database_url=url, origins={**self.config.origins, "database_url": "embedded"}
            )

    async def _open(self) -> None:
        await self.use_database()
        try:
            if self._embedded is not None:
                await self._first_migration()
            self._database = Database(self.config, role="api")
            await self._database.open()
        except BaseException:
            await self._close()
            raise
        self._client = Client(JobStore(self._database), self.registry)

    async def _first_migration(self) -> None:
        """A new embedded database is ours alone: it gets its schema at once. Later ones need `migrate`."""
        try:
            await check_schema(self.config)
        except SchemaError as fault:
            if "does not exist" not in str(fault):
                raise
            await migrate(self.config)

    async def _close(self) -> None:
        database, self._database, self._client = self._database, None, None
        if database is not None:
            await database.close()
        embedded, self._embedded = self._embedded, None
        if embedded is not None:
            embedded.release()
            self.config = dataclasses.replace(self.config, database_url=None)

    @property
    def client(self) -> Client:
        """The client of an open app."""
        if self._client is None:
            raise HoldfastError("the app is not open: use `async with hf:`")
        return self._client

    async def check(self) -> None:
        """Raise unless the database answers and its schema is of this release or a newer one."""
        if self._database is None:
            raise HoldfastError("the app is not open: use `async with hf:`")
        await self._database.check()

    async def enqueue(self, job_type: str, payload: Any = None, **options: Any) -> JobRef:
        """Record one job; see `Client.enqueue`."""
        return await self.client.enqueue(job_type, payload, **options)

    async def enqueue_many(self, jobs: Iterable[Sequence[Any]]) -> list[JobRef]:
        """Record many jobs; see `Client.enqueue_many`."""
        return await self.client.enqueue_many(jobs)

    async def get(self, job_id: JobId) -> Job:
        """The job as it stands."""
        return await self.client.get(job_id)

    async def find(self, **filters: Any) -> list[Job]:
        """Jobs, newest first; see `Client.find`."""
        return await self.client.find(**filters)

    async def attempts(self, job_id: JobId) -> Sequence[Attempt]:
        """Every ended attempt of a job."""
        return await self.client.attempts(job_id)

    async def history(self, job_id: JobId) -> Sequence[Event]:
        """The rarer moves of a job."""
        return await self.client.events(job_id)

    async def wait(self, job_id: JobId, timeout: float | None = None) -> Job:
        """Wait until the job has ended."""
        return await self.client.wait(job_id, timeout)

    async def cancel(self, job_id: JobId, *, by: str | None = None, reason: str | None = None) -> None:
        """Ask that a job be canceled."""
        await self.client.cancel(job_id, by=by, reason=reason)

    async def pause(self, job_id: JobId, *, by: str | None = None, reason: str | None = None) -> None:
        """Ask that a job be paused."""
        await self.client.pause(job_id, by=by, reason=reason)

    async def resume(self, job_id: JobId, *, by: str | None = None, reason: str | None = None) -> None:
        """Ask that a paused or held job go on."""
        await self.client.resume(job_id, by=by, reason=reason)

    async def release(self, job_id: JobId, *, by: str | None = None) -> None:
        """Release a job recorded with `hold`."""
        await self.client.release(job_id, by=by)

    async def retry(self, job_id: JobId, *, by: str | None = None, reason: str | None = None) -> UUID:
        """Run a job again; the id of the job that will run."""
        return await self.client.retry(job_id, by=by, reason=reason)

    async def delete(self, job_id: JobId, *, by: str | None = None, reason: str | None = None) -> None:
        """Cancel a job if it is open, and erase what it was about."""
        await self.client.delete(job_id, by=by, reason=reason)

    async def run_worker(
        self,
        *,
        burst: bool = False,
        lanes: dict[str, int] | str | None = None,
        queues: Sequence[str] | None = None,
        types: Sequence[str] | None = None,
        tenants: Sequence[str] | None = None,
        batch_size: int | None = None,
        poll_interval: float | None = None,
        maintenance: bool = True,
        signals: bool = False,
        started: Callable[[Worker], Awaitable[None] | None] | None = None,
        stuck_after_seconds: float | None = None,
    ) -> Worker:
        """Run a worker until it is drained, or (burst) nothing is left to do.

        With `signals`, SIGTERM and SIGINT drain it, and a second one interrupts what still runs.
        """
        async with self:
            database = Database(self.config, role="worker", size=3)
            await database.open()
            try:
                worker = Worker(
                    self.config,
                    database,
                    self.client,
                    self.registry,
                    self.events,
                    slots=lanes if isinstance(lanes, dict) else parse_lanes(lanes or self.config.lanes),
                    lifespan=self._resources,
                    queues=queues,
                    types=types,
                    tenants=tenants,
                    batch_size=batch_size,
                    poll_interval=poll_interval,
                    burst=burst,
                    services=[Maintenance(self.config, database, self.events)] if maintenance else [],
                    stuck_after_seconds=stuck_after_seconds,
                )
                if signals:
                    loop = asyncio.get_running_loop()
                    for number in (signal.SIGTERM, signal.SIGINT):
                        loop.add_signal_handler(number, worker.drain)
                if started is not None and (pending := started(worker)) is not None:
                    await pending
                await worker.run()
            finally:
                await database.close()
        return worker

    @asynccontextmanager
    async def maintaining(self) -> AsyncIterator[None]:
        """Take part in maintenance beside other work, as every worker does: whoever leads does it for all."""
        async with self:
            database = Database(self.config, role="worker", size=1)
            await database.open()
            service = Maintenance(self.config, database, self.events)
            task = asyncio.create_task(service.run(), name=service.name)
            try:
                yield
            finally:
                service.stop()
                await task
                await database.close()

    @property
    def _resources(self) -> Callable[[], AbstractAsyncContextManager[Any]] | None:
        lifespan = self._lifespan
        return None if lifespan is None else lambda: lifespan(self)

"""An app: its job types, its database, its client and its workers."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from holdfast.app.declaring import Declaring
from holdfast.app.lifespan import Lifespan, entering, refuse_misfit
from holdfast.app.verbs import Verbs
from holdfast.client.client import Client
from holdfast.config import Config
from holdfast.definitions.registry import Registry
from holdfast.errors import DatabaseUnavailable, HoldfastError, InvalidInput, NotOpen, SchemaError
from holdfast.lifecycle.importing import refuse_while_importing
from holdfast.model.ctrl_c import never_raised
from holdfast.store.database import Database, check_schema
from holdfast.store.groups import Groups
from holdfast.store.jobs import JobStore
from holdfast.telemetry.bus import Bus
from holdfast.telemetry.events import SettingOverruled
from holdfast.telemetry.narrator import NARRATED, Narrator, routine_is_narrated
from holdfast.worker.middleware import Middleware

# Imported where they are used: a program that only enqueues needs neither workers nor servers nor operations.
if TYPE_CHECKING:
    from holdfast.app.sync import Sync
    from holdfast.client.control import ControlPlane
    from holdfast.client.operations import Operations
    from holdfast.client.remote_work import RemoteWork
    from holdfast.store.embedded import EmbeddedPostgres
    from holdfast.worker.worker import Worker

__all__ = ["Holdfast"]

#: How long a statement of the control plane may take, the wait for a connection included.
_FRONT_SECONDS = 5.0
#: Connections for searches and lists (as many as `holdfast.client.turns` has places for both), and how long one of
#: their statements may take, also in the server.
_BROWSING, _BROWSING_SECONDS = 6, 8.0


class Holdfast(Declaring, Verbs):
    """An app. Declare job types on it, open it (`async with hf:`), enqueue, wait, or run a worker.

    Without a database URL it runs its own PostgreSQL in the folder `HOLDFAST_HOME` (`.holdfast`).

    `lifespan` takes the app and returns an asynchronous context manager. A worker enters it when it starts, and so does
    each process for handlers with `executor="process"`. Handlers find what it yields in `ctx.resources`.
    """

    def __init__(
        self,
        database_url: str | None = None,
        schema: str | None = None,
        lifespan: Lifespan | None = None,
        *,
        home: Path | str | None = None,
        middleware: Iterable[Middleware] = (),
    ) -> None:
        self.config = Config.load(database_url=database_url, schema=schema, home=home)
        self.registry = Registry()
        self.events = Bus()
        self.events.subscribe(Narrator(), *NARRATED, routine=routine_is_narrated)
        self.middleware = list(middleware)
        refuse_misfit(lifespan)
        self._lifespan = lifespan
        self._sync: Sync | None = None
        self._disconnected()

    def _disconnected(self) -> None:
        """Start without open connections: the client can only record on a caller's connection."""
        self._embedded: EmbeddedPostgres | None = None
        self._database = Database(self.config, role="api")
        self._front = Database(self.config, role="client", seconds=_FRONT_SECONDS)
        self._back = Database(self.config, role="operator")
        self._far = Database(self.config, role="remote", seconds=_FRONT_SECONDS)
        self._browsing = Database(self.config, role="operator", size=_BROWSING, seconds=_BROWSING_SECONDS)
        self._control: ControlPlane | None = None
        self._operations: Operations | None = None
        self._remote: RemoteWork | None = None
        self._groups = Groups(self._database)
        self.client = Client(
            JobStore(self._database),
            self.registry,
            bus=self.events,
            middleware=self.middleware,
            groups=self._groups,
        )
        #: Whether the embedded database had no schema yet when it was opened here.
        self.found_no_schema = False
        self._users = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._opening = asyncio.Lock()

    def ambient(self) -> Any:
        """The connection whose transaction synchronous calls join if they get no `conn`. Integrations override it."""
        return None

    @property
    def sync(self) -> Sync:
        """The same verbs for synchronous code: they block."""
        if self._sync is None:
            from holdfast.app.sync import Sync

            self._sync = Sync(self)
        return self._sync

    def twin(self) -> Holdfast:
        """An app with the same job types, events and middleware, but its own connections."""
        twin = copy.copy(self)
        twin._sync = None
        twin._disconnected()
        return twin

    async def open(self) -> None:
        """Connect. Without a database URL, start the embedded server first. Each call needs its own `close`."""
        refuse_while_importing()
        loop = asyncio.get_running_loop()
        if self._users and self._loop is not loop:
            raise HoldfastError("the app is open in another event loop: close it there first")
        if self._loop is not loop:
            self._loop, self._opening = loop, asyncio.Lock()
        async with self._opening:
            if self._users == 0:
                await self._open()
            self._users += 1

    async def close(self) -> None:
        """Undo one `open`; the last one disconnects."""
        if self._users == 0:
            raise HoldfastError("the app is not open")
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
        """Make sure that there is a database: start the embedded server if no URL is set."""
        if self.config.database_url is None:
            from holdfast.store.embedded_error import refuse_where_it_cannot_run

            refuse_where_it_cannot_run()
            from holdfast.store.embedded import EmbeddedPostgres

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
            self._database.config = self.config
            await self._database.open()
            self._groups.open()
        except BaseException:
            await self._close()
            raise

    async def _first_migration(self) -> None:
        """Nobody else uses a new embedded database, so it gets its schema at once. Later upgrades need `migrate`."""
        try:
            await check_schema(self.config)
        except SchemaError as fault:
            if "does not exist" not in str(fault):
                raise
            self.found_no_schema = True
            from holdfast.store.migrate import migrate

            await migrate(self.config)

    async def control(self) -> ControlPlane:
        """The verbs of the control plane, on separate connections that see one tenant at a time."""
        if self._control is None:
            async with self._opening:
                if self._control is None:
                    from holdfast.client.control import ControlPlane

                    self._control = ControlPlane(await self._connected(self._front), self.client)
        return self._control

    async def operations(self) -> Operations:
        """The verbs of operators, on separate connections."""
        if self._operations is None:
            async with self._opening:
                if self._operations is None:
                    from holdfast.client.acceptance import Acceptance
                    from holdfast.client.operations import Operations

                    back = await self._connected(self._back)
                    self._browsing.config = self.config
                    self._browsing.open_later()
                    acceptance = Acceptance(JobStore(back), self.registry, self.events)
                    self._operations = Operations(back, self._browsing, acceptance)
        return self._operations

    async def remote_work(self) -> RemoteWork:
        """The verbs of workers over HTTP, on separate connections that see one tenant at a time."""
        if self._remote is None:
            async with self._opening:
                if self._remote is None:
                    from holdfast.client.remote_work import RemoteWork

                    self._remote = RemoteWork(await self._connected(self._far))
        return self._remote

    def observe_control(self, observer: Callable[[str, float, str | None], None]) -> None:
        """Call `observer` for every statement of the control plane, with its name, duration and error code."""
        for database in (self._front, self._back, self._browsing, self._far):
            database.observe = observer

    async def _connected(self, database: Database) -> Database:
        if self._users == 0:
            raise NotOpen("the app is not open: use `async with hf:`")
        database.config = self.config
        await database.open()
        return database

    async def _close(self) -> None:
        self._groups.close()
        await self._database.close()
        remote, self._remote = self._remote, None
        if remote is not None:
            await remote.close()
        self._control = self._operations = None
        await self._front.close()
        await self._back.close()
        await self._browsing.close()
        await self._far.close()
        embedded, self._embedded = self._embedded, None
        if embedded is not None:
            embedded.release()
            self.config = dataclasses.replace(self.config, database_url=None)

    async def tell_overruled(self) -> None:
        """Publish the server's settings that Holdfast overrides; nothing if the server cannot be reached."""
        from holdfast.store.doctor import examination

        with suppress(DatabaseUnavailable):
            async with examination(self.config) as look:
                for found in await look.overruled():
                    self.events.emit(SettingOverruled(**found))

    async def check(self) -> None:
        """Raise unless the database answers and has the schema of this release or a newer one."""
        await self._database.check()

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
        """Run a worker until it is drained or, with `burst`, until nothing is left to do.

        With `signals`, SIGTERM and SIGINT drain it, and a second signal interrupts running handlers. Signals of timers
        and the like that nothing handles are logged, and do not end the process. `signals` is refused inside a handler:
        the signals of its process belong to the worker that runs it.
        """
        from holdfast.lifecycle.stray_signals import StraySignals
        from holdfast.maintenance.leader import Maintenance
        from holdfast.worker.owners import in_handler
        from holdfast.worker.slots import parse_lanes
        from holdfast.worker.worker import Worker

        if signals and in_handler():
            raise InvalidInput("signals belong to the worker that runs this handler: run another without `signals`")

        async with self, AsyncExitStack() as kept:
            # One for claims, one for beginnings, one for settlements, and two for settlements beside slow ones.
            database = Database(self.config, role="worker", size=5)
            await database.open()
            upkeep = Maintenance(self.config, self.events, listens=False)
            try:
                worker = Worker(
                    self.config,
                    database,
                    self.client,
                    self.registry,
                    self.events,
                    slots=lanes if isinstance(lanes, dict) else parse_lanes(lanes or self.config.lanes),
                    lifespan=self.resources,
                    queues=queues,
                    types=types,
                    tenants=tenants,
                    batch_size=batch_size,
                    poll_interval=poll_interval,
                    burst=burst,
                    services=[upkeep] if maintenance else [],
                    on_duty=upkeep.heard,
                    stuck_after_seconds=stuck_after_seconds,
                    middleware=self.middleware,
                )
                if signals:
                    loop = asyncio.get_running_loop()
                    for number in (signal.SIGTERM, signal.SIGINT):
                        loop.add_signal_handler(number, worker.drain)
                    never_raised()
                    kept.enter_context(StraySignals(loop.call_soon_threadsafe))
                if started is not None and (pending := started(worker)) is not None:
                    await pending
                await worker.run()
            finally:
                await database.close()
        return worker

    @asynccontextmanager
    async def maintaining(self) -> AsyncIterator[None]:
        """Take part in maintenance beside other work, as every worker does. The leader does it for all."""
        from holdfast.maintenance.leader import Maintenance

        async with self:
            service = Maintenance(self.config, self.events)
            task = asyncio.create_task(service.run(), name=service.name)
            try:
                yield
            finally:
                service.stop()
                await task

    @property
    def resources(self) -> Callable[[], AbstractAsyncContextManager[Any]] | None:
        """The function that sets up and cleans up the resources of handlers."""
        lifespan = self._lifespan
        return None if lifespan is None else lambda: entering(lifespan, self)

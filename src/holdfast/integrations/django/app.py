"""An app that lives in a Django project's database and joins its transactions.

1. Its database is the one that DATABASES names, looked up whenever it is opened, so that it follows Django's
   tests to their own database.
2. Blocking calls without `conn=` join the transaction that Django's connection is in, in the calling thread.
   Outside of one they use connections of Holdfast's own, and take effect at once.
3. Handlers in threads and processes find their Django connections fresh, and leave none behind. In a process of
   its own, Django's database is the one that the worker uses.
4. Where Django's tests forbid a database, Holdfast's own connections are forbidden, too.
"""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any

from django.utils.asyncio import async_unsafe

from holdfast.app import Handler, Holdfast
from holdfast.config import Config
from holdfast.integrations.django.database import connection_of, database_url, lead_to, names_the_same
from holdfast.integrations.django.settings import read
from holdfast.integrations.django.testing import ask_for_leave, ask_in_this_thread
from holdfast.integrations.django.threads import HandlerConnections
from holdfast.worker.middleware import Middleware
from holdfast.worker.worker import Worker

__all__ = ["DjangoHoldfast"]

Lifespan = Callable[[Holdfast], AbstractAsyncContextManager[Any]]

#: Who names a database that is not Django's to choose: the testing kit, and the worker of a handler's process.
_DECIDED = ("testing", "order")


class DjangoHoldfast(Holdfast):
    """An app in one of the project's databases: that of the setting `HOLDFAST`, unless told otherwise."""

    def __init__(
        self,
        *,
        database: str | None = None,
        schema: str | None = None,
        lifespan: Lifespan | None = None,
        middleware: Iterable[Middleware] = (),
    ) -> None:
        settings = read()
        #: The alias of its database in DATABASES.
        self.database = database or settings.database
        self._connections = HandlerConnections()
        super().__init__(schema=schema or settings.schema, lifespan=lifespan, middleware=middleware)

    @property
    def config(self) -> Config:
        """What the environment says, but the database is Django's, unless it was decided elsewhere."""
        given = self._config
        if given.origins["database_url"] in _DECIDED:
            return given
        # The way past a pooler is for the database that it names: Django's tests have another one.
        direct = given.direct_url if names_the_same(given.direct_url, self.database) else None
        return dataclasses.replace(
            given,
            database_url=database_url(self.database),
            direct_url=direct,
            origins={**given.origins, "database_url": "argument"},
        )

    @config.setter
    def config(self, config: Config) -> None:
        self._config = config
        if config.origins["database_url"] == "order" and config.database_url is not None:
            lead_to(self.database, config.database_url)

    @async_unsafe  # type: ignore[untyped-decorator]
    def ambient(self) -> Any:
        """Django's connection in this thread, if it is in a transaction."""
        if self._config.origins["database_url"] == "testing":
            return None  # the kit's database is not the one that Django's transaction is in
        connection = connection_of(self.database)
        opened = connection.connection is not None
        autocommit = connection.autocommit if opened else connection.settings_dict["AUTOCOMMIT"]
        if connection.in_atomic_block or not autocommit:
            return connection
        ask_for_leave(connection)
        return None

    async def open(self) -> None:
        """Connect, unless Django's tests forbid it."""
        if self._config.origins["database_url"] != "testing":
            await asyncio.to_thread(ask_in_this_thread, self.database)
        await super().open()

    if not TYPE_CHECKING:  # for type checkers these are the methods of Holdfast, with their options

        async def run_worker(self, **options: Any) -> Worker:
            """Run a worker, as `Holdfast.run_worker` does; its handlers' connections end with it."""
            try:
                return await super().run_worker(**options)
            finally:
                await asyncio.to_thread(self._connections.close)

        def job(self, name: str, **options: Any) -> Callable[[Callable[..., Any]], Handler[..., Any]]:
            """Declare a job type, as `Holdfast.job` does."""
            declare = super().job(name, **options)

            def decorate(function: Callable[..., Any]) -> Handler[..., Any]:
                if inspect.iscoroutinefunction(function):
                    return declare(function)
                # Only workers look after connections; whoever calls the handler has his own.
                return Handler(self, declare(self._connections.around(function)).job_type, function)

            return decorate

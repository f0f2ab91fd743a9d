"""An app that lives in a Django project's database and joins its transactions.

1. Its database is the one that DATABASES names, looked up whenever it is opened, so that it follows Django's
   tests to their own database.
2. Blocking calls without `conn=` join the transaction that Django's connection is in, in the calling thread.
   Outside of one they use connections of Holdfast's own, and take effect at once.
3. Handlers in threads and processes find their Django connections fresh, and leave none behind.
"""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any

from holdfast.app import Handler, Holdfast
from holdfast.config import Config
from holdfast.integrations.django.database import connection_of, database_url
from holdfast.integrations.django.settings import read
from holdfast.integrations.django.threads import HandlerConnections
from holdfast.worker.middleware import Middleware
from holdfast.worker.worker import Worker

__all__ = ["DjangoHoldfast"]

Lifespan = Callable[[Holdfast], AbstractAsyncContextManager[Any]]


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
        """What the environment says, but the database is Django's."""
        return dataclasses.replace(
            self._config,
            database_url=database_url(self.database),
            origins={**self._config.origins, "database_url": "argument"},
        )

    @config.setter
    def config(self, config: Config) -> None:
        self._config = config

    def ambient(self) -> Any:
        """Django's connection in this thread, if it is in a transaction."""
        connection = connection_of(self.database)
        by_hand = connection.connection is not None and not connection.autocommit
        return connection if connection.in_atomic_block or by_hand else None

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

"""One test database with the testing kit's own connections to it, kept for many tests.

The connections live in an event loop of the kit's own (a portal), so that they outlast the loops of single tests.
Statements may be awaited from any loop, and waited for by blocking code: in both cases they run over there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Coroutine, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from typing import Any, TypeVar

from holdfast.app import Holdfast, Sync
from holdfast.config import Config
from holdfast.errors import DatabaseUnavailable, HoldfastError
from holdfast.lifecycle.portal import Portal
from holdfast.store.jobs import JobStore
from holdfast.store.kit import KitDatabase, KitStore
from holdfast.store.kit_databases import out_of_reach, prepare

__all__ = ["Sandbox"]

T = TypeVar("T")


class Sandbox:
    """A database of the testing kit: apps are bound to it for the length of a test, and it is emptied in between."""

    def __init__(self, config: Config) -> None:
        self.config = dataclasses.replace(config, direct_url=None, origins=_of_testing(config))
        self._portal = Portal("holdfast-testing")
        try:
            self._portal.run(prepare(self.config))
            self.api = self._remote("api", 4)
            self.worker = self._remote("worker", 3)
            self.owner = self._remote("owner", 1)
        except BaseException:
            self._portal.stop()
            raise
        self.kit = KitStore(self.owner)
        self._sync: tuple[Holdfast, Sync] | None = None

    @property
    def url(self) -> str:
        """Where it is."""
        return self.config.database_url or ""

    @cached_property
    def handlers(self) -> Portal:
        """Where handlers run for tests that have no event loop."""
        return Portal("holdfast-testing-handlers")

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Carry out something that uses the kit's connections, and block until it is done."""
        return self._portal.run(work)

    def reset(self) -> None:
        """Take away all that is in it, and let its time be the real one."""
        try:
            self.wait(self.kit.reset())
        except DatabaseUnavailable as fault:
            raise HoldfastError(
                "the test database could not be emptied: a connection of an earlier test, or of a fixture, has left "
                f"a transaction open that holds jobs ({fault})"
            ) from fault

    @contextmanager
    def bound(self, app: Holdfast) -> Iterator[None]:
        """The app uses this database, and counts as open, until the end of the block."""
        if app._users:
            raise HoldfastError("the app is open already: let the fixture that opens it ask for the fixture `jobs`")
        before = app.config, app.client, app._sync, list(app.middleware)
        app.config = self._bound_config(app.config)
        if app.config.database_url != self.url:
            app.config = before[0]
            raise HoldfastError(f"{type(app).__name__} cannot be bound to a test database")
        app.client = app.client.with_store(JobStore(self.api))
        app._sync = self._sync_of(app)
        try:
            yield
        finally:
            left_open = app._users > 0
            app.config, app.client, app._sync, app.middleware[:] = before
            if left_open:
                app._disconnected()
        if left_open:
            raise HoldfastError("the test has opened the app and not closed it: use `async with`")

    def outage(self) -> AbstractContextManager[None]:
        """Let the database be out of reach for the length of a block."""
        return out_of_reach(self._portal, self.url)

    def close(self) -> None:
        """Give all connections back."""
        if self._sync is not None:
            self._sync[1].close()
        for database in (self.api, self.worker, self.owner):
            self.wait(database.close())
        if "handlers" in vars(self):
            self.handlers.stop()
        self._portal.stop()

    def _remote(self, role: str, size: int) -> KitDatabase:
        database = KitDatabase(self.config, self._portal, role=role, size=size)
        self._portal.run(database.open())
        return database

    def _bound_config(self, config: Config) -> Config:
        if config.schema != self.config.schema:
            raise HoldfastError(
                f"the app's schema is {config.schema!r}, and the test database was made for {self.config.schema!r}"
            )
        return dataclasses.replace(config, database_url=self.url, direct_url=None, origins=_of_testing(config))

    def _sync_of(self, app: Holdfast) -> Sync:
        """The app's blocking face, kept open from test to test as long as the app is the same."""
        if self._sync is None or self._sync[0] is not app:
            if self._sync is not None:
                self._sync[1].close()
            self._sync = app, Sync(app)
        return self._sync[1]


def _of_testing(config: Config) -> dict[str, str]:
    """Only what says that it is a test may use a schema whose time can be moved."""
    return {**config.origins, "database_url": "testing", "direct_url": "testing"}

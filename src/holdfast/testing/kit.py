"""What one pytest process has of the testing kit: the server it uses and its databases, made when they are needed."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast.app import Holdfast
from holdfast.config import Config
from holdfast.errors import HoldfastError, InvalidInput
from holdfast.lifecycle.portal import Portal
from holdfast.model.names import nearest
from holdfast.store.embedded import EmbeddedError, EmbeddedPostgres
from holdfast.store.kit_databases import SERVER_SETTINGS, create, drop
from holdfast.testing.jobs import Jobs
from holdfast.testing.sandbox import Sandbox

__all__ = ["Sandboxes", "jobs_of", "load_app", "new_database", "server"]


class Sandboxes:
    """The sandboxes of one database, one per schema in use."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._made: dict[str, Sandbox] = {}

    def of(self, app: Holdfast) -> Sandbox:
        """The sandbox for the app's schema."""
        schema = app.config.schema
        if schema not in self._made:
            self._made[schema] = Sandbox(Config.load(environment={}, database_url=self._url, schema=schema))
        return self._made[schema]

    def close(self) -> None:
        """Give all connections back."""
        for sandbox in self._made.values():
            sandbox.close()


@contextmanager
def server(url: str | None, home: Path) -> Iterator[str]:
    """The server to make databases on: the given one, or an embedded one in that folder."""
    if url is not None:
        yield Config.load(environment={}, database_url=url).database_url or url
        return
    embedded = EmbeddedPostgres(home, settings=SERVER_SETTINGS)
    try:
        yield embedded.start()
    except EmbeddedError as fault:
        raise HoldfastError(f"{fault} Or name a server to test on in HOLDFAST_TEST_DATABASE_URL.") from fault
    finally:
        embedded.release()


@contextmanager
def new_database(server_url: str) -> Iterator[str]:
    """A database of its own, for the length of a block."""
    portal = Portal("holdfast-testing-databases")
    try:
        url = portal.run(create(server_url))
        try:
            yield url
        finally:
            portal.run(drop(server_url, url))
    finally:
        portal.stop()


@contextmanager
def jobs_of(app: Holdfast, sandbox: Sandbox) -> Iterator[Jobs]:
    """The jobs of an app in an empty sandbox, for the length of a test."""
    sandbox.reset()
    with sandbox.bound(app):
        yield Jobs(app, sandbox)


def load_app(name: str, folder: Path) -> Holdfast:
    """The app that `module:name` names, with the folder on the path."""
    module_name, _, attribute = name.partition(":")
    if not module_name or not attribute:
        raise InvalidInput(f"holdfast_app must look like module:name, such as myproject.jobs:hf, not {name!r}")
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    module = importlib.import_module(module_name)
    found = getattr(module, attribute, None)
    if isinstance(found, Holdfast):
        return found
    apps = [key for key, value in vars(module).items() if isinstance(value, Holdfast)]
    near = apps[0] if apps else nearest(attribute, vars(module))
    advice = f"; did you mean {module_name}:{near}?" if near else ""
    raise InvalidInput(f"holdfast_app: {name} is not a Holdfast app{advice}")

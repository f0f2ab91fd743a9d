"""One PostgreSQL for the whole run, one migrated template per process, one fresh database per test.

The server is the embedded one, shared by all xdist workers and stopped when the last of them has gone;
`HOLDFAST_DATABASE_URL` names another one (a superuser login). Tests themselves see no `HOLDFAST_*`.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import asyncpg
import pytest

from holdfast.config import Config
from holdfast.store.embedded import EmbeddedPostgres
from holdfast.store.migrate import migrate
from holdfast.testing.databases import SERVER_SETTINGS

ConnectAs = Callable[[str], Awaitable[asyncpg.Connection]]

#: The controller chooses the folder, the xdist workers inherit it.
HOME = Path(tempfile.gettempdir()) / f"hf-tests-{os.environ.setdefault('PYTEST_SERVER', uuid4().hex[:8])}"


def pytest_sessionfinish(session: pytest.Session) -> None:
    """The controller leaves nothing behind."""
    if not hasattr(session.config, "workerinput") and HOME.exists():
        EmbeddedPostgres(HOME).stop()
        shutil.rmtree(HOME)


@pytest.fixture(scope="session", autouse=True)
def given_url() -> str | None:
    """The server that the caller of pytest chose; from then on the environment is empty of Holdfast."""
    url = os.environ.get("HOLDFAST_DATABASE_URL") or None
    for name in [name for name in os.environ if name.startswith("HOLDFAST_")]:
        del os.environ[name]
    return url


@pytest.fixture(scope="session")
def server_url(given_url: str | None) -> Iterator[str]:
    """The server's URL, with a database to connect to."""
    if given_url is not None:
        yield given_url
        return
    server = EmbeddedPostgres(HOME, settings=SERVER_SETTINGS)
    yield server.start()
    server.release()


@pytest.fixture(scope="session")
def template(server_url: str) -> Iterator[str]:
    """The name of a database that has been migrated and is copied for every test."""
    name = f"hf_template_{uuid4().hex[:12]}"
    _run(_execute(server_url, f"create database {name}"))
    _run(migrate(_config(with_database(server_url, name))))
    yield name
    _run(_execute(server_url, f"drop database {name} with (force)"))


@pytest.fixture
async def empty_database_url(server_url: str) -> AsyncIterator[str]:
    """A fresh database with nothing in it."""
    name = f"hf_test_{uuid4().hex[:12]}"
    await _execute(server_url, f"create database {name}")
    yield with_database(server_url, name)
    await _execute(server_url, f"drop database {name} with (force)")


@pytest.fixture
async def database_url(server_url: str, template: str) -> AsyncIterator[str]:
    """A fresh database with the engine in it."""
    name = f"hf_test_{uuid4().hex[:12]}"
    await _execute(server_url, f"create database {name} template {template}")
    yield with_database(server_url, name)
    await _execute(server_url, f"drop database {name} with (force)")


@pytest.fixture
def config(database_url: str) -> Config:
    """The configuration of a process that uses the test's database."""
    return _config(database_url)


@pytest.fixture
async def connect_as(database_url: str) -> AsyncIterator[ConnectAs]:
    """Connections in the role `api`, `worker` or `operator`, or as superuser: `superuser`."""
    opened: list[asyncpg.Connection] = []

    async def connect(role: str) -> asyncpg.Connection:
        settings = {"search_path": "holdfast", "jit": "off"}
        if role != "superuser":
            settings["role"] = f"holdfast_{role}"
        opened.append(await asyncpg.connect(database_url, server_settings=settings))
        return opened[-1]

    yield connect
    for conn in opened:
        with suppress(asyncpg.InterfaceError, asyncpg.PostgresError, OSError):
            await conn.close(timeout=5)


@pytest.fixture
async def conn(connect_as: ConnectAs) -> asyncpg.Connection:
    """A superuser's connection."""
    return await connect_as("superuser")


def with_database(url: str, name: str) -> str:
    """The same server, another database."""
    return urlunsplit(urlsplit(url)._replace(path=f"/{name}"))


def _config(url: str) -> Config:
    return Config.load(environment={}, database_url=url)


async def _execute(url: str, statement: str) -> None:
    conn = await asyncpg.connect(url)
    try:
        await conn.execute(statement)
    finally:
        await conn.close()


def _run(task: Coroutine[Any, Any, Any]) -> None:
    """Run in a loop of its own, apart from the one that the tests use."""
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, task).result()

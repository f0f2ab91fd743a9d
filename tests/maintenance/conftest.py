"""An open app on a fresh database; tests declare their job types on it and run a worker beside themselves."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Iterator

import pytest

from holdfast import Holdfast
from holdfast.config import Config
from holdfast.store.kit_databases import prepare
from tests.harness.databases import Databases, with_database
from tests.harness.homes import run_apart


def _testing(url: str) -> Config:
    config = Config.load(environment={}, database_url=url)
    return dataclasses.replace(config, origins={**config.origins, "database_url": "testing"})


@pytest.fixture(scope="session")
def clockwork_template(server_url: str, databases: Databases) -> Iterator[str]:
    """The name of a database whose engine time can be moved: copies take a quarter of the time."""
    name = databases.create()
    run_apart(prepare(_testing(with_database(server_url, name))))
    yield name
    databases.drop(name)


@pytest.fixture
def clockwork_config(server_url: str, databases: Databases, clockwork_template: str) -> Iterator[Config]:
    """The configuration of a process that uses such a database, of the test's own."""
    name = databases.create(clockwork_template)
    yield _testing(with_database(server_url, name))
    databases.drop(name)


@pytest.fixture
async def hf(database_url: str) -> AsyncIterator[Holdfast]:
    """An app without job types."""
    async with Holdfast(database_url) as app:
        yield app

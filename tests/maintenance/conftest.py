"""An open app on a fresh database; tests declare their job types on it and run a worker beside themselves."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator

import pytest

from holdfast import Holdfast
from holdfast.config import Config


@pytest.fixture
def clockwork_config(clocked_database_url: str) -> Config:
    """The configuration of a process that uses a database whose engine time can be moved."""
    config = Config.load(environment={}, database_url=clocked_database_url)
    return dataclasses.replace(config, origins={**config.origins, "database_url": "testing"})


@pytest.fixture
async def hf(database_url: str) -> AsyncIterator[Holdfast]:
    """An app without job types."""
    async with Holdfast(database_url) as app:
        yield app

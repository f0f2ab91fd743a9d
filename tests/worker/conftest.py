"""An open app on a fresh database; tests declare their job types on it and run a worker beside themselves."""

from __future__ import annotations

import logging
import subprocess
from collections.abc import AsyncIterator, Iterator
from types import SimpleNamespace

import asyncpg
import pytest

from holdfast import Holdfast
from holdfast.worker.processes import launch
from tests.harness import warm


@pytest.fixture
async def hf(database_url: str) -> AsyncIterator[Holdfast]:
    """An app without job types."""
    async with Holdfast(database_url) as app:
        yield app


@pytest.fixture
async def effects(conn: asyncpg.Connection) -> None:
    """A table of the app's own."""
    await conn.execute("create table public.effects (job_id uuid not null)")


@pytest.fixture
def warm_children(monkeypatch: pytest.MonkeyPatch) -> None:
    """Child processes need not import everything anew: most of what one costs, and not what most tests are about."""
    warm.ready()
    monkeypatch.setattr(launch, "subprocess", SimpleNamespace(**vars(subprocess) | {"Popen": warm.child}))


@pytest.fixture
def cold_children(warm_children: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Child processes are interpreters of their own all the same: the test is about how one starts."""
    monkeypatch.setattr(launch, "subprocess", subprocess)


@pytest.fixture
def quiet() -> Iterator[None]:
    """Log lines are short and plain: what reports a test cannot take all that handlers log."""

    def plain(record: logging.LogRecord) -> bool:
        record.msg, record.args, record.exc_info = ascii(record.getMessage()[:200]), (), None
        return True

    loggers = [logging.getLogger(name) for name in ("holdfast", "holdfast.job")]
    for logger in loggers:
        logger.addFilter(plain)
    yield
    for logger in loggers:
        logger.removeFilter(plain)

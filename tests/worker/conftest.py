"""An open app on a fresh database; tests declare their job types on it and run a worker beside themselves."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator

import asyncpg
import pytest

from holdfast import Holdfast


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

"""An open app on a fresh database; tests declare their job types on it and run a worker beside themselves."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from holdfast import Holdfast


@pytest.fixture
async def hf(database_url: str) -> AsyncIterator[Holdfast]:
    """An app without job types."""
    async with Holdfast(database_url) as app:
        yield app

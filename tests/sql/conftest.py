"""What the engine's tests share beyond a database each."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest


@pytest.fixture
async def one_at_a_time(server_url: str) -> AsyncIterator[None]:
    """No two such tests at once on the server: what one of them pins would count for the other."""
    conn = await asyncpg.connect(server_url)
    while not await conn.fetchval("select pg_try_advisory_lock(hashtext('holdfast cost tests'))"):
        await asyncio.sleep(0.1)
    yield
    await conn.close()

"""The HTTP app on the test's database, called without a network."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest

from holdfast import Holdfast
from holdfast.web.server import create_app


@pytest.fixture
async def hf(database_url: str) -> AsyncIterator[Holdfast]:
    """The app behind the server."""
    async with Holdfast(database_url) as app:
        yield app


@pytest.fixture
async def client(hf: Holdfast) -> AsyncIterator[httpx.AsyncClient]:
    """A caller."""
    async with _caller(hf) as caller:
        yield caller


@pytest.fixture
async def gatekeeper() -> AsyncIterator[httpx.AsyncClient]:
    """A caller of a server without database: whatever is refused was refused before anything else."""
    async with _caller(Holdfast("postgresql://127.0.0.1:1/nothing")) as caller:
        yield caller


def _caller(hf: Holdfast) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(create_app(hf), raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1")

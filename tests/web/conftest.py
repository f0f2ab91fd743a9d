"""The HTTP app on the test's database, called without a network."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import httpx
import pytest

from holdfast import Holdfast
from holdfast.web.loopback import meant_for_loopback
from holdfast.web.server import create_app
from tests.harness.kept import keep_validators

keep_validators()


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
async def elsewhere(database_url: str) -> AsyncIterator[httpx.AsyncClient]:
    """A caller of another server on the same database."""
    async with Holdfast(database_url) as app, _caller(app) as caller:
        yield caller


@pytest.fixture
async def gatekeeper() -> AsyncIterator[httpx.AsyncClient]:
    """A caller, let in by a guard, of a server without database: what is refused was refused before anything else."""
    async with _caller(Holdfast("postgresql://127.0.0.1:1/nothing"), guard=meant_for_loopback) as caller:
        yield caller


KeyMaker = Callable[..., Awaitable[dict[str, str]]]


@pytest.fixture
def key(hf: Holdfast) -> KeyMaker:
    """Makes keys; the header that sends one."""

    async def make(*scopes: str, tenant: str = "default", **options: Any) -> dict[str, str]:
        keys = (await hf.operations()).keys
        _, secret = await keys.create("a key", scopes=scopes, tenant=tenant, by="a test", **options)
        return {"Authorization": f"Bearer {secret}"}

    return make


def _caller(hf: Holdfast, **options: Any) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(create_app(hf, **options), raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1")

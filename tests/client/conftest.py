"""An open app on a fresh database, with a type that succeeds and one that fails."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from holdfast import Context, Fatal, Holdfast


@pytest.fixture
async def hf(database_url: str) -> AsyncIterator[Holdfast]:
    """An app with job types `greet` and `fail`."""
    async with Holdfast(database_url) as app:

        @app.job("greet", queue="mail")
        async def greet(ctx: Context, name: str, times: int = 1) -> str:
            return f"hello {name} " * times

        @app.job("fail")
        async def fail(ctx: Context) -> None:
            raise Fatal("as asked")

        yield app

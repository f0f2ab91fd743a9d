"""A real server on a real port, and workers that reach it over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from holdfast import Context, Holdfast
from holdfast.remote import RemoteWorker
from holdfast.web.server import Server, address, listen


@asynccontextmanager
async def serving(hf: Holdfast, port: int = 0) -> AsyncIterator[str]:
    """The app's server, for the length of a block."""
    server = Server(hf)
    with listen("127.0.0.1", port) as listener:
        task = asyncio.create_task(server.serve(sockets=[listener]))
        yield address(listener)
        server.stop()
        await task


@pytest.fixture
async def app(database_url: str) -> AsyncIterator[Holdfast]:
    """An app without handlers: they are in the remote worker."""
    async with Holdfast(database_url) as app:
        yield app


@pytest.fixture
async def served(app: Holdfast) -> AsyncIterator[str]:
    """The address of its server."""
    async with serving(app) as url:
        yield url


@pytest.fixture
async def maintained(database_url: str) -> AsyncIterator[None]:
    """Somebody who promotes, sweeps and carries out requests, and has no jobs to run."""
    other = Holdfast(database_url)

    @other.job("nobody asks for this")
    async def idle(ctx: Context) -> None:
        pass

    async with other:
        task = asyncio.create_task(other.run_worker(poll_interval=0.1))
        yield
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def running(worker: RemoteWorker) -> AsyncIterator[None]:
    """A worker that runs for the length of a block, and drains at its end."""
    task = asyncio.create_task(worker.run())
    try:
        yield
        worker.drain()
        await asyncio.wait_for(task, 30)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

"""A worker of an app inside the test itself, for the length of a block."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from holdfast.app import Holdfast
from holdfast.worker.worker import Worker

__all__ = ["working"]


@asynccontextmanager
async def working(app: Holdfast, **options: Any) -> AsyncIterator[Worker]:
    """Run a worker (options as of `run_worker`); at the end of the block it is drained and waited for."""
    began: asyncio.Future[Worker] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(app.run_worker(started=began.set_result, **options))
    await asyncio.wait({task, began}, return_when=asyncio.FIRST_COMPLETED)
    if not began.done():
        await task
    worker = began.result()
    try:
        yield worker
    finally:
        worker.drain()
        await task

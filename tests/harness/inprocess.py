"""A worker of an app inside the test itself, for the length of a block, and waiting for what it does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from holdfast.app import Holdfast
from holdfast.client.client import JobId
from holdfast.model.job import Job
from holdfast.worker.worker import Worker
from tests.harness.waiting import until

__all__ = ["reached", "working"]


async def reached(app: Holdfast, job_id: JobId, *states: str, seconds: float = 60.0) -> Job:
    """Wait until a job is in one of these states; the job."""

    async def there() -> Job | None:
        job = await app.get(job_id)
        return job if job.state.value in states else None

    job: Job = await until(there, seconds=seconds, what=f"the job is {' or '.join(states)}")
    return job


@asynccontextmanager
async def working(app: Holdfast, **options: Any) -> AsyncIterator[Worker]:
    """Run a worker (options as of `run_worker`); at the end of the block it is drained and waited for.

    When the block fails, handlers that still run are interrupted.
    """
    began: asyncio.Future[Worker] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(app.run_worker(started=began.set_result, **options))
    await asyncio.wait({task, began}, return_when=asyncio.FIRST_COMPLETED)
    if not began.done():
        await task
    worker = began.result()
    try:
        yield worker
    except BaseException:
        worker.drain()
        raise
    finally:
        worker.drain()
        await task

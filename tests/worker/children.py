"""What tests of handlers in processes of their own have in common."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from holdfast import Context, Holdfast, Job, JobRef
from holdfast.worker.worker import Worker
from tests.harness.waiting import until

__all__ = ["alive", "begun", "children", "limit", "opened", "run_through"]


@asynccontextmanager
async def opened(url: str, declared: Holdfast) -> AsyncIterator[Holdfast]:
    """An open app with the handlers of another one, which run in processes, and an asynchronous one."""
    async with Holdfast(url) as app:
        for job_type in declared.registry:
            app.registry.add(job_type)

        @app.job("quick")
        async def quick(ctx: Context) -> str:
            return "done"

        yield app


async def run_through(hf: Holdfast, name: str, payload: Any = None, **options: Any) -> Job:
    """A job that was run by a worker of its own."""
    job = await hf.enqueue(name, payload, **options)
    await hf.run_worker(burst=True)
    return await hf.get(job.id)


async def begun(hf: Holdfast, name: str, mark: Path, **payload: Any) -> JobRef:
    """A job whose handler has begun, and written its mark."""
    job = await hf.enqueue(name, {"mark": str(mark), **payload})
    await until(mark.exists, what="the handler begins")
    return job


def alive(pid: int) -> bool:
    """Whether it runs; one that has ended and waits to be reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def children(worker: Worker) -> set[Any]:
    """The children that a worker has."""
    return worker._execution._processes._children


def limit(hf: Holdfast, name: str, timeout: float | None, lease: float | None = None) -> None:
    """Give a job type another timeout."""
    job_type = hf.registry.get(name)
    assert job_type is not None
    hf.registry.add(dataclasses.replace(job_type, timeout_seconds=timeout, lease_seconds=lease))

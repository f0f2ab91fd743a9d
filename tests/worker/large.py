"""A worker whose handlers do nothing: `python -m tests.worker.large`. It prints by how many MiB it grew."""

from __future__ import annotations

import asyncio
import resource

from holdfast import Context, Holdfast

hf = Holdfast()


@hf.job("large")
async def large(ctx: Context, a: str) -> None:
    """Nothing."""


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


if __name__ == "__main__":
    before = _peak()
    asyncio.run(hf.run_worker(burst=True))
    print(_peak() - before)

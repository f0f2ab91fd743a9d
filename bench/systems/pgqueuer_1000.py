"""PgQueuer as in `bench.systems.pgqueuer`, but claiming 1000 jobs at a time, with which it drains fastest.

It requires room for twice the batch: 2000 handlers run at a time, where all others run 100.
"""

from __future__ import annotations

import asyncio

from bench.systems.pgqueuer import client, prepare, unfinished, work_in_batches

__all__ = ["client", "prepare", "unfinished", "work"]

_BATCH = 1000


def work(url: str, concurrency: int) -> None:  # noqa: ARG001 - see above
    """One manager, as `pgq run --batch-size 1000` has it."""
    asyncio.run(work_in_batches(url, _BATCH))

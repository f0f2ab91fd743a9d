"""An app whose handlers, in processes of their own, write in the transactions that end their jobs.

`python -m tests.faults.posting`
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from holdfast import Holdfast, RetryPolicy, SyncContext
from holdfast.telemetry.narrator import set_up_logging

SOON = RetryPolicy(base=0.05, factor=1.0, max=0.2, max_attempts=8)

hf = Holdfast()


@hf.job("post", retry=SOON, executor="process")
def post(ctx: SyncContext, mark: str, where: str) -> None:
    """Writes one line; in its first attempt, waits for ever inside its transaction or after it."""
    with ctx.transaction() as conn:
        conn.execute("insert into public.ledger (job_id, attempt) values ($1, $2)", ctx.job_id, ctx.attempt)
        if where == "inside":
            _wait(ctx, mark)
    if where == "after":
        _wait(ctx, mark)


def _wait(ctx: SyncContext, mark: str) -> None:
    if ctx.attempt == 1:
        Path(mark).touch()
        time.sleep(600)


async def _main() -> None:
    set_up_logging("json", "INFO")
    await hf.run_worker(signals=True)


if __name__ == "__main__":
    asyncio.run(_main())

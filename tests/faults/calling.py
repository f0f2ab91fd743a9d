"""The app whose handlers call a service outside, which keeps a log of its own.

The service is a folder. While the file `down` is there it fails, and with `hanging` it does not answer.
`python -m tests.faults.calling`
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from pathlib import Path

from holdfast import Circuit, Context, Holdfast, RetryPolicy
from holdfast.telemetry.narrator import set_up_logging

hf = Holdfast()
place = Path(os.environ.get("HOLDFAST_HOME", "/tmp/holdfast-service"))


class Down(Exception):
    """The service fails."""


def note(text: str) -> None:
    """Add a line to the service's log; a line is written at once, whoever writes."""
    with (place / "calls").open("a") as file:
        file.write(f"{time.time()} {os.getpid()} {text}\n")


@hf.job(
    "send",
    circuit=Circuit("mail", failure_threshold=5, open_for=2),
    retry=RetryPolicy(max_attempts=3, base=0.2, max=1),
    timeout=60,
)
async def send(ctx: Context) -> None:
    """Call the service."""
    note(f"begin {ctx.job_id}")
    while (place / "hanging").exists():
        await asyncio.sleep(0.05)
    if (place / "down").exists():
        await asyncio.sleep(0.01)
        note(f"failed {ctx.job_id}")
        raise Down
    note(f"done {ctx.job_id}")


@hf.job("flaky", retry=RetryPolicy(max_attempts=30, base=0.01, max=0.1))
async def flaky(ctx: Context, calls: int) -> None:
    """Call a busy service, one of twenty of whose calls fails."""
    for _ in range(calls):
        try:
            async with ctx.circuit("busy"):
                if random.random() < 0.05:
                    raise Down
        except Down:
            continue


async def _main() -> None:
    set_up_logging("json", "INFO")
    await hf.run_worker(signals=True)


if __name__ == "__main__":
    asyncio.run(_main())

"""An app whose handlers compute in processes of their own: `python -m tests.faults.computing`."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import time
from pathlib import Path

from holdfast import Context, Holdfast, RetryPolicy
from holdfast.telemetry.narrator import set_up_logging
from tests.harness.history import History
from tests.harness.stuck import wait_in_c

SOON = RetryPolicy(base=0.05, factor=1.0, max=0.2, max_attempts=8)

hf = Holdfast()
history = History(Path(os.environ.get("HISTORY_FOLDER", "/tmp/holdfast-history")))


@hf.job("compute", retry=SOON, executor="process")
def compute(ctx: Context, how: str, seconds: float = 0.0) -> dict[str, int]:
    """In its first attempt, does not end by itself, in one of several ways; after it, at once."""
    with history.run(ctx) as run:
        if ctx.attempt == 1:
            match how:
                case "call":
                    wait_in_c()
                case "program":
                    subprocess.run(["sleep", "600"], check=False)
                case "expression":
                    re.match(r"(a+)+$", "a" * 60 + "b")
                case _:
                    time.sleep(seconds)
        return run.returns({"attempt": ctx.attempt})


async def _main() -> None:
    set_up_logging("json", "INFO")
    await hf.run_worker(signals=True)


if __name__ == "__main__":
    asyncio.run(_main())

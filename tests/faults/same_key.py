"""One of several clients that enqueue the same intents at once: `python -m tests.faults.same_key`.

It says that it is ready, waits for a line, and notes every answer in the history.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from pathlib import Path

from holdfast import Holdfast
from tests.harness.history import History

TIMES = 50


async def main() -> None:
    history = History(Path(os.environ["HISTORY_FOLDER"]))
    async with Holdfast() as hf:

        async def one() -> None:
            ref = await hf.enqueue("pay", {"amount": 7}, idempotency_key="order-1")
            history.enqueued(ref.id, key="order-1")

        print("ready", flush=True)
        sys.stdin.readline()
        await asyncio.gather(*(one() for _ in range(TIMES)))

        keys = [f"batch-{number}" for number in range(60)]
        for _ in range(10):
            random.shuffle(keys)
            answers = await hf.enqueue_many([("pay", {"amount": 8}, {"idempotency_key": key}) for key in keys])
            for key, ref in zip(keys, answers, strict=True):
                history.enqueued(ref.id, key=key)


if __name__ == "__main__":
    asyncio.run(main())

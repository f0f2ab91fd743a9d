"""Handlers of every executor that end their worker as soon as they begin, and bystanders of theirs."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from pathlib import Path

from holdfast import Context, Holdfast
from holdfast.telemetry.narrator import set_up_logging
from tests.harness.history import History

hf = Holdfast()
history = History(Path(os.environ.get("HISTORY_FOLDER", "/tmp/holdfast-history")))


@hf.job("bystander.async")
async def bystander(ctx: Context, seconds: float = 0.0) -> None:
    """Leaves its trace at once, and stays for a while."""
    with history.run(ctx):
        if seconds:
            await asyncio.sleep(seconds)


@hf.job("bystander.thread", executor="thread")
def bystander_in_thread(ctx: Context, seconds: float = 0.0) -> None:
    """The same in a thread."""
    with history.run(ctx):
        threading.Event().wait(seconds)


@hf.job("bystander.process", executor="process")
def bystander_in_process(ctx: Context, seconds: float = 0.0) -> None:
    """The same in a process."""
    with history.run(ctx):
        threading.Event().wait(seconds)


@hf.job("bystander.held", on_failure="hold")
async def bystander_held(ctx: Context, seconds: float = 0.0) -> None:
    """Of a type whose every lost lease waits for a person."""
    with history.run(ctx):
        await asyncio.sleep(seconds)


@hf.job("poison.async")
async def poison(ctx: Context) -> None:
    """Takes its worker along."""
    with history.run(ctx):
        os.kill(os.getpid(), signal.SIGKILL)


@hf.job("poison.thread", executor="thread")
def poison_in_thread(ctx: Context) -> None:
    """The same from a thread."""
    with history.run(ctx):
        os.kill(os.getpid(), signal.SIGKILL)


@hf.job("poison.process", executor="process")
def poison_in_process(ctx: Context) -> None:
    """The same from a process."""
    with history.run(ctx):
        os.kill(os.getppid(), signal.SIGKILL)


async def _main() -> None:
    set_up_logging("json", "INFO")
    await hf.run_worker(signals=True)


if __name__ == "__main__":
    asyncio.run(_main())

"""Runs what misbehaves as in a process of ours, beside the test."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from holdfast.lifecycle import loops

__all__ = ["in_a_loop_of_ours", "possessions"]

T = TypeVar("T")


async def in_a_loop_of_ours(work: Coroutine[Any, Any, T], kind: str = "auto") -> T:
    """What a coroutine comes to that runs as in a process of ours: its loop goes on, and nobody presses Ctrl-C."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(loops.run(work, kind))
        except BaseException as fault:  # noqa: BLE001 - raised by those who wait
            future.set_exception(fault)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        return await asyncio.wrap_future(future)
    finally:
        thread.join(10)


def possessions() -> tuple[int, int]:
    """How many threads and descriptors this process has."""
    return threading.active_count(), len(os.listdir("/dev/fd"))  # noqa: PTH208 - these are numbers

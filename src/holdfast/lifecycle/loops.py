"""The event loop of processes that are ours: uvloop's where it is installed, which wakes up faster; else asyncio's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

__all__ = ["run", "run_alike"]

T = TypeVar("T")


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run the main coroutine of a process, in the fastest loop there is."""
    return _run(main, _fastest())


def run_alike(main: Coroutine[Any, Any, T], other: asyncio.AbstractEventLoop) -> T:
    """Run a coroutine in this thread, in a new loop of the kind that another thread has."""
    return _run(main, type(other))


def _run(main: Coroutine[Any, Any, T], factory: Callable[[], asyncio.AbstractEventLoop] | None) -> T:
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(main)


def _fastest() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop

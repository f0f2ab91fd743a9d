"""The event loop of processes that are ours: uvloop's where it is installed, which wakes up faster; else asyncio's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from holdfast.errors import ConfigError

__all__ = ["run", "run_alike"]

T = TypeVar("T")


def run(main: Coroutine[Any, Any, T], kind: str = "auto") -> T:
    """Run the main coroutine of a process, in a loop of asyncio, of uvloop, or (auto) the faster one there is."""
    return _run(main, None if kind == "asyncio" else _fastest(wanted=kind == "uvloop"))


def run_alike(main: Coroutine[Any, Any, T], other: asyncio.AbstractEventLoop) -> T:
    """Run a coroutine in this thread, in a new loop of the kind that another thread has."""
    return _run(main, type(other))


def _run(main: Coroutine[Any, Any, T], factory: Callable[[], asyncio.AbstractEventLoop] | None) -> T:
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(main)


def _fastest(*, wanted: bool) -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        if wanted:
            raise ConfigError("HOLDFAST_EVENT_LOOP is uvloop, which is not installed: pip install uvloop") from None
        return None
    return uvloop.new_event_loop

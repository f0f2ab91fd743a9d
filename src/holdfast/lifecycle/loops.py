"""Our event loops: uvloop if it is installed, because it wakes up faster; otherwise asyncio's.

In our loops foreign code runs beside the main coroutine: tasks and callbacks that handlers leave behind. If one of them
raised SystemExit, or stopped the loop, the whole process would end. So a loop goes on until its main coroutine has
ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from holdfast.errors import ConfigError
from holdfast.model.ctrl_c import is_ctrl_c
from holdfast.model.foreign import traceback_of

__all__ = ["run", "run_alike", "run_on"]

T = TypeVar("T")

_log = logging.getLogger("holdfast")


def run(main: Coroutine[Any, Any, T], kind: str = "auto") -> T:
    """Run the main coroutine of a process, in a loop of asyncio, of uvloop, or (auto) the fastest one available."""
    return run_on(main, None if kind == "asyncio" else _fastest(wanted=kind == "uvloop"))


def run_alike(main: Coroutine[Any, Any, T], other: asyncio.AbstractEventLoop) -> T:
    """Run a coroutine in this thread, in a new loop of the same kind as another thread's."""
    return run_on(main, type(other))


def run_on(main: Coroutine[Any, Any, T], factory: Callable[[], asyncio.AbstractEventLoop] | None = None) -> T:
    """Run a coroutine to its end in a new loop, whatever else in that loop raises."""
    with asyncio.Runner(loop_factory=factory) as runner:
        loop = runner.get_loop()
        task = loop.create_task(main)
        while True:
            try:
                runner.run(_end_of(task))
            except (SystemExit, KeyboardInterrupt, RuntimeError) as fault:
                if task.done():
                    break
                if loop.is_closed() or _runs_another() or is_ctrl_c(fault):
                    raise
                _tell(fault)
            else:
                break
        return task.result()


def _runs_another() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def _end_of(task: asyncio.Task[Any]) -> None:
    """Wait until the task has ended. As often as this is canceled, by Ctrl-C or by a handler, cancel the task."""
    canceled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            canceled = error
            task.cancel()
    if canceled is not None and task.cancelled():
        raise canceled


def _tell(fault: BaseException) -> None:
    with contextlib.suppress(Exception):
        _log.error("something tried to stop the event loop, which continues: %s", traceback_of(fault))


def _fastest(*, wanted: bool) -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        if wanted:
            raise ConfigError("HOLDFAST_EVENT_LOOP is uvloop, which is not installed: pip install uvloop") from None
        return None
    return uvloop.new_event_loop

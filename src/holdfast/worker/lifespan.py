"""An app's lifespan around a worker. If the lifespan hangs, the worker can still be told to stop.

1. One separate task enters and leaves it, as task groups and cancel scopes inside it require.
2. Entering may take any time; if the worker is told to stop meanwhile, it does not begin.
3. Leaving has a time limit, which a second request to stop shortens. Then the task is canceled, and left behind if even
   that does not end it.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from holdfast.errors import HoldfastError

__all__ = ["StoppedEarly", "inside"]

_LEAVE_SECONDS = 30.0
_CANCEL_SECONDS = 2.0

_log = logging.getLogger("holdfast")


class StoppedEarly(HoldfastError):
    """The worker was told to stop before its lifespan was entered."""

    code = "stopped-early"


@asynccontextmanager
async def inside(
    lifespan: Callable[[], AbstractAsyncContextManager[Any]] | None, stop: asyncio.Event, hurry: asyncio.Event
) -> AsyncIterator[Any]:
    """Yield the lifespan's value for the length of a block; raise StoppedEarly if `stop` comes first."""
    if lifespan is None:
        yield None
        return
    hold = _Hold(lifespan, hurry)
    resources = await hold.entered(stop)
    try:
        yield resources
    except Exception as error:
        await hold.leave(error)
        raise
    except BaseException:
        await hold.leave()
        raise
    await hold.leave()


class _Hold:
    """The task that is inside the lifespan."""

    def __init__(self, lifespan: Callable[[], AbstractAsyncContextManager[Any]], hurry: asyncio.Event) -> None:
        self._lifespan, self._hurry = lifespan, hurry
        loop = asyncio.get_running_loop()
        self._entered: asyncio.Future[Any] = loop.create_future()
        self._leave: asyncio.Future[None] = loop.create_future()
        self._ended_by: BaseException | None = None
        self._context = contextvars.copy_context()
        self._task = loop.create_task(self._hold(), name="lifespan", context=self._context)

    async def _hold(self) -> None:
        try:
            async with self._lifespan() as resources:
                self._entered.set_result(resources)
                await self._leave
        except (SystemExit, KeyboardInterrupt) as fault:
            # Raised in a task, this would end the event loop at once; it is raised where this task is waited for.
            self._ended_by = fault

    async def entered(self, stop: asyncio.Event) -> Any:
        try:
            await _first(self._task, self._entered, stop=stop)
            if self._entered.done():
                for variable, value in self._context.items():
                    variable.set(value)  # as if it had been entered here
                return self._entered.result()
            if self._ended_by is not None:
                raise self._ended_by
            if self._task.done():
                self._task.result()
            raise StoppedEarly("the worker was told to stop before its lifespan was entered")
        except BaseException:
            await self._end()
            raise

    async def leave(self, error: Exception | None = None) -> None:
        if not self._leave.done():
            self._leave.set_exception(error) if error is not None else self._leave.set_result(None)
        await _first(self._task, stop=self._hurry, seconds=_LEAVE_SECONDS)
        await self._end()
        if self._task.done() and not self._task.cancelled():
            fault = self._ended_by or self._task.exception()
            if fault is not None and fault is not error:
                raise fault

    async def _end(self) -> None:
        self._task.cancel()
        await asyncio.wait({self._task}, timeout=_CANCEL_SECONDS)
        if not self._task.done():
            _log.warning("the app's lifespan does not end, even when canceled; the worker stops without it")


async def _first(*awaited: asyncio.Future[Any], stop: asyncio.Event, seconds: float | None = None) -> None:
    """Wait for one of these, for `stop`, or for `seconds`."""
    told = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({told, *awaited}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        told.cancel()

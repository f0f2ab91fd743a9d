"""The calls of `call_next` within one attempt: none of them outlives it.

Middleware may run `call_next()` in a task of its own, and end before that task does, or before it has even begun. Such
calls are canceled and waited for before the attempt is settled: otherwise the handler would run beside the next attempt
of its job, without a timeout. A call that is made or begun later is refused.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from holdfast.errors import HoldfastError

__all__ = ["Calls"]

_ENDED = "the attempt has ended; its handler cannot be called any more"


class _Call:
    """One call, and the task in which it runs, once it has begun."""

    __slots__ = ("coroutine", "task")
    coroutine: Coroutine[Any, Any, Any]

    def __init__(self) -> None:
        self.task: asyncio.Task[Any] | None = None


class Calls:
    """All calls of one attempt that have not ended."""

    def __init__(self) -> None:
        self._open: set[_Call] = set()
        self._over = False

    def within(self, inner: Callable[[], Awaitable[Any]]) -> Callable[[], Coroutine[Any, Any, Any]]:
        """The same function, whose calls are known here."""

        def call_next() -> Coroutine[Any, Any, Any]:
            call = _Call()
            call.coroutine = self._run(call, inner)
            self._open.add(call)
            return call.coroutine

        return call_next

    async def end(self) -> str | None:
        """Refuse further calls, and cancel and await the tasks of those that were left. Returns what was wrong."""
        self._over = True
        if not self._open:
            return None
        unbegun = {call.coroutine for call in self._open if call.task is None}
        left = {call.task for call in self._open if call.task is not None and call.task is not asyncio.current_task()}
        if unbegun:
            left |= {task for task in asyncio.all_tasks() if task.get_coro() in unbegun}
        await _ended(left)
        if left:
            return "middleware ended while the handler was running; it was canceled"
        return "middleware called `call_next()` without awaiting it: the handler did not run" if unbegun else None

    async def _run(self, call: _Call, inner: Callable[[], Awaitable[Any]]) -> Any:
        if self._over:
            raise HoldfastError(_ENDED)
        call.task = asyncio.current_task()
        try:
            return await inner()
        finally:
            self._open.discard(call)


async def _ended(tasks: set[asyncio.Task[Any]]) -> None:
    """Cancel these tasks and wait for their end, however often the current task is canceled: a handler runs there."""
    for task in tasks:
        task.cancel()
    while left := {task for task in tasks if not task.done()}:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait(left)
    for task in tasks:
        if not task.cancelled():
            task.exception()

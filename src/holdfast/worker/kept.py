"""Keeps the worker's own tasks running when somebody else cancels them.

A handler may cancel every task of its event loop (`for task in asyncio.all_tasks(): …`), or a task that it found there.
Attempts that are canceled so have failed, like any handler that raises. The worker's own tasks go on: without them,
nothing would be settled any more, and jobs in threads would be lost although nothing was wrong with them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

__all__ = ["Kept"]

T = TypeVar("T")

#: How long a canceled task waits before it goes on: whoever cancels in a loop must not keep the processor busy.
_PAUSE_SECONDS = 0.02
#: How often the log says so.
_TELL_SECONDS = 1.0


class Kept:
    """Tasks that go on until they return, or until `over` is set. `tell` is called with the names of those canceled."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._loop = asyncio.get_running_loop()
        #: From now on, a cancellation is the worker's own.
        self.over = False
        self._names = set[str]()
        self._may_tell_at = 0.0

    def start(self, name: str, run: Callable[[], Coroutine[Any, Any, T]]) -> asyncio.Task[T]:
        """Run this in a task; start it again, in the same task, as often as somebody else cancels it."""
        return asyncio.create_task(self.going_on(name, run), name=name)

    async def going_on(self, name: str, run: Callable[[], Awaitable[T]]) -> T:
        """Run this in the current task, in the same way."""
        while True:
            try:
                return await run()
            except asyncio.CancelledError:
                if self.over:
                    raise
                self._forget_it(name)
            try:
                await asyncio.sleep(_PAUSE_SECONDS)
            except asyncio.CancelledError:
                if self.over:
                    raise
                self._forget_it(name)

    def _forget_it(self, name: str) -> None:
        """Let the current task not count as canceled, and tell."""
        task = asyncio.current_task()
        while task is not None and task.cancelling():
            task.uncancel()
        if not self._names:
            now = self._loop.time()
            self._may_tell_at = max(now, self._may_tell_at)
            self._loop.call_at(self._may_tell_at, self._say)
        self._names.add(name)

    def _say(self) -> None:
        names, self._names = self._names, set()
        self._may_tell_at = self._loop.time() + _TELL_SECONDS
        self._tell(", ".join(sorted(names)))

"""The tasks that attempts run in.

A task is started for an attempt, and another one right behind it for the next, in case the handler waits for
something. A handler that never waits is over before that second task has begun, so the first one goes on with
the next attempt: a thousand such handlers cost a task or two and not a thousand. Only they share one: a task
whose handler has waited, was cancelled, or has left a context variable changed, is not used again. A handler that
has left behind something that cancels its task later hits another one: that one is run again, in a task of its own.
"""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections import deque
from collections.abc import Awaitable, Callable
from uuid import UUID

from holdfast.worker.held import Held

__all__ = ["Runners"]

#: How long a task may go on without letting others have the event loop.
_TURN_SECONDS = 0.005
_MOST_APART = 1000


class Runners:
    """Runs attempts as soon as the event loop comes to it, in the order given."""

    def __init__(self, attempt: Callable[[Held], Awaitable[None]]) -> None:
        self._attempt = attempt
        self._given: deque[Held] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._coming = False
        self._context = contextvars.copy_context()
        #: Counts how often the event loop came round, as long as attempts run.
        self._rounds = 0
        self._counting = False
        #: Jobs that are to have a task of their own the next time.
        self._apart: dict[UUID, None] = {}

    def start(self, held: Held) -> None:
        """Run this attempt."""
        self._given.append(held)
        if not self._coming:
            self._another()

    def keep_apart(self, held: Held) -> None:
        """Give this job a task of its own when it comes again."""
        self._apart[held.claim.job_id] = None
        if len(self._apart) > _MOST_APART:
            del self._apart[next(iter(self._apart))]

    def _another(self) -> None:
        self._coming = True
        task = asyncio.create_task(self._run(), context=self._context.copy())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self) -> None:
        self._coming = False
        task, until = asyncio.current_task(), time.monotonic() + _TURN_SECONDS
        shared = False
        while self._given:
            if shared and self._given[0].claim.job_id in self._apart:
                return  # another task is on its way
            held = self._given.popleft()
            held.shares_task, shared = shared, True
            if self._apart:
                self._apart.pop(held.claim.job_id, None)
            if self._given and not self._coming:
                self._another()
            held.task = task
            if not self._counting:
                self._counting = True
                asyncio.get_running_loop().call_soon(self._count)
            began_in = self._rounds
            try:
                await self._attempt(held)
            finally:
                if self._given and not self._coming:
                    self._another()
            if (
                self._rounds != began_in
                or time.monotonic() > until
                or task is None
                or task.cancelling()
                or not self._is_clean()
            ):
                return

    def _count(self) -> None:
        self._counting = False
        self._rounds += 1

    def _is_clean(self) -> bool:
        """Whether the handlers of this task have left its context as it was; quick if nothing was ever set."""
        try:
            return contextvars.copy_context() == self._context
        except BaseException:  # noqa: BLE001 - foreign values are compared, if any was set
            return False

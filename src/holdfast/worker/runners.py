"""The tasks in which attempts run.

When a task starts an attempt, another task is created for the next one, in case the handler waits for something. A
handler that never waits ends before that second task has begun, so the first task goes on with the next attempt: a
thousand such handlers need one or two tasks, not a thousand. Only such handlers share a task. A task whose handler has
waited, was canceled, or has left a context variable changed is not used again. If a handler left behind something that
later cancels its task, another attempt is hit: that one is run again, in a task of its own.
"""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections import deque
from collections.abc import Awaitable, Callable
from uuid import UUID

from holdfast.worker.claimed import Claimed
from holdfast.worker.owners import own_task

__all__ = ["Runners"]

#: How long a task may go on without yielding to the event loop.
_TURN_SECONDS = 0.005
_MOST_APART = 1000


class Runners:
    """Runs attempts in the order given, as soon as the event loop gets to them."""

    def __init__(self, attempt: Callable[[Claimed], Awaitable[None]]) -> None:
        self._attempt = attempt
        # Asking for the running loop is a system call each time.
        self._loop = asyncio.get_running_loop()
        self._given: deque[Claimed] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        #: A task that has not begun, and whether there is one.
        self._next: asyncio.Task[None] | None = None
        self._coming = False
        self._context = contextvars.copy_context()
        #: Counts the iterations of the event loop while attempts run.
        self._rounds = 0
        self._counting = False
        #: Jobs that get a task of their own the next time.
        self._apart: dict[UUID, None] = {}

    def start(self, claimed: Claimed) -> None:
        """Run this attempt."""
        self._given.append(claimed)
        if not self._coming:
            self._another()

    def keep_apart(self, claimed: Claimed) -> None:
        """Give this job a task of its own the next time."""
        self._apart[claimed.claim.job_id] = None
        if len(self._apart) > _MOST_APART:
            del self._apart[next(iter(self._apart))]

    def _another(self) -> None:
        self._coming = True
        task = self._loop.create_task(self._run(), context=self._context.copy())
        self._tasks.add(task)
        task.add_done_callback(self._gone)
        self._next = task

    def _gone(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if self._coming and task is self._next:  # somebody canceled it before it had begun
            self._coming = False
            if self._given:
                self._another()

    async def _run(self) -> None:
        self._coming = False
        task, until = asyncio.current_task(self._loop), time.monotonic() + _TURN_SECONDS
        owner, shared = own_task(), False
        clean = contextvars.copy_context()
        while self._given:
            if shared and self._given[0].claim.job_id in self._apart:
                return  # another task is on its way
            claimed = self._given.popleft()
            claimed.shares_task, shared = shared, True
            if self._apart:
                self._apart.pop(claimed.claim.job_id, None)
            if self._given and not self._coming:
                self._another()
            claimed.task = task
            if not self._counting:
                self._counting = True
                self._loop.call_soon(self._count)
            began_in = self._rounds
            owner.begins(claimed)
            try:
                await self._attempt(claimed)
            finally:
                owner.ended()
                if self._given and not self._coming:
                    self._another()
            if (
                self._rounds != began_in
                or time.monotonic() > until
                or task is None
                or task.cancelling()
                or not _is_clean(clean)
            ):
                return

    def _count(self) -> None:
        self._counting = False
        self._rounds += 1


def _is_clean(clean: contextvars.Context) -> bool:
    """Whether the handlers of this task have left its context unchanged; fast if nothing was ever set."""
    try:
        return contextvars.copy_context() == clean
    except BaseException:  # noqa: BLE001 - foreign values are compared, if any was set
        return False

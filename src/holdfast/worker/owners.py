"""Finds the attempt to which a task of the event loop belongs.

A task inherits the context of the code that starts it. So each task that runs attempts has an owner in its context, and
so have the worker's own tasks. Tasks that a handler starts, and perhaps leaves behind, can be traced to it. A task
without an owner is foreign: a lifespan started it, or a handler started it in a separate context.
"""

from __future__ import annotations

import asyncio
import contextvars
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from holdfast.worker.claimed import Claimed

__all__ = ["Owner", "in_handler", "own_task", "owned_by_worker", "owner_of"]


class Owner:
    """The attempt that a task runs; None after the attempt has ended, and for the worker's own tasks."""

    __slots__ = ("attempt", "shared")

    def __init__(self) -> None:
        self.attempt: Claimed | None = None
        #: The task has run other attempts before, whose tasks may still exist.
        self.shared = False

    def begins(self, attempt: Claimed) -> None:
        """Set the attempt that the task now runs."""
        self.attempt = attempt

    def ended(self) -> None:
        """Note that the attempt has ended; tasks that its handler left behind must not keep it in memory."""
        self.attempt, self.shared = None, True


_owner: ContextVar[Owner | None] = ContextVar("holdfast_task_owner", default=None)


def own_task() -> Owner:
    """Give the current task, and all tasks that it starts, a new owner."""
    owner = Owner()
    _owner.set(owner)
    return owner


@contextmanager
def owned_by_worker() -> Iterator[None]:
    """Mark tasks that are started within the block as the worker's own."""
    before = _owner.set(Owner())
    try:
        yield
    finally:
        _owner.reset(before)


def in_handler() -> bool:
    """Whether this code is called by a handler or middleware of a worker in this process, or by tasks of theirs."""
    owner = _owner.get()
    return owner is not None and owner.attempt is not None


def owner_of(task: asyncio.Task[Any]) -> Owner | None:
    """The owner of a task, None for a foreign one. May be called in any thread."""
    # Python 3.11 has no `Task.get_context`.
    contexts = (part for part in gc.get_referents(task) if isinstance(part, contextvars.Context))
    return next((context.get(_owner) for context in contexts), None)

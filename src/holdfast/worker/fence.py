"""Keeps an async handler from going on after its lease.

A process that was frozen, or whose event loop was blocked, finds everything due at once: the handler's own timers and
answers as well as the worker's look at its leases, in any order. So the handler of a job with a target is asked each
time before it goes on: when its lease is over by our own clock, it is cancelled right there. Tasks that it has started
itself are not; they learn of it as they always do, from the handler that is cancelled.
"""

from __future__ import annotations

import asyncio
import types
from collections.abc import Awaitable, Generator
from typing import Any

from holdfast.lifecycle.elapsed import elapsed
from holdfast.worker.held import Held

__all__ = ["fenced"]


@types.coroutine
def fenced(held: Held, handler: Awaitable[Any]) -> Generator[Any, None, Any]:
    """Await a handler; CancelledError is raised in it where it would go on after its lease, once."""
    steps: Any = handler.__await__()
    try:
        waits_for = next(steps)
        while True:
            try:
                yield waits_for
            except BaseException as fault:  # noqa: BLE001 - handed on to the handler
                waits_for = steps.throw(fault)
                continue
            if _may_go_on(held):
                waits_for = next(steps)
            else:
                held.lapsed()
                waits_for = steps.throw(asyncio.CancelledError("the lease is over"))
    except StopIteration as end:
        return end.value


def _may_go_on(held: Held) -> bool:
    """A handler that was told to stop cleans up; one whose transaction ends the job is fenced by the database."""
    return held.lease_end >= elapsed() or held.stopped or held.ending or held.completed

"""Prevents an async handler from going on after its lease is over.

A process that was frozen, or whose event loop was blocked, finds everything due at once, in any order: the handler's
own timers and answers as well as the worker's look at its leases. So before each step of a handler whose job has a
target, the lease is checked by our own clock; if it is over, the handler is canceled at that point. Tasks that the
handler started are not checked. As with any cancellation, the canceled handler has to end them.
"""

from __future__ import annotations

import asyncio
import types
from collections.abc import Awaitable, Generator
from typing import Any

from holdfast.lifecycle.elapsed import elapsed
from holdfast.worker.claimed import Claimed

__all__ = ["fenced"]


@types.coroutine
def fenced(claimed: Claimed, handler: Awaitable[Any]) -> Generator[Any, None, Any]:
    """Await a handler; once, raise CancelledError in it instead of a step after the end of its lease."""
    steps: Any = handler.__await__()
    try:
        waits_for = next(steps)
        while True:
            try:
                yield waits_for
            except BaseException as fault:  # noqa: BLE001 - handed on to the handler
                waits_for = steps.throw(fault)
                continue
            if _may_go_on(claimed):
                waits_for = next(steps)
            else:
                claimed.lapsed()
                waits_for = steps.throw(asyncio.CancelledError("the lease is over"))
    except StopIteration as end:
        return end.value


def _may_go_on(claimed: Claimed) -> bool:
    """Whether a handler may go on. One that was told to stop cleans up; the database fences one that is ending."""
    return claimed.lease_end >= elapsed() or claimed.stopped or claimed.ending or claimed.completed

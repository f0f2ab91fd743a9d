"""Hooks around handlers and around enqueueing, for concerns of many job types.

Middleware is given to the app (`Holdfast(middleware=[...])`); the first one is outermost. `run` wraps every handler of
this process, whatever its executor. It runs in the worker's event loop, and is timed like the handler itself. `enqueue`
wraps every recording of jobs, and may be called without an event loop (blocking code with `conn=`): there it must not
await anything but `call_next`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from holdfast.client.job_ref import JobRef
from holdfast.client.new_job import NewJob, Record
from holdfast.worker.context import Context

__all__ = ["Middleware"]


class Middleware:
    """Code around every enqueue and every handler. Override either method, or both."""

    async def enqueue(self, jobs: list[NewJob], call_next: Record) -> list[JobRef]:
        """Change the jobs, refuse them by raising, or look at the answers. `call_next(jobs)` records them."""
        return await call_next(jobs)

    async def run(self, ctx: Context, call_next: Callable[[], Awaitable[Any]]) -> Any:  # noqa: ARG002 - for others
        """Set something up, look at the result or the error, or raise another one. `call_next()` runs the handler."""
        return await call_next()

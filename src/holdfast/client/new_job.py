"""A job on its way in, and what may stand around its recording."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from holdfast.client.job_ref import JobRef

__all__ = ["EnqueueMiddleware", "NewJob", "Record"]


@dataclass(slots=True)
class NewJob:
    """A job that is to be recorded and is not checked yet. Middleware may change its type, payload and options."""

    type: str
    payload: Any = None
    options: dict[str, Any] = field(default_factory=dict)


#: Records jobs and answers in their order.
Record = Callable[[list[NewJob]], Awaitable[list[JobRef]]]


class EnqueueMiddleware(Protocol):
    """Stands around the recording of jobs."""

    async def enqueue(self, jobs: list[NewJob], call_next: Record) -> list[JobRef]:
        """Change the jobs, refuse them by raising, or look at the answers; `call_next(jobs)` goes on."""
        ...

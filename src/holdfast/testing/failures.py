"""Failures to come: what shall happen to the next runs of a job type.

None of them is pretended. A handler that shall raise or take too long is replaced for that run, and the worker's own
execution makes of it what it makes of any; a worker that shall crash claims the job and never says how it went; a
lease that shall be lost is swept under the running handler.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections import deque
from dataclasses import dataclass
from typing import Any, Literal

from holdfast.definitions.job_type import JobType

__all__ = ["Failure", "Failures", "raising", "stalling"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """What shall happen to one run; with `after`, the handler does its work first."""

    kind: Literal["raise", "time out", "crash", "lose lease"]
    error: BaseException | None = None
    after: bool = False


class Failures:
    """By job type, what shall happen to its next runs, in this order."""

    def __init__(self) -> None:
        self._planned: dict[str, deque[Failure]] = {}

    def plan(self, job_type: str, failure: Failure, times: int) -> None:
        """Let it happen that often."""
        self._planned.setdefault(job_type, deque()).extend([failure] * times)

    def take(self, job_type: str) -> Failure | None:
        """What shall happen to the run that begins now."""
        planned = self._planned.get(job_type)
        return planned.popleft() if planned else None


def raising(job_type: JobType, error: BaseException) -> JobType:
    """The same job type with a handler that raises."""

    async def handler(_ctx: Any, **_payload: Any) -> None:
        raise error

    return dataclasses.replace(job_type, handler=handler, executor="async")


def stalling(job_type: JobType) -> JobType:
    """The same job type with a handler that never ends."""

    async def handler(_ctx: Any, **_payload: Any) -> None:
        await asyncio.Event().wait()

    return dataclasses.replace(job_type, handler=handler, executor="async")

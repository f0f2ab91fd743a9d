"""One deadline for all database calls of a request. Reading the caller's body does not count."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from typing import TypeVar

from holdfast.web.problems import Problem

__all__ = ["Deadline"]

T = TypeVar("T")
REQUEST_SECONDS = 5.0


class Deadline:
    """The time that one request has left."""

    def __init__(self) -> None:
        self._end = time.monotonic() + REQUEST_SECONDS

    @property
    def seconds(self) -> float:
        """How much is left."""
        return max(0.001, self._end - time.monotonic())

    async def holds(self, work: Awaitable[T]) -> T:
        """Await something that records nothing: its result, or a problem when the time is over."""
        try:
            async with asyncio.timeout(self.seconds):
                return await work
        except TimeoutError:
            raise Problem(503, "unavailable", "The database did not answer in time: nothing was recorded.") from None

    async def waits(self, work: Awaitable[T]) -> T:
        """Await something that depends on the caller: the time does not count."""
        began = time.monotonic()
        try:
            return await work
        finally:
            self._end += time.monotonic() - began

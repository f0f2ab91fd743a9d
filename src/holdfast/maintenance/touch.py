"""For how long this process has been in touch with the database, without a break.

An answer that took very long is a break, too: a database that stands still, or a process that did, answers
no renewal either, so the time counts against no lease.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable
from typing import TypeVar

__all__ = ["Touch"]

T = TypeVar("T")
_SILENCE_SECONDS = 3.0


class Touch:
    """The time since the last break."""

    def __init__(self) -> None:
        self._since = time.monotonic()

    @property
    def seconds(self) -> float:
        """How long there was no break."""
        return time.monotonic() - self._since

    def lost(self) -> None:
        """A break: patience starts anew."""
        self._since = time.monotonic()

    async def felt(self, answer: Awaitable[T]) -> T:
        """Await an answer of the database, and notice how long it took."""
        asked_at = time.monotonic()
        value = await answer
        if time.monotonic() - asked_at > _SILENCE_SECONDS:
            self.lost()
        return value

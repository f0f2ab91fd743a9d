"""For how long this process has been in touch with the database, and whether that was a good time.

A lost connection is a break: patience with every lease starts anew. An answer that took very long is less: a
database that stood still, or a process that did, answered no renewal either, so nobody is swept for twice
that time. A worker that lives renews well before half of its lease is over, so leases too long to be renewed
in that time did not suffer, and a slow database cannot keep them from being swept for ever.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable
from typing import TypeVar

__all__ = ["Touch"]

T = TypeVar("T")
_SILENCE_SECONDS = 3.0
_FRESH_SECONDS = 0.25
_RECOVERY_SECONDS = 5.0


class Touch:
    """The time since the last break."""

    def __init__(self) -> None:
        self._since = self._quiet_until = time.monotonic()
        self._answered_at = float("-inf")

    @property
    def good(self) -> bool:
        """Whether answers have come in time for long enough to judge others by."""
        return time.monotonic() >= self._quiet_until

    @property
    def seconds(self) -> float:
        """How long there was no break."""
        return time.monotonic() - self._since

    @property
    def fresh(self) -> bool:
        """Whether the database has answered just now, so that what it stood still for is noticed already."""
        return time.monotonic() - self._answered_at < _FRESH_SECONDS

    def lost(self) -> None:
        """A break: patience starts anew."""
        self._since = time.monotonic()
        self._answered_at = float("-inf")

    async def felt(self, answer: Awaitable[T]) -> T:
        """Await an answer of the database, and notice how long it took."""
        asked_at = time.monotonic()
        value = await answer
        self._answered_at = time.monotonic()
        silence = self._answered_at - asked_at
        if silence > _SILENCE_SECONDS:
            self._quiet_until = time.monotonic() + 2 * silence + _RECOVERY_SECONDS
        return value

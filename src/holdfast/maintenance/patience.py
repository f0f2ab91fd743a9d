"""For how long the database has been in touch, so that who did not renew a lease in that time may be called gone.

The leader's renewals are the probes. What counts is whether they were answered in time all along: a connection that
was cut and replaced at once is no break, and neither is a slow duty, because probes never wait for one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Protocol

__all__ = ["Judge", "Patience"]

#: A silence longer than this is a break.
_SILENCE_SECONDS = 3.0
_FRESH_SECONDS = 0.25


class Judge(Protocol):
    """Says which leases may be judged."""

    @property
    def seconds(self) -> float:
        """How long there was no break."""
        ...

    async def fresh(self) -> None:
        """Wait until the database has answered just now, so that what it stood still for is noticed already."""
        ...


class Patience:
    """The time since the last break, as the leader's probes tell."""

    def __init__(self, probe_soon: Callable[[], None]) -> None:
        self._probe_soon = probe_soon
        self._since = time.monotonic()
        self._answered_at: float | None = None
        self._answer = asyncio.Event()

    @property
    def seconds(self) -> float:
        """How long there was no break."""
        now = time.monotonic()
        if self._answered_at is None or now - self._answered_at > _SILENCE_SECONDS:
            return 0.0
        return now - self._since

    def answered(self) -> None:
        """A probe was answered."""
        now = time.monotonic()
        if self._answered_at is None or now - self._answered_at > _SILENCE_SECONDS:
            self._since = now
        self._answered_at = now
        self._answer.set()

    async def fresh(self) -> None:
        """Wait for an answer of the last moment."""
        while self._answered_at is None or time.monotonic() - self._answered_at > _FRESH_SECONDS:
            self._answer.clear()
            self._probe_soon()
            await self._answer.wait()

"""Engine time in a test database: it can be stopped, moved on, and let flow again.

All that the engine decides by time follows: when jobs are due, backoff, ageing, leases, retention. Python's clock,
timeouts of handlers and the clocks of other databases are not touched.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from functools import partial

from holdfast.errors import InvalidInput
from holdfast.testing.sandbox import Sandbox

__all__ = ["Clock"]


class Clock:
    """The time of one test database. Every verb answers what time it is then."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox, self._kit = sandbox, sandbox.kit

    def now(self) -> datetime:
        """What time it is for the engine."""
        return self._set()

    def freeze(self, at: datetime | None = None) -> datetime:
        """Stop time, now or at a given moment."""
        if at is not None and at.tzinfo is None:
            raise InvalidInput("the time needs a time zone, such as datetime(2030, 1, 1, tzinfo=UTC)")
        return self._set(partial(self._kit.freeze, at))

    def advance(self, by: float | timedelta) -> datetime:
        """Move time on by seconds or a timedelta, whether it stands or flows."""
        seconds = by.total_seconds() if isinstance(by, timedelta) else float(by)
        if seconds < 0:
            raise InvalidInput("time can only be moved forward; `freeze(at=...)` sets it to any moment")
        return self._set(partial(self._kit.advance, seconds))

    def unfreeze(self) -> datetime:
        """Let time flow again, from where it stands."""
        return self._set(self._kit.unfreeze)

    def _set(self, change: Callable[[], Awaitable[None]] | None = None) -> datetime:
        async def changed() -> datetime:
            if change is not None:
                await change()
            return await self._kit.now()

        return self._sandbox.wait(changed())

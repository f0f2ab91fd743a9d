"""The limits of API keys: requests per second. They are counted per server process."""

from __future__ import annotations

import time
from uuid import UUID

from holdfast.model.key import Caller
from holdfast.web.problems import Problem

__all__ = ["KeyLimits"]


class _Bucket:
    """A bucket for one second of requests. It fills at the allowed rate."""

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self._most = max(1.0, rate)
        self._left, self._at = self._most, time.monotonic()

    def take(self) -> float:
        """Take one; returns how many seconds to wait if there is none."""
        now = time.monotonic()
        self._left = min(self._most, self._left + (now - self._at) * self.rate)
        self._at = now
        if self._left >= 1:
            self._left -= 1
            return 0.0
        return (1 - self._left) / self.rate


class KeyLimits:
    """The buckets of all keys that have a limit."""

    def __init__(self) -> None:
        self._buckets: dict[UUID, _Bucket] = {}

    def count(self, caller: Caller) -> None:
        """Count one more request; a problem if that is too many."""
        if caller.key_id is None or caller.requests_per_second is None:
            return
        bucket = self._buckets.get(caller.key_id)
        if bucket is None or bucket.rate != caller.requests_per_second:
            bucket = self._buckets[caller.key_id] = _Bucket(caller.requests_per_second)
        missing = bucket.take()
        if missing > 0:
            raise Problem(
                429,
                "rate-limit",
                f"This key may make {caller.requests_per_second:g} requests per second.",
                headers={"Retry-After": str(max(1, round(missing + 0.5)))},
            )

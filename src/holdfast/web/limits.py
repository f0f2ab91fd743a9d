"""The limits of API keys: requests per second. They are counted per server process.

What is sent with a token does not count for the key that issued it: otherwise a page's visitor could use up the key's
requests. Each token has a rate of its own.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from uuid import UUID

from holdfast.model.key import Caller, EventsToken
from holdfast.web.problems import Problem

__all__ = ["KeyLimits"]

#: A browser comes back once a second if its stream ends at once, and opens six at a time.
_TOKEN_RATE, _REMEMBERED = 8.0, 10_000


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
    """The buckets of all keys that have a limit, and of the tokens that were used lately."""

    def __init__(self) -> None:
        self._buckets: dict[UUID, _Bucket] = {}
        self._tokens: OrderedDict[EventsToken, _Bucket] = OrderedDict()

    def count(self, caller: Caller) -> None:
        """Count one more request; a problem if that is too many."""
        if caller.token is not None:
            _take(self._bucket_of(caller.token), "token")
            return
        if caller.key_id is None or caller.requests_per_second is None:
            return
        bucket = self._buckets.get(caller.key_id)
        if bucket is None or bucket.rate != caller.requests_per_second:
            bucket = self._buckets[caller.key_id] = _Bucket(caller.requests_per_second)
        _take(bucket, "key")

    def _bucket_of(self, token: EventsToken) -> _Bucket:
        """A token that has not been used for a second has a full one: whichever was not used for longest is dropped."""
        bucket = self._tokens.get(token)
        if bucket is None:
            bucket = self._tokens[token] = _Bucket(_TOKEN_RATE)
            if len(self._tokens) > _REMEMBERED:
                self._tokens.popitem(last=False)
        self._tokens.move_to_end(token)
        return bucket


def _take(bucket: _Bucket, whose: str) -> None:
    missing = bucket.take()
    if missing > 0:
        raise Problem(
            429,
            "rate-limit",
            f"This {whose} may make {bucket.rate:g} requests per second.",
            headers={"Retry-After": str(max(1, round(missing + 0.5)))}
            | ({"Connection": "close"} if whose == "token" else {}),
        )

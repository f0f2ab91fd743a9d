"""Room for what callers send: bounded in bytes, in all and per tenant, from the first byte until it is recorded.

1. A request takes room for its whole body before that is read, and waits if there is none. So nobody holds a part and
   waits for the rest. A body whose size is not announced takes room for the largest.
2. A tenant has an eighth. The parsed body is many times larger, so what is large is parsed, and recorded, in turns: one
   per tenant, two at a time (`holdfast.client.turns`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator

from holdfast.client.turns import Turns
from holdfast.web.problems import Problem

__all__ = ["Rooms"]

_ALL, _OF_ONE = 32 * 1024 * 1024, 4 * 1024 * 1024
_PATIENCE_SECONDS = 3.0


class Rooms:
    """One app's."""

    def __init__(self) -> None:
        self._held: Counter[str] = Counter()
        self._waiting: dict[asyncio.Future[None], tuple[str, int]] = {}
        self.turns = Turns("too many large requests are under way; try again")

    @contextlib.asynccontextmanager
    async def room(self, tenant: str, size: int) -> AsyncIterator[None]:
        """Room for so many bytes; a problem if none gets free in time."""
        if self._fits(tenant, size):
            self._held[tenant] += size
        else:
            await self._wait(tenant, size)
        try:
            yield
        finally:
            self._give_back(tenant, size)

    def _fits(self, tenant: str, size: int) -> bool:
        return self._held[tenant] + size <= _OF_ONE and self._held.total() + size <= _ALL

    async def _wait(self, tenant: str, size: int) -> None:
        given: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[given] = tenant, size
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                await given
        except BaseException as fault:
            if self._waiting.pop(given, None) is None:  # it was given in that very moment
                self._give_back(tenant, size)
            if isinstance(fault, TimeoutError):
                detail = "Too much is being sent at once."
                raise Problem(503, "unavailable", detail, headers={"Retry-After": "1", "Connection": "close"}) from None
            raise

    def _give_back(self, tenant: str, size: int) -> None:
        self._held[tenant] -= size
        if not self._held[tenant]:
            del self._held[tenant]
        for given, (who, wanted) in list(self._waiting.items()):
            if self._fits(who, wanted):
                del self._waiting[given]
                self._held[who] += wanted
                given.set_result(None)

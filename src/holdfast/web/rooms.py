"""Room for request bodies: bounded in bytes, in total and per tenant, from the first byte until it is recorded.

1. A request takes room for its whole body before the body is read, and waits if there is none. So no request has a part
   of its room and waits for the rest. A body without an announced size takes room for the largest one.
2. A tenant has an eighth. A parsed body is many times larger, so large bodies are parsed and recorded in turns: one per
   tenant, two at a time (`holdfast.client.turns`).
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
        """Room for this number of bytes; a problem if there is none in time."""
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
                detail = "Too many large bodies are being sent at once."
                raise Problem(503, "unavailable", detail, headers={"Retry-After": "1", "Connection": "close"}) from None
            raise

    def _give_back(self, tenant: str, size: int) -> None:
        self._held[tenant] -= size
        if not self._held[tenant]:
            del self._held[tenant]
        for given, (who, wanted) in list(self._waiting.items()):
            if not given.done() and self._fits(who, wanted):  # done: given up in this very moment
                del self._waiting[given]
                self._held[who] += wanted
                given.set_result(None)

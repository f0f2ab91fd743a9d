"""A share of the connections for what may take seconds, so that the rest is there for what must not wait."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from holdfast.errors import DatabaseBusy

__all__ = ["Turns"]

_SEARCH_SECONDS = 15.0
#: How many search or count at a time, and how long others wait for their turn.
_SEARCHING, _TURN_SECONDS = 2, 3.0


class Turns:
    """The few places of those who search."""

    def __init__(self) -> None:
        self._places = asyncio.Semaphore(_SEARCHING)

    @contextlib.asynccontextmanager
    async def one(self) -> AsyncIterator[None]:
        """One of the places; DatabaseBusy if none gets free, or it takes too long."""
        try:
            async with asyncio.timeout(_TURN_SECONDS):
                await self._places.acquire()
        except TimeoutError:
            raise DatabaseBusy("others search already; repeat the request") from None
        try:
            async with asyncio.timeout(_SEARCH_SECONDS):
                yield
        except TimeoutError:
            raise DatabaseBusy("the search took too long; ask for less") from None
        finally:
            self._places.release()

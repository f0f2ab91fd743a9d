"""A share of the connections for what may take seconds, so that the rest is there for what must not wait.

1. A tenant has one place, however much it asks for; those who see all tenants have two.
2. One place is never a tenant's: operators are let in whatever tenants do.
3. Those who see all go first; among tenants, the one that had a place longest ago.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from holdfast.errors import DatabaseBusy

__all__ = ["Turns"]

#: How long a search may take; the server ends its statement, too (`holdfast.app`).
_SEARCH_SECONDS = 8.0
#: How long others wait for their turn.
_TURN_SECONDS = 3.0
_PLACES, _PLACES_OF_TENANTS = 3, 2
_OPERATORS_SHARE, _TENANTS_SHARE = 2, 1


@dataclass(slots=True, eq=False)
class _Waiter:
    tenant: str | None
    place: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class Turns:
    """The few places of those who search, of those who list, or of those who send much."""

    def __init__(self, busy: str = "too many searches are running; try again") -> None:
        self._busy = busy
        self._taken: Counter[str | None] = Counter()
        self._waiting: list[_Waiter] = []
        self._served: dict[str | None, int] = {}
        self._turn = itertools.count()

    @contextlib.asynccontextmanager
    async def one(self, tenant: str | None) -> AsyncIterator[None]:
        """One of the places, for a tenant or (None) for all; DatabaseBusy if none gets free, or it takes too long."""
        async with self.place(tenant):
            try:
                async with asyncio.timeout(_SEARCH_SECONDS):
                    yield
            except TimeoutError:
                raise DatabaseBusy("the search took too long; ask for less") from None

    @contextlib.asynccontextmanager
    async def place(self, tenant: str | None) -> AsyncIterator[None]:
        """The same for what has a limit of its own to the time that it takes."""
        await self._take(tenant)
        try:
            yield
        finally:
            self._taken[tenant] -= 1
            self._hand_out()

    async def _take(self, tenant: str | None) -> None:
        waiter = _Waiter(tenant)
        self._waiting.append(waiter)
        self._hand_out()
        try:
            async with asyncio.timeout(_TURN_SECONDS):
                await waiter.place
        except TimeoutError:
            self._give_up(waiter)
            raise DatabaseBusy(self._busy) from None
        except asyncio.CancelledError:
            self._give_up(waiter)
            raise

    def _give_up(self, waiter: _Waiter) -> None:
        if waiter in self._waiting:
            self._waiting.remove(waiter)
        else:  # a place was handed out in that very moment
            self._taken[waiter.tenant] -= 1
            self._hand_out()

    def _hand_out(self) -> None:
        while fitting := [waiter for waiter in self._waiting if self._has_place(waiter.tenant)]:
            first = min(fitting, key=lambda one: (one.tenant is not None, self._served.get(one.tenant, -1)))
            self._waiting.remove(first)
            self._taken[first.tenant] += 1
            self._served[first.tenant] = next(self._turn)
            if not first.place.done():
                first.place.set_result(None)
        self._taken += Counter()  # forgets who has none
        if not self._waiting:
            self._served = {tenant: turn for tenant, turn in self._served.items() if tenant in self._taken}

    def _has_place(self, tenant: str | None) -> bool:
        total = self._taken.total()
        if tenant is None:
            return total < _PLACES and self._taken[None] < _OPERATORS_SHARE
        tenants = total - self._taken[None]
        return total < _PLACES and tenants < _PLACES_OF_TENANTS and self._taken[tenant] < _TENANTS_SHARE

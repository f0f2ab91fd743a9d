"""Circuit breakers as operators see and set them: list, look, close, open by hand.

Circuits belong to the installation. `tenant` names one that is per tenant; without it, the one that all tenants share.
"""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

from holdfast.bounds import BOUNDS, delay_of, shown
from holdfast.errors import InvalidInput, NotFound
from holdfast.model.circuit import CircuitState
from holdfast.model.pages import checked_limit
from holdfast.store.circuits import CircuitDesk
from holdfast.store.database import Database

__all__ = ["CircuitBreakers"]


class CircuitBreakers:
    """The verbs, over a database in the role `operator`."""

    def __init__(self, database: Database) -> None:
        self._desk = CircuitDesk(database)

    async def list(
        self, *, tenant: str | None = None, after: tuple[str, str | None] | None = None, limit: int = 50
    ) -> list[CircuitState]:
        """Circuits by name and tenant, after the given ones; with a tenant, only those of its own."""
        checked_limit(limit)
        place = None if after is None else (after[0], after[1] or "")
        return await self._desk.list(tenant=tenant, name=None, after=place, limit=limit)

    async def get(self, name: str, *, tenant: str | None = None) -> CircuitState:
        """One circuit; NotFound if it was never used."""
        for found in await self._desk.list(tenant=tenant or "", name=name, after=None, limit=1):
            return found
        raise _unknown(name, tenant)

    async def reset(
        self, name: str, *, by: str, reason: str | None = None, tenant: str | None = None, by_key: UUID | None = None
    ) -> CircuitState:
        """Close a circuit and reset its counts. One that does not exist is created."""
        await self._desk.reset(name, tenant or "", by=by, reason=reason, by_key=by_key)
        return await self.get(name, tenant=tenant)

    async def open(
        self,
        name: str,
        *,
        by: str,
        seconds: timedelta | float | None = None,
        reason: str | None = None,
        tenant: str | None = None,
        by_key: UUID | None = None,
    ) -> CircuitState:
        """Open a circuit by hand, for this long, or until somebody resets it. One that does not exist is created."""
        length = None if seconds is None else delay_of(seconds, "circuit_forced")
        if seconds is not None and (length is None or not BOUNDS["circuit_forced"].holds(_plain(seconds))):
            raise InvalidInput(f"seconds must be {BOUNDS['circuit_forced']}, not {shown(seconds)}")
        await self._desk.open(name, tenant or "", seconds=length, by=by, reason=reason, by_key=by_key)
        return await self.get(name, tenant=tenant)


def _plain(length: timedelta | float) -> float:
    return length.total_seconds() if isinstance(length, timedelta) else length


def _unknown(name: str, tenant: str | None) -> NotFound:
    whose = "" if tenant is None else f" of the tenant {tenant!r}"
    return NotFound(f"there is no circuit {name!r}{whose}: none of its calls was ever made, and nobody opened it")

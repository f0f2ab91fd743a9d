"""The connections of known callers, by tenant: how many each has, and which one it can spare."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

__all__ = ["TenantPlaces"]

T = TypeVar("T")


class _Tenant(Generic[T]):
    """The connections of one tenant; the idle and the unread ones in the order in which they came to be that."""

    __slots__ = ("count", "idle", "unread")

    def __init__(self) -> None:
        self.count = 0
        self.idle: OrderedDict[T, None] = OrderedDict()
        self.unread: OrderedDict[T, None] = OrderedDict()


class TenantPlaces(Generic[T]):
    """Every operation takes the same time, however many there are."""

    def __init__(self) -> None:
        self._tenants: dict[str, _Tenant[T]] = {}
        self._whose: dict[T, str] = {}

    def __len__(self) -> int:
        return len(self._whose)

    def __contains__(self, connection: T) -> bool:
        return connection in self._whose

    def tenant_of(self, connection: T) -> str | None:
        """Whose it is; None if nobody's."""
        return self._whose.get(connection)

    def count(self, tenant: str) -> int:
        """How many a tenant has."""
        return self._tenants[tenant].count if tenant in self._tenants else 0

    def spare(self, tenant: str) -> T | None:
        """The connection that a tenant can spare: the one that has been idle longest, or unread."""
        whose = self._tenants[tenant]
        return next((next(iter(kind)) for kind in (whose.idle, whose.unread) if kind), None)

    def join(self, connection: T, tenant: str) -> None:
        """A caller of the tenant was let in on it, whoever it was before."""
        self.leave(connection)
        self._whose[connection] = tenant
        self._tenants.setdefault(tenant, _Tenant()).count += 1

    def leave(self, connection: T) -> None:
        """It has ended, or its caller is unknown."""
        tenant = self._whose.pop(connection, None)
        if tenant is not None:
            whose = self._tenants[tenant]
            whose.count -= 1
            whose.idle.pop(connection, None)
            whose.unread.pop(connection, None)
            if not whose.count:
                del self._tenants[tenant]

    def begin(self, connection: T) -> None:
        """A request is under way."""
        if (whose := self._of(connection)) is not None:
            whose.idle.pop(connection, None)

    def end(self, connection: T) -> None:
        """It was answered."""
        if (whose := self._of(connection)) is not None:
            whose.idle[connection] = None

    def stall(self, connection: T) -> None:
        """Its client does not read."""
        if (whose := self._of(connection)) is not None:
            whose.unread[connection] = None

    def go_on(self, connection: T) -> None:
        """It reads again."""
        if (whose := self._of(connection)) is not None:
            whose.unread.pop(connection, None)

    def _of(self, connection: T) -> _Tenant[T] | None:
        return self._tenants.get(self._whose.get(connection, ""))

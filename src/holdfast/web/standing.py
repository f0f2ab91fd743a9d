"""What the connection of a request is told about its caller, where our own server has it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, cast

from starlette.types import Scope

if TYPE_CHECKING:
    from holdfast.web.impatient import Impatient
    from holdfast.web.places import Places

__all__ = ["Standing", "standing_of"]

_STATE = "standing"
_PROBE_SECONDS = 0.5


class Standing:
    """Whether a stranger or a caller is at the other end."""

    __slots__ = ("_connection", "_places", "_probed_at", "gone")

    def __init__(self, places: Places, connection: Impatient) -> None:
        self._places, self._connection = places, connection
        self._probed_at = float("-inf")
        #: Whether the connection has ended.
        self.gone = False

    def attach(self, scope: Scope) -> None:
        """A request of this connection begins."""
        scope.setdefault("state", {})[_STATE] = self

    def may_probe(self) -> bool:
        """Whether a probe is answered at once: the first one is, and one from time to time."""
        now = time.monotonic()
        if now < self._probed_at + _PROBE_SECONDS:
            return False
        self._probed_at = now
        return True

    def apply(self) -> None:
        """The request has what may be a key."""
        self._places.apply(self._connection)

    def know(self, tenant: str) -> bool:
        """A caller of this tenant was let in; whether the tenant has a place for its connection."""
        return self._places.know(self._connection, tenant)

    async def drained(self) -> None:
        """Wait until earlier answers on this connection were read, or it has ended."""
        await self._connection.flow.drain()

    def doubt(self) -> None:
        """Its key, or the lack of one, makes nobody a caller."""
        self._places.doubt(self._connection)

    def cut(self) -> bool:
        """End the connection in the middle of an answer that cannot be completed; whether that could be done."""
        self._connection.transport.abort()
        return True


class _Nowhere:
    """In place of a connection that is not ours, in an application that mounts the routes."""

    gone = False

    def may_probe(self) -> bool:
        return False

    def apply(self) -> None: ...

    def know(self, tenant: str) -> bool:  # noqa: ARG002 - as the other one has it
        return True

    async def drained(self) -> None: ...

    def doubt(self) -> None: ...

    def cut(self) -> bool:
        return False


_NOWHERE = _Nowhere()


def standing_of(scope: Scope) -> Standing:
    """The standing of a request's connection."""
    return cast("Standing", scope.get("state", {}).get(_STATE, _NOWHERE))

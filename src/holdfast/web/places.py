"""Places for connections: fewer than the process has descriptors, so that the database can always be reached.

1. There are 5,000 places, or 256 fewer than descriptors if that is less, but at least half as many as descriptors. A
   connection with a request under way takes 30 to 40 KB, so that more would not fit into the server's memory.
2. A connection is a stranger's until a caller is let in on it. Strangers have 1,024 of the places together, so that all
   that they can cost is bounded: memory, and how long they are in line. One more closes another one (see
   holdfast.web.throng), even if a request is under way on it.
3. Strangers whose request has something that looks like a key have 256 places of their own while it is looked up, which
   takes milliseconds: nobody can push them out meanwhile. If all are taken, because the database is slow, the next one
   keeps its stranger's place.
4. If all places are taken, a stranger's connection is closed for a new one; if there is none, the connection that has
   been idle longest, and then the one whose client has not read its answer for longest.
5. If requests of known callers are under way on all of them, a new connection is answered with 503 and closed.
6. A tenant has half of the places. One connection more closes the one of its own that has been idle, or unread, for
   longest; if there is none, it is answered with 503 and closed.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from holdfast.web.tenant_places import TenantPlaces
from holdfast.web.throng import Throng

if TYPE_CHECKING:
    from holdfast.web.impatient import Impatient

try:
    import resource as posix
except ModuleNotFoundError:  # Windows
    posix = None  # type: ignore[assignment]

__all__ = ["Places", "backlog", "most_connections", "raise_descriptors"]

#: None on systems without such limits.
resource: Any = posix
_MOST = 5_000
_MOST_STRANGERS, _MOST_APPLICANTS = 1024, 256
_SHARES = 2  # a tenant has one of them
#: Descriptors for the database, for files, and for connections that were accepted but have no place yet.
_RESERVE = 256
_BACKLOG = 1024
_TOLD_EVERY_SECONDS = 60.0
_log = logging.getLogger("holdfast.web")


def raise_descriptors() -> None:
    """Raise the limit of descriptors as far as allowed: the usual one, 1024, is for programs that use select."""
    if resource is None:
        return
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):  # macOS has a lower limit of its own: then it stays as it is
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def most_connections() -> int:
    """How many connections there are places for."""
    descriptors = _descriptors()
    return min(_MOST, max(descriptors - _RESERVE, descriptors // 2))


def backlog() -> int:
    """How many connections may wait to be accepted. The loop accepts all before the first one gets its place."""
    return min(_BACKLOG, (_descriptors() - most_connections()) // 4)


def _descriptors() -> int:
    if resource is None:
        return 2 * _MOST
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 2 * _MOST if soft == resource.RLIM_INFINITY else soft


class Places:
    """All connections of the process."""

    def __init__(self) -> None:
        self.most = _MOST
        self._taken: dict[Impatient, str] = {}  # with their addresses
        self._callers = TenantPlaces["Impatient"]()
        self._strangers = Throng["Impatient"](_MOST_STRANGERS)
        self._applicants = Throng["Impatient"](_MOST_APPLICANTS)
        #: Each in the order in which they came to be that.
        self._idle_callers: OrderedDict[Impatient, None] = OrderedDict()
        self._unread: OrderedDict[Impatient, None] = OrderedDict()
        self._told_at: dict[str, float] = {}

    def take(self, connection: Impatient, address: str = "") -> bool:
        """A new connection; another one may be closed for it. Returns whether there is a place."""
        if len(self._taken) >= self.most:
            oldest = self._strangers.first() or self._applicants.first() or _first(self._idle_callers, self._unread)
            if oldest is not None:
                self._close(oldest)
            self._tell(
                "all %s connections are in use: those without a key, idle ones, and ones that nobody reads from are "
                "closed for new ones",
                self.most,
            )
        self._taken[connection] = address
        self._join(self._strangers, connection)
        return not self.crowded

    @property
    def crowded(self) -> bool:
        """Whether there are more connections than places."""
        return len(self._taken) > self.most

    def is_callers(self, connection: Impatient) -> bool:
        """Whether a caller was let in on it."""
        return connection in self._callers

    def begin(self, connection: Impatient) -> None:
        """A request is under way."""
        self._idle_callers.pop(connection, None)
        self._callers.begin(connection)
        self.stir(connection)

    def stir(self, connection: Impatient) -> None:
        """Something has happened on it: others give way before it."""
        for throng in (self._strangers, self._applicants):
            if connection in throng:
                throng.put(connection, self._taken[connection])

    def apply(self, connection: Impatient) -> None:
        """The request under way has what may be a key."""
        if len(self._applicants) < self._applicants.most and self._strangers.leave(connection):
            self._join(self._applicants, connection)

    def know(self, connection: Impatient, tenant: str) -> bool:
        """A caller of this tenant was let in: it is no longer a stranger, if the tenant has a place for it."""
        if connection not in self._taken or self._callers.tenant_of(connection) == tenant:
            return True
        if self._callers.count(tenant) >= self.most // _SHARES:
            spare = self._callers.spare(tenant)
            if spare is None:
                self._tell(
                    "a tenant has %s connections with requests under way: more of them are refused",
                    self.most // _SHARES,
                )
                return False
            self._close(spare)
        self._callers.join(connection, tenant)
        self._strangers.leave(connection)
        self._applicants.leave(connection)
        return True

    def doubt(self, connection: Impatient) -> None:
        """What was taken for the key of a caller is none: it is a stranger again."""
        if connection in self._taken and connection not in self._strangers:
            self._callers.leave(connection)
            self._applicants.leave(connection)
            self._join(self._strangers, connection)

    def end(self, connection: Impatient) -> None:
        """It was answered, and no other one is under way."""
        if connection in self._callers:
            self._idle_callers[connection] = None
            self._callers.end(connection)
        else:
            self.doubt(connection)

    def stall(self, connection: Impatient) -> None:
        """Its client does not read the answer."""
        if connection in self._taken:
            self._unread[connection] = None
            self._callers.stall(connection)

    def go_on(self, connection: Impatient) -> None:
        """It reads."""
        self._unread.pop(connection, None)
        self._callers.go_on(connection)

    def leave(self, connection: Impatient) -> None:
        """The connection ends."""
        self._taken.pop(connection, None)
        self._callers.leave(connection)
        self._strangers.leave(connection)
        self._applicants.leave(connection)
        self._idle_callers.pop(connection, None)
        self._unread.pop(connection, None)

    def _join(self, throng: Throng[Impatient], connection: Impatient) -> None:
        throng.put(connection, self._taken[connection])
        if len(throng) > throng.most and (oldest := throng.first()) is not None:
            self._close(oldest)
            self._tell("%s connections without a key are open: older ones of them are closed for new ones", throng.most)

    def _close(self, connection: Impatient) -> None:
        self.leave(connection)
        connection.give_way()

    def _tell(self, text: str, number: int) -> None:
        now = time.monotonic()
        if now - self._told_at.get(text, float("-inf")) >= _TOLD_EVERY_SECONDS:
            self._told_at[text] = now
            _log.warning(text, number)


def _first(*kinds: OrderedDict[Impatient, None]) -> Impatient | None:
    return next((next(iter(kind)) for kind in kinds if kind), None)

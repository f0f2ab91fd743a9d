"""Places for connections: fewer than the process has descriptors, so that the database can always be reached.

1. There are 10,000 places, or 256 fewer than descriptors if that is less, but at least half as many as descriptors.
2. If all places are taken, a stranger's connection is closed for a new one: one on which no caller was ever let in.
   First an idle one, then one with requests under way; the oldest of its kind first. So a caller without a key cannot
   keep others out, even by sending requests without end.
3. If there is no stranger, the connection that has been idle longest is closed, and then the one whose client has not
   read its answer for longest.
4. If requests of known callers are under way on all of them, a new connection is answered with 503 and closed.
"""

from __future__ import annotations

import contextlib
import logging
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.web.impatient import Impatient

try:
    import resource as posix
except ModuleNotFoundError:  # Windows
    posix = None  # type: ignore[assignment]

__all__ = ["Places", "backlog", "most_connections", "raise_descriptors"]

#: None on systems without such limits.
resource: Any = posix
_MOST = 10_000
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
        self._taken: set[Impatient] = set()
        self._callers: set[Impatient] = set()
        #: Each in the order in which they came to be that.
        self._idle_strangers: dict[Impatient, None] = {}
        self._busy_strangers: dict[Impatient, None] = {}
        self._idle_callers: dict[Impatient, None] = {}
        self._unread: dict[Impatient, None] = {}
        self._told_at = -_TOLD_EVERY_SECONDS

    def take(self, connection: Impatient) -> bool:
        """A new connection; another one may be closed for it. Returns whether there is a place."""
        self._taken.add(connection)
        if len(self._taken) > self.most:
            kinds = (self._idle_strangers, self._busy_strangers, self._idle_callers, self._unread)
            oldest = next((next(iter(kind)) for kind in kinds if kind), None)
            if oldest is not None:
                self.leave(oldest)
                oldest.give_way()
            self._tell()
        self._idle_strangers[connection] = None
        return not self.crowded

    @property
    def crowded(self) -> bool:
        """Whether there are more connections than places."""
        return len(self._taken) > self.most

    def begin(self, connection: Impatient) -> None:
        """A request is under way."""
        self._idle_callers.pop(connection, None)
        if self._idle_strangers.pop(connection, self) is None:
            self._busy_strangers[connection] = None

    def know(self, connection: Impatient) -> None:
        """Its caller was let in: it is no longer a stranger."""
        if connection in self._taken:
            self._callers.add(connection)
            self._busy_strangers.pop(connection, None)

    def end(self, connection: Impatient) -> None:
        """It was answered, and no other one is under way."""
        if connection in self._taken:
            self._busy_strangers.pop(connection, None)
            idle = self._idle_callers if connection in self._callers else self._idle_strangers
            idle[connection] = None

    def stall(self, connection: Impatient) -> None:
        """Its client does not read the answer."""
        if connection in self._taken:
            self._unread[connection] = None

    def go_on(self, connection: Impatient) -> None:
        """It reads."""
        self._unread.pop(connection, None)

    def leave(self, connection: Impatient) -> None:
        """The connection ends."""
        self._taken.discard(connection)
        self._callers.discard(connection)
        for kind in (self._idle_strangers, self._busy_strangers, self._idle_callers, self._unread):
            kind.pop(connection, None)

    def _tell(self) -> None:
        now = time.monotonic()
        if now - self._told_at >= _TOLD_EVERY_SECONDS:
            self._told_at = now
            _log.warning(
                "all %s connections are in use: those without a key, idle ones, and ones that nobody reads from are "
                "closed for new ones",
                self.most,
            )

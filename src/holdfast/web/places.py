"""Places for connections: fewer than the process may have descriptors, so that the database can always be reached.

1. There are 10,000 places, or 256 fewer than descriptors where that is less, but at least half as many.
2. Where all places are taken, the connection gives way that has waited longest for a request: it has not sent one
   yet, or the last one was answered. Where there is none, that one does whose client has not read its answer for
   longest. Whoever opens connections without a key cannot keep others out like that.
3. Where requests are under way on all of them, whoever comes next is answered with 503, and gives way at once.
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

#: None where there are no such limits.
resource: Any = posix
_MOST = 10_000
#: Descriptors for the database, for files, and for connections that were accepted but have no place yet.
_RESERVE = 256
_BACKLOG = 1024
_TOLD_EVERY_SECONDS = 60.0
_log = logging.getLogger("holdfast.web")


def raise_descriptors() -> None:
    """Let this process have as many descriptors as it may: the usual limit, 1024, is for programs that use select."""
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
    """How many connections may wait to be accepted. A loop accepts them all before the first one gets its place."""
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
        self._idle: dict[Impatient, None] = {}  # in the order in which they began to wait
        self._unread: dict[Impatient, None] = {}  # as well
        self._told_at = -_TOLD_EVERY_SECONDS

    def take(self, connection: Impatient) -> bool:
        """A new connection; another one may have to give way. Whether there is a place."""
        self._taken.add(connection)
        self._idle[connection] = None
        if len(self._taken) <= self.most:
            return True
        oldest = next(iter(self._idle))
        if oldest is connection:
            oldest = next(iter(self._unread), connection)
        if oldest is not connection:
            self.leave(oldest)
            oldest.give_way()
        self._tell()
        return not self.crowded

    @property
    def crowded(self) -> bool:
        """Whether there are more connections than places."""
        return len(self._taken) > self.most

    def begin(self, connection: Impatient) -> None:
        """A request is under way."""
        self._idle.pop(connection, None)

    def end(self, connection: Impatient) -> None:
        """It was answered, and no other one is under way."""
        if connection in self._taken:
            self._idle[connection] = None

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
        self._idle.pop(connection, None)
        self._unread.pop(connection, None)

    def _tell(self) -> None:
        now = time.monotonic()
        if now - self._told_at >= _TOLD_EVERY_SECONDS:
            self._told_at = now
            _log.warning(
                "all %s places for connections are taken: those without a request, or that nobody reads from, give way",
                self.most,
            )

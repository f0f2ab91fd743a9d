"""Whether the standbys for which a commit waited have confirmed it.

If a commit waits for a synchronous standby and somebody ends the wait (`pg_cancel_backend`), PostgreSQL sends a warning
and then success: the transaction is committed here, but a failover may lose it. A client that reads only the success
would acknowledge it. The warning is recognized by the server function that sends it, because its text is translated.
"""

from __future__ import annotations

from typing import Any

import asyncpg
import asyncpg.pool

from holdfast.errors import DatabaseUnavailable

__all__ = ["Confirmation", "unconfirmed"]

#: A connection, or one that a pool has lent.
Lent = asyncpg.Connection | asyncpg.pool.PoolConnectionProxy

_SENDER = "SyncRepWaitForLSN"


class Confirmation:
    """Listens on connections for commits whose wait for a standby was ended.

    The driver calls it before it returns the answer that follows the warning.
    """

    def __init__(self) -> None:
        self._missing: set[Any] = set()

    def listen(self, conn: Lent) -> None:
        """From now on, notice commits on this connection."""
        conn.add_log_listener(self._heard)

    def leave(self, conn: Lent) -> None:
        """Stop listening."""
        conn.remove_log_listener(self._heard)
        self._missing.discard(conn)

    def missing(self, conn: Lent) -> bool:
        """Whether a commit on this connection was not confirmed since the last call."""
        if conn not in self._missing:
            return False
        self._missing.discard(conn)
        return True

    def _heard(self, conn: Any, message: Any) -> None:
        if getattr(message, "server_source_function", None) == _SENDER:
            self._missing.add(conn)


def unconfirmed() -> DatabaseUnavailable:
    """The error for such a commit. A repeat finds what was committed, and waits for the standbys again."""
    return DatabaseUnavailable(
        "the commit did not wait for a synchronous standby to the end, because somebody canceled it: it is not known "
        "whether a failover would keep it",
        reason="uncertain",
    )

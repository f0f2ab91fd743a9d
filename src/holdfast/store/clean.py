"""A connection that is handed from one handler to the next, of any tenant, as if it were new.

1. The server forgets what the session has set, prepared, locked and made (`discard all`), and then takes on the role
   that the login begins with.
2. The driver forgets the statements that the server has forgotten.
3. What a handler has told the driver (codecs, query loggers, termination listeners) cannot be taken back for certain.
   Such a connection is `changed`, and is to be ended.

That costs about as much as what the driver does by itself between two users of a connection, where a new connection
costs twenty times as much (2 ms and 46 ms per transaction, on a busy machine).

What the server itself cannot forget stays: a setting of one's own (`set app.tenant`) is empty then, not missing.
"""

from __future__ import annotations

from typing import Any

from holdfast.store.known_types import Connection

__all__ = ["CleanConnection"]


class CleanConnection(Connection):
    """What a pool lends, and cleans when it comes back."""

    #: Whether its driver is not as it was.
    changed = False

    def get_reset_query(self) -> str:
        """What the server is told between two users."""
        return "discard all"

    async def reset(self, *, timeout: float | None = None) -> None:
        """Forget its last user. A connection on which this fails is ended by the pool."""
        await super().reset(timeout=timeout)
        # Apart from the other, which must not be part of a transaction.
        await self.execute("reset role", timeout=timeout)
        self._drop_local_statement_cache()  # type: ignore[attr-defined]

    def set_type_codec(self, *arguments: Any, **options: Any) -> Any:
        """As of the driver."""
        self.changed = True
        return super().set_type_codec(*arguments, **options)

    def reset_type_codec(self, *arguments: Any, **options: Any) -> Any:
        """As of the driver."""
        self.changed = True
        return super().reset_type_codec(*arguments, **options)

    def set_builtin_type_codec(self, *arguments: Any, **options: Any) -> Any:
        """As of the driver."""
        self.changed = True
        return super().set_builtin_type_codec(*arguments, **options)

    def add_query_logger(self, *arguments: Any, **options: Any) -> Any:
        """As of the driver."""
        self.changed = True
        return super().add_query_logger(*arguments, **options)

    def add_termination_listener(self, *arguments: Any, **options: Any) -> Any:
        """As of the driver."""
        self.changed = True
        return super().add_termination_listener(*arguments, **options)

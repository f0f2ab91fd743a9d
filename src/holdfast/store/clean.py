"""A connection that is passed from one handler to the next, of any tenant, as if it were new.

1. The server forgets everything that the session has set, prepared, locked and created (`discard all`), and then
   assumes the role with which the login begins.
2. The driver forgets the statements that the server has forgotten.
3. Changes that a handler made in the driver (codecs, query loggers, termination listeners) cannot be reliably undone.
   Such a connection is `changed`, and must be ended.

That costs about as much as what the driver does by itself between two users of a connection. A new connection costs
twenty times as much (2 ms and 46 ms per transaction, on a busy machine).

The server itself cannot forget a custom setting (`set app.tenant`): it is empty afterwards, not missing.
"""

from __future__ import annotations

from typing import Any

from holdfast.store.known_types import Connection

__all__ = ["CleanConnection"]


class CleanConnection(Connection):
    """A connection that a pool lends, and cleans when it comes back."""

    #: Whether a user has changed its driver.
    changed = False

    def get_reset_query(self) -> str:
        """The statement that the server gets between two users."""
        return "discard all"

    async def reset(self, *, timeout: float | None = None) -> None:
        """Forget its last user. A connection on which this fails is ended by the pool."""
        await super().reset(timeout=timeout)
        # A separate statement, because `discard all` must not be part of a transaction.
        await self.execute("reset role", timeout=timeout)
        self._drop_local_statement_cache()  # type: ignore[attr-defined]

    def set_type_codec(self, *arguments: Any, **options: Any) -> Any:
        """As in the driver."""
        self.changed = True
        return super().set_type_codec(*arguments, **options)

    def reset_type_codec(self, *arguments: Any, **options: Any) -> Any:
        """As in the driver."""
        self.changed = True
        return super().reset_type_codec(*arguments, **options)

    def set_builtin_type_codec(self, *arguments: Any, **options: Any) -> Any:
        """As in the driver."""
        self.changed = True
        return super().set_builtin_type_codec(*arguments, **options)

    def add_query_logger(self, *arguments: Any, **options: Any) -> Any:
        """As in the driver."""
        self.changed = True
        return super().add_query_logger(*arguments, **options)

    def add_termination_listener(self, *arguments: Any, **options: Any) -> Any:
        """As in the driver."""
        self.changed = True
        return super().add_termination_listener(*arguments, **options)

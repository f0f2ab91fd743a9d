"""A connection that looks up PostgreSQL's own types once per process, and not once per connection.

asyncpg knows `uuid` and `integer`, but looks up their arrays in the catalog when a connection first meets one: 10 ms of
the server's processor for the first and 6 ms for each further one, more than the statement itself takes. Type ids below
16384 are PostgreSQL's own, and mean the same in every database of every server. So what one connection has learned
about them serves all others. Types that belong to a database are looked up as before.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import asyncpg

__all__ = ["Connection"]

_FIRST_OF_A_DATABASE = 16384
#: asyncpg prepares its statement again if the lookup has replaced it. Here nothing was looked up.
_NOT_ASKED = SimpleNamespace(name="not asked")

#: PostgreSQL's answer for each set of its own types.
_learned: dict[frozenset[int], Any] = {}


class Connection(asyncpg.Connection):
    """asyncpg's connection, with a memory that all connections share."""

    async def _introspect_types(self, typeoids: Any, *arguments: Any) -> Any:
        """Override: asyncpg calls it for types that this connection has not met."""
        key = frozenset(typeoids)
        if key in _learned:
            return _learned[key], _NOT_ASKED
        rows, statement = await super()._introspect_types(typeoids, *arguments)  # type: ignore[misc]
        if all(number < _FIRST_OF_A_DATABASE for number in key):
            _learned[key] = rows
        return rows, statement

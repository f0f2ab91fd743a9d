"""Statements on a connection that belongs to the caller, inside the caller's own transaction.

These statements take effect if and only if that transaction commits. Rules:

1. The engine's functions and the named statements are the same; only the sender differs.
2. A connection that is not in a transaction is refused: its statements would commit by themselves, unnoticed.
3. Blocking connections are used in the calling thread and never wait in the event loop's sense, so the coroutines here
   can be run without a loop (`holdfast.lifecycle.portal.immediately`).
4. Faults of the input and of the schema become Holdfast's errors. All others stay the driver's, because the caller's
   own code knows what to do about a deadlock or a lost connection.
"""

from __future__ import annotations

import re
from typing import Any
from uuid import UUID

from holdfast.errors import InvalidInput
from holdfast.store.disk import DiskWatch
from holdfast.store.faults import told_by_sqlstate
from holdfast.store.lenders import lender_of
from holdfast.store.statements import queries

__all__ = ["Foreign", "is_blocking"]

_SHARED = (
    "the connection given as conn= is used by another task at this moment: a connection does one thing at a time, so "
    "await one call before the next, or give each task a connection of its own"
)
#: asyncio connections on which one of our statements is under way, by identity.
_in_use: set[int] = set()

_IDS = {"id", "job_id", "request_id", "parent_id", "retry_of"}


class Foreign:
    """Runs named statements on a caller's connection or session."""

    #: Others may wait for this transaction, so nothing that a worker needs is locked.
    inside_transaction = True

    def __init__(self, conn: Any, schema: str, disk: DiskWatch) -> None:
        self.schema, self.disk = schema, disk
        self._conn, self._lender = conn, lender_of(conn)

    async def rows(self, statement: str, *arguments: Any) -> list[dict[str, Any]]:
        """The rows of a named statement."""
        if self.disk.is_due(statement):
            (found,) = await self._rows("forgets_unasked", False)
            self.disk.judge(found["forgets"])
        return await self._rows(statement, *arguments)

    async def _rows(self, statement: str, *arguments: Any) -> list[dict[str, Any]]:
        sent = [self._plain(argument) for argument in arguments]
        used = id(self._conn)
        if used in _in_use:
            raise InvalidInput(_SHARED)
        if not self._lender.blocking:
            _in_use.add(used)
        try:
            rows = await self._lender.rows(self._conn, _Text(self.schema, statement), sent)
        except Exception as fault:
            if not self._lender.blocking and "another operation" in str(fault):
                raise InvalidInput(_SHARED) from fault
            told = told_by_sqlstate(fault)
            if told is None:
                raise
            raise told from fault
        finally:
            _in_use.discard(used)
        return [{name: _identified(name, value) for name, value in row.items()} for row in rows]

    def _plain(self, argument: Any) -> Any:
        """Send ids as text, except with asyncpg: not every other driver can send a UUID, but all can send text."""
        if type(self._conn).__module__.startswith("asyncpg"):
            return argument
        if isinstance(argument, UUID):
            return str(argument)
        if isinstance(argument, list):
            return [str(item) if isinstance(item, UUID) else item for item in argument]
        return argument


def is_blocking(conn: Any) -> bool:
    """Whether a connection blocks the thread that uses it; an asyncio connection must be awaited."""
    return lender_of(conn).blocking


class _Text:
    """A named statement. With `%s`, each parameter occurs once and in order, as in all our statements."""

    def __init__(self, schema: str, statement: str) -> None:
        self.dollar = queries(schema)[statement]
        self.percent = re.sub(r"\$\d+", "%s", self.dollar.replace("%", "%%"))


def _identified(name: str, value: Any) -> Any:
    return UUID(value) if name in _IDS and isinstance(value, str) else value

"""Statements on a connection that belongs to the caller, inside the caller's own transaction.

What is done this way happens if and only if that transaction commits. Rules:

1. The engine's functions are the same, and so are the named statements; only who sends them differs.
2. A connection that is not in a transaction is refused: what follows would commit by itself, unnoticed.
3. Blocking connections are used in the calling thread and never wait in the event loop's sense, so that the
   coroutines here can be run without a loop (`holdfast.lifecycle.portal.immediately`).
4. Faults of the input and of the schema become Holdfast's errors. All others stay the driver's, because the
   caller's own code knows what to do about a deadlock or a lost connection.

None of these packages is imported here: a connection brings its own.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from holdfast.errors import InvalidInput
from holdfast.store.faults import told_by_sqlstate
from holdfast.store.statements import queries

__all__ = ["Foreign", "is_blocking"]

Rows = list[dict[str, Any]]

_IDS = {"id", "job_id", "request_id", "parent_id", "retry_of"}
_NO_TRANSACTION = "the connection is not in a transaction, so nothing would hold the two together: {advice}"


class Foreign:
    """Runs named statements on a caller's connection or session."""

    #: Others may wait for what this transaction does, so nothing that a worker needs is locked.
    inside_transaction = True

    def __init__(self, conn: Any, schema: str) -> None:
        self.schema = schema
        self._conn, self._send = conn, _kind(conn)[1]

    async def rows(self, statement: str, *arguments: Any) -> Rows:
        """The rows of a named statement."""
        sent = [_plain(argument) for argument in arguments]
        try:
            rows = await self._send(self._conn, _Styles(self.schema, statement), sent)
        except Exception as fault:
            told = told_by_sqlstate(fault)
            if told is None:
                raise
            raise told from fault
        return [{name: _identified(name, value) for name, value in row.items()} for row in rows]


def is_blocking(conn: Any) -> bool:
    """Whether a connection blocks the thread that uses it; one of asyncio must be awaited."""
    return _kind(conn)[0] == "blocking"


class _Styles:
    """One statement in the ways that drivers write parameters."""

    def __init__(self, schema: str, statement: str) -> None:
        self.dollar = queries(schema)[statement]

    @property
    def percent(self) -> str:
        """With `%s`; every statement uses each of its parameters once, in order."""
        return re.sub(r"\$\d+", "%s", self.dollar.replace("%", "%%"))


async def _asyncpg(conn: Any, sql: _Styles, arguments: Sequence[Any]) -> Iterable[Mapping[str, Any]]:
    if not conn.is_in_transaction():
        raise InvalidInput(_NO_TRANSACTION.format(advice="use it within `async with conn.transaction():`"))
    return (dict(row) for row in await conn.fetch(sql.dollar, *arguments))


async def _psycopg(conn: Any, sql: _Styles, arguments: Sequence[Any]) -> Iterable[Mapping[str, Any]]:
    _refuse_autocommit(conn)
    with conn.cursor() as cursor:
        cursor.row_factory = _tuples
        cursor.execute(sql.percent, arguments)
        return _named(cursor.description, cursor.fetchall())


async def _psycopg_async(conn: Any, sql: _Styles, arguments: Sequence[Any]) -> Iterable[Mapping[str, Any]]:
    _refuse_autocommit(conn)
    async with conn.cursor() as cursor:
        cursor.row_factory = _tuples
        await cursor.execute(sql.percent, arguments)
        rows = await cursor.fetchall()
        return _named(cursor.description, rows)


async def _django(conn: Any, sql: _Styles, arguments: Sequence[Any]) -> Iterable[Mapping[str, Any]]:
    if conn.vendor != "postgresql":
        raise InvalidInput(f"Holdfast lives in PostgreSQL; this Django connection is to {conn.vendor}")
    if not conn.in_atomic_block and conn.get_autocommit():
        raise InvalidInput(_NO_TRANSACTION.format(advice="use it within `transaction.atomic()`"))
    with conn.cursor() as cursor:
        cursor.execute(sql.percent, arguments)
        return _named(cursor.description, cursor.fetchall())


async def _connection(conn: Any, sql: _Styles, arguments: Sequence[Any]) -> Iterable[Mapping[str, Any]]:
    return _mapped(conn.exec_driver_sql(_checked(conn, sql), tuple(arguments)))


async def _connection_async(conn: Any, sql: _Styles, arguments: Sequence[Any]) -> Iterable[Mapping[str, Any]]:
    return _mapped(await conn.exec_driver_sql(_checked(conn.sync_connection, sql), tuple(arguments)))


async def _session(conn: Any, sql: _Styles, arguments: Sequence[Any]) -> Iterable[Mapping[str, Any]]:
    return await _connection(conn.connection(), sql, arguments)


async def _session_async(conn: Any, sql: _Styles, arguments: Sequence[Any]) -> Iterable[Mapping[str, Any]]:
    return await _connection_async(await conn.connection(), sql, arguments)


def _checked(connection: Any, sql: _Styles) -> str:
    """The statement in the style of the dialect's driver; what is not PostgreSQL in a transaction is refused."""
    if connection.dialect.name != "postgresql":
        raise InvalidInput(f"Holdfast lives in PostgreSQL; this connection is to {connection.dialect.name}")
    if getattr(connection.connection.dbapi_connection, "autocommit", False):
        raise InvalidInput(_NO_TRANSACTION.format(advice='do not use the isolation level "AUTOCOMMIT"'))
    return sql.dollar if connection.dialect.paramstyle == "numeric_dollar" else sql.percent


def _refuse_autocommit(conn: Any) -> None:
    if conn.autocommit and conn.info.transaction_status == 0:
        raise InvalidInput(_NO_TRANSACTION.format(advice="use it within `conn.transaction()`, or without autocommit"))


def _tuples(_cursor: Any) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    """A row factory of psycopg: whatever the connection's own is, here rows are tuples."""
    return tuple


def _named(description: Sequence[Any], rows: Iterable[Sequence[Any]]) -> list[dict[str, Any]]:
    names = [column[0] for column in description]
    return [dict(zip(names, row, strict=True)) for row in rows]


def _mapped(result: Any) -> list[dict[str, Any]]:
    return [dict(row) for row in result.mappings()]


_Send = Callable[[Any, _Styles, Sequence[Any]], Awaitable[Iterable[Mapping[str, Any]]]]

#: By package and class: whether using the connection blocks, and how it is used.
_KINDS: Mapping[tuple[str, str], tuple[str, _Send]] = {
    ("asyncpg", "Connection"): ("asyncio", _asyncpg),
    ("asyncpg", "PoolConnectionProxy"): ("asyncio", _asyncpg),
    ("psycopg", "Connection"): ("blocking", _psycopg),
    ("psycopg", "AsyncConnection"): ("asyncio", _psycopg_async),
    ("sqlalchemy", "Connection"): ("blocking", _connection),
    ("sqlalchemy", "Session"): ("blocking", _session),
    ("sqlalchemy", "scoped_session"): ("blocking", _session),
    ("sqlalchemy", "AsyncConnection"): ("asyncio", _connection_async),
    ("sqlalchemy", "AsyncSession"): ("asyncio", _session_async),
    ("sqlalchemy", "async_scoped_session"): ("asyncio", _session_async),
    ("django", "BaseDatabaseWrapper"): ("blocking", _django),
    ("django", "ConnectionProxy"): ("blocking", _django),
}


def _kind_of(kind: type) -> tuple[str, _Send] | None:
    for parent in kind.__mro__:
        found = _KINDS.get((parent.__module__.partition(".")[0], parent.__name__))
        if found is not None:
            return found
    return None


def _kind(conn: Any) -> tuple[str, _Send]:
    found = _kind_of(type(conn))
    if found is None:
        kind = type(conn)
        raise InvalidInput(
            f"conn= takes a connection of asyncpg or psycopg 3, a session or connection of SQLAlchemy 2, or Django's "
            f"connection, not {kind.__module__}.{kind.__qualname__}"
        )
    return found


def _plain(argument: Any) -> Any:
    """Ids travel as text: not every driver knows how to send a UUID, all know text."""
    if isinstance(argument, UUID):
        return str(argument)
    if isinstance(argument, list):
        return [str(item) if isinstance(item, UUID) else item for item in argument]
    return argument


def _identified(name: str, value: Any) -> Any:
    return UUID(value) if name in _IDS and isinstance(value, str) else value

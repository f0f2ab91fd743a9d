"""The kinds of connection that callers lend us, and how each of them is used.

Every kind can do two things: run a statement inside the open transaction, and hold a transaction of its own for the
length of a block. None of these packages is imported here: a connection brings its own.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from datetime import datetime
from inspect import isawaitable
from typing import Any, Protocol
from zoneinfo import ZoneInfo

from holdfast.errors import InvalidInput

__all__ = ["Lender", "Text", "lender_of"]

_NO_TRANSACTION = "the connection is not in a transaction, so nothing would hold the two together: {advice}"


class Text(Protocol):
    """One statement in the parameter styles of the drivers."""

    dollar: str
    percent: str


class Lender(Protocol):
    """How one kind of connection is used."""

    blocking: bool

    async def rows(self, conn: Any, sql: Text, arguments: Sequence[Any]) -> Iterable[Mapping[str, Any]]:
        """The rows of a statement within the open transaction. A connection without one is refused."""
        ...

    async def flush(self, conn: Any) -> None:
        """Send changes that the connection has only buffered so far."""
        ...

    def transaction(self, conn: Any) -> AbstractAsyncContextManager[None]:
        """A transaction that ends with the block: committed, or rolled back after an error.

        Refused if the end of the block could not commit, because other code controls the transaction.
        """
        ...


class _Plain:
    """A connection that sends everything at once."""

    async def flush(self, conn: Any) -> None:  # noqa: ARG002 - as others have it
        return None


class _Asyncpg(_Plain):
    blocking = False

    async def rows(self, conn: Any, sql: Text, arguments: Sequence[Any]) -> Iterable[Mapping[str, Any]]:
        if not conn.is_in_transaction():
            raise InvalidInput(_NO_TRANSACTION.format(advice="use it within `async with conn.transaction():`"))
        return [dict(row) for row in await conn.fetch(sql.dollar, *arguments)]

    @asynccontextmanager
    async def transaction(self, conn: Any) -> AsyncIterator[None]:
        _refuse_nested(conn.is_in_transaction())
        async with conn.transaction():
            yield


class _Blocking(_Plain):
    """The connection that `ctx.transaction()` gives to a handler that is not a coroutine: always in a transaction."""

    blocking = True

    async def rows(self, conn: Any, sql: Text, arguments: Sequence[Any]) -> Iterable[Mapping[str, Any]]:
        return [dict(row) for row in conn.fetch(sql.dollar, *arguments)]

    @asynccontextmanager
    async def transaction(self, conn: Any) -> AsyncIterator[None]:
        _refuse_nested(conn is not None)
        yield


class _Psycopg(_Plain):
    """psycopg 3, blocking or not."""

    def __init__(self, *, blocking: bool) -> None:
        self.blocking = blocking

    async def rows(self, conn: Any, sql: Text, arguments: Sequence[Any]) -> Iterable[Mapping[str, Any]]:
        import psycopg

        _refuse_autocommit(conn)
        # Use plain cursors and rows, whatever the connection is set up for.
        kind: Any = psycopg.Cursor if self.blocking else psycopg.AsyncCursor
        async with _block(kind(conn, row_factory=_tuples)) as cursor:
            await _done(cursor.execute(sql.percent, arguments))
            rows = await _done(cursor.fetchall())
            return _named(cursor.description, rows)

    @asynccontextmanager
    async def transaction(self, conn: Any) -> AsyncIterator[None]:
        _refuse_nested(_in_block(conn))
        async with _block(conn.transaction()) if conn.autocommit else _committed(conn):
            yield


class _Alchemy:
    """SQLAlchemy, blocking or not; a session is used through its connection."""

    def __init__(self, *, session: bool, blocking: bool) -> None:
        self._session, self.blocking = session, blocking

    async def rows(self, conn: Any, sql: Text, arguments: Sequence[Any]) -> Iterable[Mapping[str, Any]]:
        connection = await _connection_of(conn) if self._session else conn
        written = _written_for(connection if self.blocking else connection.sync_connection, sql)
        result = await _done(connection.exec_driver_sql(written, tuple(arguments)))
        return [dict(row) for row in result.mappings()]

    async def flush(self, conn: Any) -> None:
        if self._session:
            await _done(conn.flush())

    @asynccontextmanager
    async def transaction(self, conn: Any) -> AsyncIterator[None]:
        if self._session:
            # A scoped asyncio session exposes most of its session, but not this; calling it returns the session.
            session = conn if self.blocking or hasattr(conn, "sync_session") else conn()
            _refuse_joined(session if self.blocking else session.sync_session)
        async with _committed(conn):
            yield


class _Django(_Plain):
    blocking = True

    async def rows(self, conn: Any, sql: Text, arguments: Sequence[Any]) -> Iterable[Mapping[str, Any]]:
        if conn.vendor != "postgresql":
            raise InvalidInput(f"Holdfast needs PostgreSQL; this Django connection is to {conn.vendor}")
        if not conn.in_atomic_block and conn.get_autocommit():
            raise InvalidInput(_NO_TRANSACTION.format(advice="use it within `transaction.atomic()`"))
        with conn.cursor() as cursor:
            cursor.execute(sql.percent, arguments)
            # Without USE_TZ, Django's connection returns naive times in its own time zone.
            zone = ZoneInfo(conn.timezone_name)
            return [
                {name: _aware(value, zone) for name, value in row.items()}
                for row in _named(cursor.description, cursor.fetchall())
            ]

    @asynccontextmanager
    async def transaction(self, conn: Any) -> AsyncIterator[None]:
        from django.db.transaction import atomic

        # With autocommit off, `atomic` leaves the commit to other code.
        _refuse_nested(not conn.in_atomic_block and not conn.get_autocommit())
        with atomic(using=conn.alias, durable=True):
            yield


#: By package and class.
_LENDERS: Mapping[tuple[str, str], Lender] = {
    ("asyncpg", "Connection"): _Asyncpg(),
    ("asyncpg", "PoolConnectionProxy"): _Asyncpg(),
    ("psycopg", "Connection"): _Psycopg(blocking=True),
    ("psycopg", "AsyncConnection"): _Psycopg(blocking=False),
    ("sqlalchemy", "Connection"): _Alchemy(session=False, blocking=True),
    ("sqlalchemy", "Session"): _Alchemy(session=True, blocking=True),
    ("sqlalchemy", "scoped_session"): _Alchemy(session=True, blocking=True),
    ("sqlalchemy", "AsyncConnection"): _Alchemy(session=False, blocking=False),
    ("sqlalchemy", "AsyncSession"): _Alchemy(session=True, blocking=False),
    ("sqlalchemy", "async_scoped_session"): _Alchemy(session=True, blocking=False),
    ("holdfast", "BlockingConnection"): _Blocking(),
    ("django", "BaseDatabaseWrapper"): _Django(),
    ("django", "ConnectionProxy"): _Django(),
}


def lender_of(conn: Any) -> Lender:
    """The way to use this connection. Raises InvalidInput for any other object."""
    kind = type(conn)
    for parent in kind.__mro__:
        found = _LENDERS.get((parent.__module__.partition(".")[0], parent.__name__))
        if found is not None:
            return found
    raise InvalidInput(
        "conn= takes a connection of asyncpg or psycopg 3, a session or connection of SQLAlchemy 2, or Django's "
        f"connection, not {kind.__module__}.{kind.__qualname__}"
    )


def _written_for(connection: Any, sql: Text) -> str:
    """The statement in the style of the dialect's driver. Refuses other databases, and autocommit."""
    if connection.dialect.name != "postgresql":
        raise InvalidInput(f"Holdfast needs PostgreSQL; this connection is to {connection.dialect.name}")
    if getattr(connection.connection.dbapi_connection, "autocommit", False):
        raise InvalidInput(_NO_TRANSACTION.format(advice='do not use the isolation level "AUTOCOMMIT"'))
    return sql.dollar if connection.dialect.paramstyle == "numeric_dollar" else sql.percent


def _refuse_autocommit(conn: Any) -> None:
    if conn.autocommit and conn.info.transaction_status == 0:
        raise InvalidInput(_NO_TRANSACTION.format(advice="use it within `conn.transaction()`, or without autocommit"))


def _refuse_nested(inside: bool) -> None:
    if inside:
        raise InvalidInput("the connection is already in a transaction, which this block could not commit")


def _in_block(conn: Any) -> bool:
    """Whether a connection of psycopg is within its own block; there, no other code may commit."""
    return bool(getattr(conn, "_num_transactions", 0)) or (conn.autocommit and conn.info.transaction_status != 0)


def _refuse_joined(session: Any) -> None:
    """Refuse a session on a connection that is in a transaction, as in test suites: it would commit nothing itself."""
    try:
        bind = session.get_bind()
    except Exception as fault:
        if type(fault).__name__ != "UnboundExecutionError":
            raise
        return  # several databases: which one is used will be known later
    _refuse_nested(hasattr(bind, "in_transaction") and bind.in_transaction())


async def _connection_of(session: Any) -> Any:
    try:
        return await _done(session.connection())
    except Exception as fault:
        if type(fault).__name__ == "UnboundExecutionError":
            advice = "pass the connection: `session.connection(bind_arguments=...)`"
            raise InvalidInput(f"the session has several databases; choose one: {advice}") from fault
        raise


async def _done(answer: Any) -> Any:
    """The result of a call: at once if it blocks, otherwise after awaiting it."""
    return await answer if isawaitable(answer) else answer


@asynccontextmanager
async def _block(manager: Any) -> AsyncIterator[Any]:
    """Enter a context manager of either kind."""
    if hasattr(manager, "__aenter__"):
        async with manager as entered:
            yield entered
    else:
        with manager as entered:
            yield entered


@asynccontextmanager
async def _committed(conn: Any) -> AsyncIterator[None]:
    """Commit everything since the connection's last commit; a failed rollback hides no error."""
    try:
        yield
        await _done(conn.commit())
    except BaseException:
        with suppress(Exception):
            await _done(conn.rollback())
        raise


def _tuples(_cursor: Any) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    """A row factory of psycopg that returns tuples, whatever the connection's own factory is."""
    return tuple


def _named(description: Sequence[Any], rows: Iterable[Sequence[Any]]) -> list[dict[str, Any]]:
    names = [column[0] for column in description]
    return [dict(zip(names, row, strict=True)) for row in rows]


def _aware(value: Any, zone: ZoneInfo) -> Any:
    return value.replace(tzinfo=zone) if isinstance(value, datetime) and value.tzinfo is None else value

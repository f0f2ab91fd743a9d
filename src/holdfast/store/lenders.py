"""The kinds of connection that callers lend us, and how each of them is used.

Every kind can do two things: run a statement inside the transaction that is open, and hold a transaction of
its own for the length of a block. None of these packages is imported here: a connection brings its own.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime
from typing import Any, Protocol
from zoneinfo import ZoneInfo

from holdfast.errors import InvalidInput

__all__ = ["Lender", "Text", "lender_of"]

_NO_TRANSACTION = "the connection is not in a transaction, so nothing would hold the two together: {advice}"


class Text(Protocol):
    """One statement in the ways that drivers write parameters."""

    dollar: str
    percent: str


class Lender(Protocol):
    """How one kind of connection is used."""

    blocking: bool

    async def rows(self, conn: Any, sql: Text, arguments: Sequence[Any]) -> Iterable[Mapping[str, Any]]:
        """The rows of a statement within the open transaction; a connection without one is refused."""
        ...

    def transaction(self, conn: Any) -> AbstractAsyncContextManager[None]:
        """A transaction that ends with the block: committed, or after an error rolled back."""
        ...


class _Asyncpg:
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


class _Psycopg:
    blocking = True

    async def rows(self, conn: Any, sql: Text, arguments: Sequence[Any]) -> Iterable[Mapping[str, Any]]:
        _refuse_autocommit(conn)
        with conn.cursor() as cursor:
            cursor.row_factory = _tuples
            cursor.execute(sql.percent, arguments)
            return _named(cursor.description, cursor.fetchall())

    @asynccontextmanager
    async def transaction(self, conn: Any) -> AsyncIterator[None]:
        if conn.autocommit:
            _refuse_nested(conn.info.transaction_status != 0)
            with conn.transaction():
                yield
            return
        try:
            yield
            conn.commit()
        except BaseException:
            conn.rollback()
            raise


class _PsycopgAsync:
    blocking = False

    async def rows(self, conn: Any, sql: Text, arguments: Sequence[Any]) -> Iterable[Mapping[str, Any]]:
        _refuse_autocommit(conn)
        async with conn.cursor() as cursor:
            cursor.row_factory = _tuples
            await cursor.execute(sql.percent, arguments)
            rows = await cursor.fetchall()
            return _named(cursor.description, rows)

    @asynccontextmanager
    async def transaction(self, conn: Any) -> AsyncIterator[None]:
        if conn.autocommit:
            _refuse_nested(conn.info.transaction_status != 0)
            async with conn.transaction():
                yield
            return
        try:
            yield
            await conn.commit()
        except BaseException:
            await conn.rollback()
            raise


class _Alchemy:
    """SQLAlchemy, blocking; a session is used through its connection."""

    blocking = True

    def __init__(self, *, session: bool) -> None:
        self._session = session

    async def rows(self, conn: Any, sql: Text, arguments: Sequence[Any]) -> Iterable[Mapping[str, Any]]:
        connection = conn.connection() if self._session else conn
        return _mapped(connection.exec_driver_sql(_written_for(connection, sql), tuple(arguments)))

    @asynccontextmanager
    async def transaction(self, conn: Any) -> AsyncIterator[None]:
        try:
            yield
            conn.commit()
        except BaseException:
            conn.rollback()
            raise


class _AlchemyAsync:
    """SQLAlchemy's asyncio extension."""

    blocking = False

    def __init__(self, *, session: bool) -> None:
        self._session = session

    async def rows(self, conn: Any, sql: Text, arguments: Sequence[Any]) -> Iterable[Mapping[str, Any]]:
        connection = await conn.connection() if self._session else conn
        written = _written_for(connection.sync_connection, sql)
        return _mapped(await connection.exec_driver_sql(written, tuple(arguments)))

    @asynccontextmanager
    async def transaction(self, conn: Any) -> AsyncIterator[None]:
        try:
            yield
            await conn.commit()
        except BaseException:
            await conn.rollback()
            raise


class _Django:
    blocking = True

    async def rows(self, conn: Any, sql: Text, arguments: Sequence[Any]) -> Iterable[Mapping[str, Any]]:
        if conn.vendor != "postgresql":
            raise InvalidInput(f"Holdfast lives in PostgreSQL; this Django connection is to {conn.vendor}")
        if not conn.in_atomic_block and conn.get_autocommit():
            raise InvalidInput(_NO_TRANSACTION.format(advice="use it within `transaction.atomic()`"))
        with conn.cursor() as cursor:
            cursor.execute(sql.percent, arguments)
            # Without USE_TZ, Django's connection answers in its own time zone, without naming it.
            zone = ZoneInfo(conn.timezone_name)
            return [
                {name: _aware(value, zone) for name, value in row.items()}
                for row in _named(cursor.description, cursor.fetchall())
            ]

    @asynccontextmanager
    async def transaction(self, conn: Any) -> AsyncIterator[None]:
        from django.db.transaction import atomic

        with atomic(using=conn.alias, durable=True):
            yield


#: By package and class.
_LENDERS: Mapping[tuple[str, str], Lender] = {
    ("asyncpg", "Connection"): _Asyncpg(),
    ("asyncpg", "PoolConnectionProxy"): _Asyncpg(),
    ("psycopg", "Connection"): _Psycopg(),
    ("psycopg", "AsyncConnection"): _PsycopgAsync(),
    ("sqlalchemy", "Connection"): _Alchemy(session=False),
    ("sqlalchemy", "Session"): _Alchemy(session=True),
    ("sqlalchemy", "scoped_session"): _Alchemy(session=True),
    ("sqlalchemy", "AsyncConnection"): _AlchemyAsync(session=False),
    ("sqlalchemy", "AsyncSession"): _AlchemyAsync(session=True),
    ("sqlalchemy", "async_scoped_session"): _AlchemyAsync(session=True),
    ("django", "BaseDatabaseWrapper"): _Django(),
    ("django", "ConnectionProxy"): _Django(),
}


def lender_of(conn: Any) -> Lender:
    """How this connection is used; what is none is refused."""
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
    """The statement in the style of the dialect's driver; what is not PostgreSQL in a transaction is refused."""
    if connection.dialect.name != "postgresql":
        raise InvalidInput(f"Holdfast lives in PostgreSQL; this connection is to {connection.dialect.name}")
    if getattr(connection.connection.dbapi_connection, "autocommit", False):
        raise InvalidInput(_NO_TRANSACTION.format(advice='do not use the isolation level "AUTOCOMMIT"'))
    return sql.dollar if connection.dialect.paramstyle == "numeric_dollar" else sql.percent


def _refuse_autocommit(conn: Any) -> None:
    if conn.autocommit and conn.info.transaction_status == 0:
        raise InvalidInput(_NO_TRANSACTION.format(advice="use it within `conn.transaction()`, or without autocommit"))


def _refuse_nested(inside: bool) -> None:
    if inside:
        raise InvalidInput("the connection is in a transaction already, which this block could not commit")


def _tuples(_cursor: Any) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    """A row factory of psycopg: whatever the connection's own is, here rows are tuples."""
    return tuple


def _named(description: Sequence[Any], rows: Iterable[Sequence[Any]]) -> list[dict[str, Any]]:
    names = [column[0] for column in description]
    return [dict(zip(names, row, strict=True)) for row in rows]


def _aware(value: Any, zone: ZoneInfo) -> Any:
    return value.replace(tzinfo=zone) if isinstance(value, datetime) and value.tzinfo is None else value


def _mapped(result: Any) -> list[dict[str, Any]]:
    return [dict(row) for row in result.mappings()]

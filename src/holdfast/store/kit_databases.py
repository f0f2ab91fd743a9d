"""Databases for tests: created on a given server or on an embedded one, migrated once, dropped afterwards.

Only a schema that was created here has the testing clock. A schema without it is refused, so that no test can ever move
the time of a production database, or empty it.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from urllib.parse import unquote, urlsplit, urlunsplit

import asyncpg

from holdfast.config import Config
from holdfast.errors import SchemaError
from holdfast.lifecycle.portal import Portal
from holdfast.store.database import connect
from holdfast.store.faults import CONNECTION_FAULTS, translated
from holdfast.store.migrate import migrate
from holdfast.store.statements import kit_queries, queries, script

__all__ = ["SERVER_SETTINGS", "create", "drop", "out_of_reach", "prepare"]

#: Settings of the embedded server for tests: nothing in it outlives the run, so nothing waits for the disk. It says so
#: itself, because otherwise a server with fsync = off is refused.
SERVER_SETTINGS = {
    "holdfast.allow_fsync_off": "on",
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "max_wal_size": "8GB",
    "checkpoint_timeout": "1h",
}


async def create(server_url: str) -> str:
    """Create an empty database on that server. Returns its URL."""
    name = f"holdfast_test_{secrets.token_hex(6)}"
    async with _connection(server_url) as conn:
        await conn.execute(f'create database "{name}"')
    return _with_database(server_url, name)


async def drop(server_url: str, url: str) -> None:
    """Drop a database, even if somebody is still connected to it."""
    async with _connection(server_url) as conn:
        await conn.execute(f'drop database if exists "{_name(url)}" with (force)')


async def prepare(config: Config) -> None:
    """Create the engine's schema with the testing clock, or bring one that was created so up to date."""
    conn = await connect(config, role=None, name="holdfast testing", direct=True)
    try:
        exists = await conn.fetchval(queries(config.schema)["has_steps"], config.schema)
        if not exists:
            await _add_clock(conn, config.schema)
        elif not await conn.fetchval(kit_queries(config.schema)["has_clock"], config.schema):
            raise SchemaError(
                f"the schema {config.schema!r} of database {_name(config.database_url or '')!r} was not made by the "
                "testing kit: nothing in it is emptied, and its time is not moved. Give the tests another database"
            )
    except (*CONNECTION_FAULTS, asyncpg.PostgresError) as fault:
        raise translated(fault) from fault
    finally:
        await conn.close()
    await migrate(config)


@contextmanager
def out_of_reach(portal: Portal, url: str) -> Iterator[None]:
    """A real outage: every session in the database is cut, and the database cannot be found until the block ends."""
    portal.run(_hide(url))
    try:
        yield
    finally:
        portal.run(_show(url))


async def _add_clock(conn: asyncpg.Connection, schema: str) -> None:
    async with conn.transaction():
        await conn.fetchval(queries(schema)["lock_migrations"], schema)
        if await conn.fetchval(kit_queries(schema)["has_clock"], schema):
            return
        await conn.execute(script("roles", schema))
        await conn.execute(f'create schema if not exists "{schema}" authorization "{schema}_owner"')
        await conn.execute(f'set local role "{schema}_owner"')
        await conn.execute(f'set local search_path = "{schema}", pg_catalog, pg_temp')
        await conn.execute("set local check_function_bodies = off")
        await conn.execute(script("testing/clock", schema))
        await conn.execute(script("testing/reset", schema))


async def _hide(url: str) -> None:
    """Refuse new sessions, end all others, then rename the database: clients are told that it does not exist."""
    name = _name(url)
    async with _connection(_with_database(url, "postgres")) as conn:
        await conn.execute(f'alter database "{name}" with allow_connections false')
        await conn.fetchval(kit_queries("holdfast")["testing_cut_connections"], name)
        await conn.execute(f'alter database "{name}" rename to "{_hidden(name)}"')


async def _show(url: str) -> None:
    name = _name(url)
    async with _connection(_with_database(url, "postgres")) as conn:
        await conn.execute(f'alter database "{_hidden(name)}" rename to "{name}"')
        await conn.execute(f'alter database "{name}" with allow_connections true')


def _hidden(name: str) -> str:
    return f"{name[:55]}_hidden"


def _name(url: str) -> str:
    return unquote(urlsplit(url).path.removeprefix("/"))


def _with_database(url: str, name: str) -> str:
    return urlunsplit(urlsplit(url)._replace(path=f"/{name}"))


@asynccontextmanager
async def _connection(url: str) -> AsyncIterator[asyncpg.Connection]:
    try:
        conn = await asyncpg.connect(url, timeout=10)
    except (*CONNECTION_FAULTS, asyncpg.PostgresError) as fault:
        raise translated(fault) from fault
    try:
        yield conn
    finally:
        await conn.close()

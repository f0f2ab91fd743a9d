"""Brings a database to this release: numbered steps, then the functions that changed, then the rights.

All of it happens in one transaction under one lock, so that ten processes may start at once and a failure leaves
nothing half done. Clients and workers go on meanwhile: the transaction is repeated if it cannot lock the tables,
because others have used them for long or because of a deadlock. A process that is older than the database's release
changes nothing. Rights and owners that a restore has lost are restored, even if there is nothing else to do. Everything
belongs to `<schema>_owner`; if the login may not create roles, the error contains the statements for an administrator.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace

import asyncpg

from holdfast.config import Config
from holdfast.errors import SchemaError
from holdfast.store.database import connect, refuse_testing_schema
from holdfast.store.disk import refuse_forgetful_server
from holdfast.store.faults import CONNECTION_FAULTS, REPEATABLE, translated
from holdfast.store.servers import retire
from holdfast.store.statements import functions, grants, migrations, queries, script
from holdfast.version import __version__

__all__ = ["ROLES", "Plan", "migrate", "migration_sql", "missing_rights", "plan"]

ROLES = ("owner", "api", "worker", "operator", "client", "remote")

#: How long each try waits for a table that others use; statements that come later wait as well. No order of locks suits
#: every statement (a list reads `jobs` before the view, a single job the view before `jobs`), so most tries end before
#: the server checks for deadlocks, and others go on. The last tries are for a transaction that takes long. Another
#: migration is waited for without limit.
LOCK_TIMEOUTS = ("300ms",) * 25 + ("4s",) * 3
#: How long others can go on between two tries, in seconds, at least and at most.
_PAUSE_SECONDS = 0.1, 0.5

#: How many names without a right are shown.
_SHOWN = 3

#: Function files with triggers lock the tables, too.
_TRIGGER = "create or replace trigger"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The difference between a database and this release."""

    applied: tuple[tuple[int, str], ...]
    pending: tuple[tuple[int, str], ...]
    changed_functions: tuple[str, ...]
    newer_release: str | None
    #: Rights that are missing in a schema that is otherwise current: "holdfast_worker may not call claim, complete".
    missing_rights: tuple[str, ...] = ()

    @property
    def current(self) -> bool:
        """Whether there is nothing to do."""
        return not self.pending and not self.changed_functions and not self.missing_rights


async def plan(config: Config) -> Plan:
    """The plan that `migrate` would carry out."""
    async with _connection(config) as conn:
        return await _plan(conn, config)


async def migrate(config: Config, *, up_to: int | None = None) -> Plan:
    """Apply the missing parts. Returns the plan that was carried out; DatabaseBusy if a table was never free."""
    async with _connection(config) as conn:
        for lock_timeout in LOCK_TIMEOUTS[:-1]:
            with suppress(*REPEATABLE, asyncpg.LockNotAvailableError):
                return await _migrate(conn, config, up_to, lock_timeout)
            await asyncio.sleep(random.uniform(*_PAUSE_SECONDS))  # noqa: S311 - so that two do not meet again
        return await _migrate(conn, config, up_to, LOCK_TIMEOUTS[-1])


async def _migrate(conn: asyncpg.Connection, config: Config, up_to: int | None, lock_timeout: str) -> Plan:
    sql = queries(config.schema)
    async with conn.transaction():
        await conn.fetchval(sql["lock_migrations"], config.schema)
        await conn.execute(f"set local lock_timeout = '{lock_timeout}'")
        await refuse_testing_schema(conn, config)
        await refuse_forgetful_server(conn, config)
        before = await _plan(conn, config)
        if before.newer_release is not None and not before.current:
            raise SchemaError(
                f"the database was migrated by the newer release {before.newer_release}; "
                f"this one ({__version__}) changes nothing"
            )
        if before.current:
            return before
        if not before.applied:
            await _refuse_encoding(conn)
        await _roles(conn, config)
        await conn.execute(script("ownership", config.schema))
        for statement in _schemas(config):
            await conn.execute(statement)
        await conn.execute(f'set local role "{config.schema}_owner"')
        await conn.execute(f'set local search_path = "{config.schema}", pg_catalog, pg_temp')
        await conn.execute("set local check_function_bodies = off")
        # A table cannot be altered while its rows wait for a trigger that is deferred to the commit.
        await conn.execute("set constraints all immediate")
        if before.pending or any(_TRIGGER in functions()[name] for name in before.changed_functions):
            await conn.execute(script("locks", config.schema))
        await conn.execute(script("bootstrap", config.schema))
        for step, name, text in migrations():
            if (step, name) in before.pending and (up_to is None or step <= up_to):
                await conn.execute(text)
                await conn.execute(sql["record_step"], step, name, __version__)
        if up_to is not None and up_to < migrations()[-1][0]:
            return before  # this release's functions need its tables
        for name, text in functions().items():
            if name in before.changed_functions:
                await conn.execute(text)
                await conn.execute(sql["record_function"], name, _checksum(text), __version__)
        await conn.execute(script("views", config.schema))
        await conn.execute(script("rights", config.schema))
        return before


def _schemas(config: Config) -> list[str]:
    """The statements that create the engine's schema, and the one with what operators read."""
    names = (config.schema, f"{config.schema}_views")
    return [f'create schema if not exists "{name}" authorization "{config.schema}_owner"' for name in names]


async def _refuse_encoding(conn: asyncpg.Connection) -> None:
    """Refuse other encodings: text that is not UTF-8 could be stored, and would stop every worker that reads it."""
    encoding = await conn.fetchval("show server_encoding")
    if encoding != "UTF8":
        raise SchemaError(
            f"the database has the encoding {encoding}, and Holdfast needs UTF8: "
            "create database … encoding 'UTF8' template template0"
        )


def migration_sql(config: Config) -> str:
    """The whole schema as one script for psql, for a login that may create roles."""
    parts = [
        "begin;",
        script("roles", config.schema),
        *(f"{statement};" for statement in _schemas(config)),
        f'set local role "{config.schema}_owner";',
        f'set local search_path = "{config.schema}", pg_catalog, pg_temp;',
        "set local check_function_bodies = off;",
        "set constraints all immediate;",
        script("bootstrap", config.schema),
    ]
    for step, name, text in migrations():
        values = f"({step}, '{name}', '{__version__}')"
        parts += [text, f"insert into schema_steps (step, name, release) values {values};"]  # noqa: S608 - our own
    for name, text in functions().items():
        values = f"('{name}', '{_checksum(text)}', '{__version__}')"
        parts += [text, f"insert into schema_functions (name, checksum, release) values {values};"]  # noqa: S608 - our own
    return "\n".join([*parts, script("views", config.schema), script("rights", config.schema), "commit;"])


async def _plan(conn: asyncpg.Connection, config: Config) -> Plan:
    sql = queries(config.schema)
    applied: list[tuple[int, str]] = []
    checksums: dict[str, str] = {}
    releases: list[str] = []
    if await conn.fetchval(sql["has_steps"], config.schema):
        applied = [(row["step"], row["name"]) for row in await conn.fetch(sql["applied_steps"])]
        checksums = {row["name"]: row["checksum"] for row in await conn.fetch(sql["function_checksums"])}
        releases = [row["release"] for row in await conn.fetch(sql["newest_release"])]
    newest = max(releases, key=_release, default=__version__)
    found = Plan(
        applied=tuple(applied),
        pending=tuple((s, n) for s, n, _ in migrations() if s not in {step for step, _ in applied}),
        changed_functions=tuple(n for n, text in functions().items() if checksums.get(n) != _checksum(text)),
        newer_release=newest if _release(newest) > _release(__version__) else None,
    )
    # The rights of another release are not known here, and a migration grants the rights anyway.
    if found.current and found.newer_release is None:
        return replace(found, missing_rights=await missing_rights(conn, config))
    return found


async def missing_rights(conn: asyncpg.Connection, config: Config) -> tuple[str, ...]:
    """Rights that are missing in a schema of this release, in words, as far as the login can see them."""
    names, roles = zip(*grants(config.schema), strict=True)
    rows = await conn.fetch(queries(config.schema)["missing_rights"], config.schema, names, roles)
    faults: dict[str, list[str]] = {}
    for row in rows:
        faults.setdefault(row["fault"], []).append(row["name"])
    return tuple(f"{fault} {_some(names)}" for fault, names in faults.items())


def _some(names: list[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


async def _roles(conn: asyncpg.Connection, config: Config) -> None:
    """Create the engine's roles, or raise with the statements for an administrator."""
    sql = queries(config.schema)
    names = [f"{config.schema}_{role}" for role in ROLES]
    known = await conn.fetch(sql["roles"], names)
    missing = [row["name"] for row in known if not row["exists"]]
    names = [row["name"] for row in known if not row["member"]]
    if not names:
        return
    (login,) = await conn.fetch(sql["login"])
    if not (login["superuser"] or login["may_create_roles"]):
        statements = "\n".join([f"  create role {name} nologin;" for name in missing])
        raise SchemaError(
            f"the login {login['name']!r} may not create roles. Let an administrator run:\n{statements}\n"
            f"  grant {', '.join(names)} to {login['name']};\n"
            f"  grant create on database {login['database']} to {login['name']};\n"
            "and run `holdfast migrate` again."
        )
    await conn.execute(script("roles", config.schema))


@asynccontextmanager
async def _connection(config: Config) -> AsyncIterator[asyncpg.Connection]:
    conn = await connect(config, role=None, name="holdfast migrate", direct=True)
    try:
        if conn.get_server_version() < (15, 0):
            raise SchemaError("Holdfast needs PostgreSQL 15 or newer")
        yield conn
    except (*CONNECTION_FAULTS, asyncpg.PostgresError) as fault:
        raise translated(fault) from fault
    finally:
        await retire(conn)


def _checksum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _release(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())

"""Migrated databases for tests, reused within a process: emptied after each test, renamed before the next.

Making a database takes 40 ms on a quiet machine and up to 190 ms on a busy one; emptying it takes a few. A used
database goes back on the shelf only if it cannot be told from a new one:

1. Nobody is connected to it any more.
2. Apart from tables that the test made for itself, which are dropped, its catalog, settings and statistics are those of
   the template: no function, trigger, grant or column was left or changed.
3. It has hardly grown, so neither plans nor counters of buffers feel the tests before.
4. All tables hold the template's rows again, and all sequences stand where they stood.

Anything else is dropped, and the next test gets a new one. The new name keeps out a process that outlived its test.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from dataclasses import dataclass
from time import monotonic
from typing import Any, TypeVar
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import asyncpg

from holdfast.config import Config
from holdfast.store.migrate import migrate

T = TypeVar("T")

#: A session that was closed takes a moment to vanish. One that stays longer was forgotten.
SECONDS_TO_LEAVE = 0.5
BYTES_TO_GROW = 2_000_000

#: Catalogs of built-in operators, casts and the like hold thousands of rows, which no test changes.
_CATALOGS = """
select relname
from pg_class
where relnamespace = 'pg_catalog'::regnamespace
  and relkind = 'r'
  and not relisshared
  and relname !~ '^pg_(am|op|ts_|cast|conversion|aggregate|init_privs|description|depend)'
order by relname
"""

#: What statements about the database leave outside of its own catalog.
_SHARED = """
select concat_ws(' ', 'database', datallowconn, datconnlimit, datistemplate, datacl,
  (select string_agg(setrole || ' ' || setconfig::text, ', ' order by setrole)
   from pg_db_role_setting
   where setdatabase in (0, d.oid)),
  (select count(*) from pg_prepared_xacts where database = d.datname),
  (select string_agg(concat_ws(' ', relname, relpages, reltuples), ', ' order by relname)
   from pg_class
   where relkind in ('r', 'm') and oid >= 16384))
from pg_database d
where datname = current_database()
"""

_TABLES = """
select oid::regclass::text
from pg_class
where relnamespace = 'holdfast'::regnamespace and relkind = 'r'
order by relname
"""

#: Tables that a test made for itself. Numbers of objects are the same in template and copy.
_MADE_BY_THE_TEST = """
select oid::regclass::text
from pg_class
where relkind in ('r', 'p') and oid >= 16384 and oid <> all ($1)
"""

_NUMBERS = "select oid from pg_class where relkind in ('r', 'p') and oid >= 16384"
_SEQUENCES = "select schemaname, sequencename from pg_sequences"

_OTHERS = """
select count(*)
from pg_stat_activity
where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'
"""


def with_database(url: str, name: str) -> str:
    """The same server, another database."""
    return urlunsplit(urlsplit(url)._replace(path=f"/{name}"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """What a new database looks like, and the statements that compare a used one with it and clear it."""

    name: str
    tables: list[int]
    size: int
    fingerprint: str
    fingerprint_query: str
    seeds: str
    seeds_query: str
    clear: str
    sow: str


class Databases:
    """Makes, lends and takes back databases on one server; with a loop and a connection of its own."""

    def __init__(self, server_url: str) -> None:
        self._url = server_url
        self._loop = asyncio.new_event_loop()
        self._admin = self._run(asyncpg.connect(server_url))
        self._template: Template | None = None
        self._shelf: list[str] = []

    def take(self, *, fresh: bool = False) -> str:
        """The name of a migrated database; a fresh one was never used before."""
        return self._run(self._take(fresh))

    def give_back(self, name: str) -> str | None:
        """Clear it for the next test, or drop it; why it was dropped."""
        return self._run(self._give_back(name))

    def drop(self, name: str) -> None:
        """Take a database away, whoever is connected to it."""
        self._run(self._drop(name))

    def create(self) -> str:
        """The name of a new database with nothing in it."""
        return self._run(self._create())

    def close(self) -> None:
        """Leave nothing on the server."""
        if self._template is not None:
            self._shelf.append(self._template.name)
        for name in self._shelf:
            self.drop(name)
        self._run(self._admin.close())
        self._loop.close()

    async def _take(self, fresh: bool) -> str:
        if fresh or not self._shelf:
            if self._template is None:
                self._template = await self._new_template()
            return await self._create(self._template.name)
        name, used = _name(), self._shelf.pop()
        try:
            await self._admin.execute(f"alter database {used} rename to {name}")
        except asyncpg.ObjectInUseError:
            await self._drop(used)
            return await self._take(fresh)
        return name

    async def _give_back(self, name: str) -> str | None:
        assert self._template is not None
        try:
            async with asyncio.timeout(10):
                conn = await asyncpg.connect(with_database(self._url, name), statement_cache_size=0)
                try:
                    fault = await _emptied(conn, self._template)
                finally:
                    await conn.close()
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError) as failure:
            fault = f"{type(failure).__name__}: {failure}"
        if fault is None:
            self._shelf.append(name)
        else:
            await self._drop(name)
        return fault

    async def _create(self, template: str = "template1") -> str:
        name = _name()
        await self._admin.execute(f"create database {name} template {template}")
        return name

    async def _drop(self, name: str) -> None:
        await self._admin.execute(f"drop database if exists {name} with (force)")

    async def _new_template(self) -> Template:
        name = await self._create()
        url = with_database(self._url, name)
        await migrate(Config.load(environment={}, database_url=url))
        conn = await asyncpg.connect(url)
        try:
            return await _described(conn, name)
        finally:
            await conn.close()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._loop.run_until_complete(work)


async def _described(conn: asyncpg.Connection, name: str) -> Template:
    tables = [row[0] for row in await conn.fetch(_TABLES)]
    seeds = {table: rows for table in tables if (rows := await conn.fetchval(_rows(table))) is not None}
    seeds_query = " union all ".join(f"({_rows(table)})" for table in seeds)
    parts = [
        f"select '{row[0]} ' || count(*) || ' ' || coalesce(sum(xmin::text::bigint), 0) from {row[0]}"
        # Autovacuum analyzes catalogs at any time.
        + (" where starelid >= 16384" if row[0] == "pg_statistic" else "")
        for row in await conn.fetch(_CATALOGS)
    ]
    fingerprint_query = f"select string_agg(line, '; ') from ({' union all '.join([*parts, _SHARED])}) lines (line)"
    restart = [await _restart(conn, *row) for row in await conn.fetch(_SEQUENCES)]
    return Template(
        name=name,
        tables=[row[0] for row in await conn.fetch(_NUMBERS)],
        size=await conn.fetchval("select pg_database_size(current_database())"),
        fingerprint=await conn.fetchval(fingerprint_query),
        fingerprint_query=fingerprint_query,
        seeds=await _lines(conn, seeds_query),
        seeds_query=seeds_query,
        # The guards of the engine and foreign keys are triggers, which do not fire for a replica.
        clear="; ".join(
            [
                "set session_replication_role = replica",
                *(f"delete from {table}" for table in tables if table not in seeds),
                *restart,
            ]
        ),
        sow="; ".join(
            f"delete from {table}; insert into {table}"
            f" select * from json_populate_recordset(null::{table}, {_quoted(rows)})"
            for table, rows in seeds.items()
        ),
    )


async def _emptied(conn: asyncpg.Connection, template: Template) -> str | None:
    """Clear a database that can be cleared; otherwise why it cannot."""
    deadline = monotonic() + SECONDS_TO_LEAVE
    while others := await conn.fetchval(_OTHERS):
        if monotonic() > deadline:
            return f"{others} sessions were left open"
        await asyncio.sleep(0.005)
    if extra := [row[0] for row in await conn.fetch(_MADE_BY_THE_TEST, template.tables)]:
        await conn.execute(f"set client_min_messages = warning; drop table {', '.join(extra)} cascade")
    fingerprint = await conn.fetchval(template.fingerprint_query)
    if fingerprint != template.fingerprint:
        return _difference(template.fingerprint, fingerprint)
    grown = await conn.fetchval("select pg_database_size(current_database())") - template.size
    if grown > BYTES_TO_GROW:
        return f"it has grown by {grown} bytes"
    await conn.execute(template.clear)
    if await _lines(conn, template.seeds_query) != template.seeds:
        await conn.execute(template.sow)
    return None


async def _restart(conn: asyncpg.Connection, schema: str, name: str) -> str:
    sequence = f'"{schema}"."{name}"'
    row = await conn.fetchrow(f"select last_value, is_called from {sequence}")
    assert row is not None
    return f"select setval('{sequence}', {row['last_value']}, {row['is_called']})"


async def _lines(conn: asyncpg.Connection, query: str) -> str:
    return json.dumps([row[0] for row in await conn.fetch(query)])


def _rows(table: str) -> str:
    return f"select json_agg(t order by t::text)::text from {table} t"


def _difference(expected: str, found: str) -> str:
    changed = [new for old, new in zip(expected.split("; "), found.split("; "), strict=False) if old != new]
    return "changed: " + ", ".join(line.split(" ", 1)[0] for line in changed)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _name() -> str:
    return f"hf_test_{uuid4().hex[:12]}"

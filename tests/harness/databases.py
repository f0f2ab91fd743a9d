"""Migrated databases for tests, reused within a process: emptied after each test, renamed before most others.

Making a database takes 40 ms on a quiet machine and up to 190 ms on a busy one; emptying it takes a few. A used
database goes back on the shelf only if it cannot be told from a new one:

1. Nobody is connected to it any more, but for kept sessions.
2. Apart from tables that the test made for itself, which are dropped, its catalog, settings and statistics are those of
   the template: no function, trigger, grant or column was left or changed.
3. It has hardly grown, so neither plans nor counters of buffers feel the tests before.
4. All tables hold the template's rows again, and all sequences stand where they stood.

Anything else is dropped, and the next test gets a new one. The new name keeps out a process that outlived its test. A
database with kept sessions (`tests.harness.sessions`) keeps its name: tests that start processes have none.

PostgreSQL counts the rows that are written to each table, catalogs included, and a session has added its own by the
time it is gone. Where a count has not moved since the last look, nothing is read and nothing is deleted: most tests
write to a few tables, and to no catalog. The session that looks and clears stays with a database that keeps its name.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, replace
from time import monotonic
from typing import Any, TypeVar
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import asyncpg

from holdfast.config import Config
from holdfast.store.kit_databases import prepare
from holdfast.store.migrate import migrate
from tests.harness.sessions import Sessions

T = TypeVar("T")

#: A session that was closed takes a moment to vanish. One that stays longer was forgotten.
SECONDS_TO_LEAVE = 0.5
BYTES_TO_GROW = 2_000_000
#: Fewer rows, of at most 2 kB each in a table and less in an index, cannot make it grow by that much.
ROWS_TO_GROW = 200

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
select oid::regclass::text, oid, reltoastrelid
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

#: How many rows of a table were inserted, updated and deleted.
_CHANGES = " + ".join(f"pg_stat_get_tuples_{verb}(oid)" for verb in ("inserted", "updated", "deleted"))

#: What is counted is read after the last session has gone: not before, because `case` says so.
_LOOK = """
select others.number as others,
  case when others.number = 0 then (
    select to_json(counts)
    from (
      select
        concat_ws(' ', pg_stat_get_bgwriter_stat_reset_time(), pg_stat_get_db_stat_reset_time(db.oid)) as since,
        (select sum({changes}) from unnest({catalogs}::oid[]) oid) as catalogs,
        (select sum({changes}) from unnest({seeded}::oid[]) oid) as seeded,
        (select sum(pg_stat_get_tuples_inserted(oid) + pg_stat_get_tuples_updated(oid))
         from unnest({written}::oid[]) oid) as written,
        array(select pg_stat_get_tuples_inserted(oid) from unnest({tables}::oid[]) oid) as tables,
        ({shared}) as shared) counts)
  end as counts
from pg_database db
cross join lateral (
  select count(*) as number
  from pg_stat_get_activity(null) session
  where session.datid = db.oid and session.backend_type = 'client backend' and session.pid <> pg_backend_pid()
    and session.pid <> all ($1::integer[])
) others
where db.datname = current_database()
"""

_CATALOG_NUMBERS = """
select oid
from pg_class
where relnamespace = 'pg_catalog'::regnamespace and relkind = 'r' and not relisshared
"""


def with_database(url: str, name: str) -> str:
    """The same server, another database."""
    return urlunsplit(urlsplit(url)._replace(path=f"/{name}"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """How many rows PostgreSQL has seen written, and what else tells whether a database was touched."""

    #: When counting began; it begins anew when the counts are reset or lost in a crash.
    since: str
    catalogs: int
    seeded: int
    written: int
    tables: list[int]
    shared: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """What a new database looks like, and the statements that compare a used one with it and clear it."""

    name: str
    tables: list[int]
    size: int
    fingerprint: str
    fingerprint_query: str
    look: str
    counts: Counts
    seeds: str
    seeds_query: str
    delete: list[str]
    restart: list[str]
    sow: str


class Databases:
    """Makes, lends and takes back databases on one server; with a loop and a connection of its own."""

    def __init__(self, server_url: str, sessions: Sessions) -> None:
        self._url = server_url
        self._sessions = sessions
        self._loop = asyncio.new_event_loop()
        self._admin = self._run(asyncpg.connect(server_url))
        self._template: Template | None = None
        self._clocked: str | None = None
        #: Those that may have kept sessions, and those that were lent without any: a test takes one of its own kind, so
        #: that a test without kept sessions does not end those of the test before.
        self._shelf: list[str] = []
        self._shelf_apart: list[str] = []
        self._lent_apart: set[str] = set()
        #: What was counted in each when it was last cleared.
        self._counts: dict[str, Counts] = {}
        #: The sessions that clear them, of those that keep their names.
        self._keepers: dict[str, asyncpg.Connection] = {}

    def take(self, *, fresh: bool = False, rename: bool = False) -> str:
        """The name of a migrated database; a fresh one was never used before, a renamed one has no kept sessions."""
        return self._run(self._take(fresh, rename))

    def give_back(self, name: str) -> str | None:
        """Clear it for the next test, or drop it; why it was dropped."""
        return self._run(self._give_back(name))

    def drop(self, name: str) -> None:
        """Take a database away, whoever is connected to it."""
        self._run(self._drop(name))

    def create(self, template: str = "template1") -> str:
        """The name of a new database with nothing in it, or a copy of another one."""
        self._sessions.forget(template)  # nobody may be connected to what is copied
        return self._run(self._create(template))

    def create_clocked(self) -> str:
        """The name of a new database with the engine and the testing clock in it."""
        return self._run(self._create_clocked())

    def close(self) -> None:
        """Leave nothing on the server."""
        self._sessions.forget()
        if self._template is not None:
            self._shelf.append(self._template.name)
        if self._clocked is not None:
            self._shelf.append(self._clocked)
        for name in (*self._shelf, *self._shelf_apart):
            self.drop(name)
        for keeper in self._keepers.values():
            keeper.terminate()
        self._run(self._admin.close())
        self._loop.close()

    async def _take(self, fresh: bool, rename: bool) -> str:
        name = await self._taken(fresh, rename)
        if rename:
            self._lent_apart.add(name)
        return name

    async def _taken(self, fresh: bool, rename: bool) -> str:
        shelf = self._shelf_apart if rename else self._shelf
        if fresh or not shelf:
            if self._template is None:
                self._template = await self._new_template()
            return await self._create(self._template.name)
        used = shelf.pop()
        if rename:
            self._sessions.forget(used)
        elif self._sessions.idle(used):
            return used
        name = _name()
        await self._dismiss(used)
        try:
            await self._admin.execute(f"alter database {used} rename to {name}")
        except asyncpg.ObjectInUseError:
            await self._drop(used)
            return await self._taken(fresh, rename)
        self._counts[name] = self._counts.pop(used)
        return name

    async def _give_back(self, name: str) -> str | None:
        assert self._template is not None
        shelf = self._shelf_apart if name in self._lent_apart else self._shelf
        try:
            async with asyncio.timeout(10):
                conn = self._keepers.get(name) or await self._keeper(name)
                known = self._counts.get(name, self._template.counts)
                self._counts[name] = await _cleared(conn, self._template, known, lambda: self._sessions.idle(name))
                if name in self._lent_apart or not self._sessions.idle(name):
                    await self._dismiss(name)
                fault = None
        except _CannotBeClearedError as reason:
            fault = str(reason)
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError) as failure:
            fault = f"{type(failure).__name__}: {failure}"
        if fault is None:
            shelf.append(name)
            self._lent_apart.discard(name)
        else:
            await self._drop(name)
        return fault

    async def _create(self, template: str = "template1") -> str:
        name = _name()
        # Copying files takes less than half of the processor time of copying page by page through the log.
        await self._admin.execute(f"create database {name} template {template} strategy file_copy")
        return name

    async def _create_clocked(self) -> str:
        if self._clocked is None:
            name = await self._create()
            config = Config.load(environment={}, database_url=with_database(self._url, name))
            await prepare(replace(config, origins={**config.origins, "database_url": "testing"}))
            self._clocked = name
        return await self._create(self._clocked)

    async def _keeper(self, name: str) -> asyncpg.Connection:
        # The guards of the engine and foreign keys are triggers, which do not fire for a replica.
        settings = {"session_replication_role": "replica", "client_min_messages": "warning"}
        self._keepers[name] = await asyncpg.connect(with_database(self._url, name), server_settings=settings)
        return self._keepers[name]

    async def _dismiss(self, name: str) -> None:
        if (keeper := self._keepers.pop(name, None)) is not None:
            await keeper.close(timeout=5)

    async def _drop(self, name: str) -> None:
        if (keeper := self._keepers.pop(name, None)) is not None:
            keeper.terminate()
        self._counts.pop(name, None)
        self._lent_apart.discard(name)
        self._sessions.forget(name)
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
            self._sessions.forget(name)  # nobody may be connected to what is copied

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._loop.run_until_complete(work)


async def _described(conn: asyncpg.Connection, name: str) -> Template:
    relations = await conn.fetch(_TABLES)
    tables = [row[0] for row in relations]
    seeds = {table: rows for table in tables if (rows := await conn.fetchval(_rows(table))) is not None}
    seeds_query = " union all ".join(f"({_rows(table)})" for table in seeds)
    parts = [
        f"select '{row[0]} ' || count(*) || ' ' || coalesce(sum(xmin::text::bigint), 0) from {row[0]}"
        # Autovacuum analyzes catalogs at any time.
        + (" where starelid >= 16384" if row[0] == "pg_statistic" else "")
        for row in await conn.fetch(_CATALOGS)
    ]
    fingerprint_query = f"select string_agg(line, '; ') from ({' union all '.join([*parts, _SHARED])}) lines (line)"
    empty = [row for row in relations if row[0] not in seeds]
    look = _LOOK.format(
        changes=_CHANGES,
        catalogs=_numbers(row[0] for row in await conn.fetch(_CATALOG_NUMBERS)),
        seeded=_numbers(row[1] for row in relations if row[0] in seeds),
        written=_numbers(number for row in relations for number in row[1:]),
        tables=_numbers(row[1] for row in empty),
        shared=_SHARED,
    )
    return Template(
        name=name,
        tables=[row[0] for row in await conn.fetch(_NUMBERS)],
        size=await conn.fetchval("select pg_database_size(current_database())"),
        fingerprint=await conn.fetchval(fingerprint_query),
        fingerprint_query=fingerprint_query,
        look=look,
        # A copy is counted from zero.
        counts=Counts(
            since=await conn.fetchval("select pg_stat_get_bgwriter_stat_reset_time()::text"),
            catalogs=0,
            seeded=0,
            written=0,
            tables=[0] * len(empty),
            shared=await conn.fetchval(_SHARED),
        ),
        seeds=await _lines(conn, seeds_query),
        seeds_query=seeds_query,
        delete=[f"delete from {row[0]}" for row in empty],
        restart=[await _restart(conn, *row) for row in await conn.fetch(_SEQUENCES)],
        sow="; ".join(
            f"delete from {table}; insert into {table}"
            f" select * from json_populate_recordset(null::{table}, {_quoted(rows)})"
            for table, rows in seeds.items()
        ),
    )


class _CannotBeClearedError(Exception):
    """Why a database is dropped."""


async def _cleared(
    conn: asyncpg.Connection, template: Template, known: Counts, idle: Callable[[], list[int]]
) -> Counts:
    """Clear a database that can be cleared; what is then counted in it."""
    counts = await _left(conn, template, idle)
    is_counted = counts.since == known.since
    changes_catalog = not is_counted or counts.catalogs != known.catalogs
    changes_seeds = not is_counted or counts.seeded != known.seeded
    if changes_catalog:
        await _drop_tables(conn, template)
    if changes_catalog or counts.shared != known.shared:
        fingerprint = await conn.fetchval(template.fingerprint_query)
        if fingerprint != template.fingerprint:
            raise _CannotBeClearedError(_difference(template.fingerprint, fingerprint))
    if not is_counted or counts.written > known.written + ROWS_TO_GROW:
        grown = await conn.fetchval("select pg_database_size(current_database())") - template.size
        if grown > BYTES_TO_GROW:
            raise _CannotBeClearedError(f"it has grown by {grown} bytes")
    else:
        counts = replace(counts, written=known.written)
    statements = [
        statement
        for statement, now, before in zip(template.delete, counts.tables, known.tables, strict=True)
        if not is_counted or now != before
    ]
    await conn.execute("; ".join([*statements, *template.restart]))
    if changes_seeds and await _lines(conn, template.seeds_query) != template.seeds:
        await conn.execute(template.sow)
    if changes_catalog or changes_seeds:
        # What was done here is counted too, at the end of a transaction that asks for it.
        await conn.execute("select pg_stat_force_next_flush()")
        counts = replace(await _left(conn, template, idle), written=counts.written)
    return counts


async def _left(conn: asyncpg.Connection, template: Template, idle: Callable[[], list[int]]) -> Counts:
    """What is counted once all sessions have left, but for those that are kept."""
    deadline = monotonic() + SECONDS_TO_LEAVE
    while True:
        row = await conn.fetchrow(template.look, idle())
        assert row is not None
        if not row["others"]:
            return Counts(**json.loads(row["counts"]))
        if monotonic() > deadline:
            raise _CannotBeClearedError(f"{row['others']} sessions were left open")
        await asyncio.sleep(0.005)


async def _drop_tables(conn: asyncpg.Connection, template: Template) -> None:
    if extra := [row[0] for row in await conn.fetch(_MADE_BY_THE_TEST, template.tables)]:
        await conn.execute(f"drop table {', '.join(extra)} cascade")


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


def _numbers(numbers: Iterable[int]) -> str:
    return "'{" + ",".join(map(str, numbers)) + "}'"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _name() -> str:
    return f"hf_test_{uuid4().hex[:12]}"

"""A database that one test used is as good as new for the next, or it is gone."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import asyncpg
import pytest

from holdfast import Context, Holdfast
from tests.harness.databases import Databases, with_database
from tests.harness.sessions import Sessions

RELATIONS = """
select oid::regclass::text
from pg_class
where relnamespace = 'holdfast'::regnamespace and relkind in ('r', 'S')
"""


@pytest.fixture(scope="module")
def mine(server_url: str) -> Iterator[Databases]:
    """Databases of these tests' own."""
    databases = Databases(server_url, Sessions())
    yield databases
    databases.close()


async def content(url: str) -> dict[str, list[str]]:
    """All rows of all tables, and where the sequences stand."""
    conn = await asyncpg.connect(url)
    try:
        names = [row[0] for row in await conn.fetch(RELATIONS)]
        return {name: sorted(str(row) for row in await conn.fetch(f"select * from {name}")) for name in names}
    finally:
        await conn.close()


async def execute(url: str, statement: str) -> None:
    conn = await asyncpg.connect(url)
    try:
        await conn.execute(statement)
    finally:
        await conn.close()


async def use(url: str) -> None:
    """Leave rows of many kinds, among them some that cannot be deleted: an open job and an entry of the audit log."""
    async with Holdfast(url) as hf:

        @hf.job("greet")
        async def greet(ctx: Context, name: str) -> str:
            return name

        await hf.enqueue("greet", {"name": "Ada"}, target="one", dedup_key="a")
        await hf.enqueue("greet", {"name": "Ada"}, target="one")
        operations = await hf.operations()
        await operations.keys.create("a key", scopes=["admin"], tenant="default", by="a test")
    await execute(url, "update holdfast.settings set value = default_value")
    await execute(url, "create table public.notes (text text)")


def test_a_used_one_is_as_new_and_has_another_name(mine: Databases, server_url: str) -> None:
    first = mine.take()
    new = asyncio.run(content(with_database(server_url, first)))
    asyncio.run(use(with_database(server_url, first)))
    assert asyncio.run(content(with_database(server_url, first))) != new
    assert mine.give_back(first) is None
    second = mine.take()
    assert second != first
    assert asyncio.run(content(with_database(server_url, second))) == new
    with pytest.raises(asyncpg.InvalidCatalogNameError):
        asyncio.run(content(with_database(server_url, first)))
    assert mine.give_back(second) is None


@pytest.mark.parametrize(
    ("statement", "fault"),
    [
        ("create function public.double(n int) returns int language sql as 'select 2 * n'", "pg_proc"),
        ("alter table holdfast.jobs disable trigger all", "pg_trigger"),
        ("grant select on holdfast.jobs to public", "pg_class"),
        ("create index on holdfast.jobs (created_at)", "pg_index"),
        ("alter table holdfast.jobs add column extra int", "pg_attribute"),
        ("create schema extra", "pg_namespace"),
        ("create type public.extra as enum ('a')", "pg_type"),
        ("do $$ begin execute format('alter database %I set jit = off', current_database()); end $$", "database"),
        ("do $$ begin execute format('alter database %I connection limit 9', current_database()); end $$", "database"),
        ("analyze holdfast.settings", "pg_statistic"),
        ("create table public.extra as select repeat('x', 100) from generate_series(1, 30000)", None),
        ("insert into holdfast.audit_log (actor, action) select 'x', 'x' from generate_series(1, 40000)", "grown"),
    ],
)
def test_what_cannot_be_cleared_is_not_used_again(
    mine: Databases, server_url: str, statement: str, fault: str | None
) -> None:
    name = mine.take()
    asyncio.run(execute(with_database(server_url, name), statement))
    found = mine.give_back(name)
    assert found is None if fault is None else fault in str(found)
    assert mine.give_back(mine.take()) is None


def test_one_with_an_open_session_is_taken_from_it(mine: Databases, server_url: str) -> None:
    name = mine.take()

    async def forget() -> None:
        conn = await asyncpg.connect(with_database(server_url, name))
        found = await asyncio.to_thread(mine.give_back, name)
        assert "session" in str(found)
        with pytest.raises((asyncpg.InterfaceError, asyncpg.AdminShutdownError, OSError)):
            await conn.execute("select 1")

    asyncio.run(forget())


def test_a_fresh_one_was_never_used(mine: Databases) -> None:
    used = mine.take()
    assert mine.give_back(used) is None
    assert mine.take(fresh=True) != used


def test_one_that_is_lent_without_kept_sessions_ends_nobody_elses(server_url: str) -> None:
    forgotten: list[str | None] = []

    class Watched(Sessions):
        def forget(self, database: str | None = None) -> None:
            forgotten.append(database)
            super().forget(database)

    databases = Databases(server_url, Watched())
    try:
        used = databases.take()
        assert databases.give_back(used) is None
        for _ in range(2):
            apart = databases.take(rename=True)
            assert apart != used
            assert databases.give_back(apart) is None
        assert used not in forgotten
    finally:
        databases.close()


def test_the_session_that_clears_one_stays_with_it(server_url: str, kept_sessions: Sessions) -> None:
    databases = Databases(server_url, kept_sessions)

    async def others(url: str) -> list[int]:
        conn = await asyncpg.connect(url)
        try:
            rows = await conn.fetch(
                "select pid from pg_stat_activity"
                " where datname = current_database() and backend_type = 'client backend' and pid <> pg_backend_pid()"
            )
        finally:
            await conn.close()
        return [row["pid"] for row in rows]

    try:
        found = []
        for _ in range(3):
            name = databases.take()
            with kept_sessions.kept():
                found.append((name, asyncio.run(others(with_database(server_url, name)))))
                assert databases.give_back(name) is None
        assert found[0][1] == []
        assert len(found[1][1]) == 1
        assert found[1] == found[2]
    finally:
        databases.close()

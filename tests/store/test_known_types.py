"""PostgreSQL's own types are looked up once per process, a database's own by every connection."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from holdfast.store import known_types
from holdfast.store.known_types import Connection


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[set[int]]:
    """The types that the server was asked for, question by question; nothing is known at first."""
    questions: list[set[int]] = []
    ask = asyncpg.Connection._introspect_types  # type: ignore[attr-defined]

    async def count(self: asyncpg.Connection, typeoids: Any, *arguments: Any) -> Any:
        questions.append(set(typeoids))
        return await ask(self, typeoids, *arguments)

    monkeypatch.setattr(asyncpg.Connection, "_introspect_types", count)
    monkeypatch.setattr(known_types, "_learned", {})
    return questions


@pytest.mark.parametrize("cached_statements", [0, 100])
async def test_an_array_is_looked_up_once(database_url: str, asked: list[set[int]], cached_statements: int) -> None:
    ids, numbers = [uuid4(), uuid4()], [1, 2, None]
    async with AsyncExitStack() as stack:
        for _ in range(3):
            conn = await _connected(stack, database_url, cached_statements)
            for _ in range(2):
                assert await conn.fetchval("select $1::uuid[]", ids) == ids
                assert await conn.fetchval("select $1::integer[]", numbers) == numbers
    assert len(asked) == 2


@pytest.mark.parametrize("cached_statements", [0, 100])
async def test_a_type_of_the_database_is_looked_up_by_every_connection(
    database_url: str, asked: list[set[int]], cached_statements: int
) -> None:
    async with AsyncExitStack() as stack:
        for kind in ("integer", "text"):
            conn = await _connected(stack, database_url, cached_statements)
            await conn.execute(f"drop type if exists public.pair; create type public.pair as (a {kind}, b {kind})")
            a, b = await conn.fetchval("select row('1', '2')::public.pair")
            assert [a, b] == ([1, 2] if kind == "integer" else ["1", "2"])
    assert len(asked) == 2


async def _connected(stack: AsyncExitStack, url: str, cached_statements: int) -> asyncpg.Connection:
    conn: asyncpg.Connection = await asyncpg.connect(
        url, connection_class=Connection, statement_cache_size=cached_statements
    )
    stack.push_async_callback(conn.close)
    return conn

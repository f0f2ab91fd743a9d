"""Of several servers the primary is found, in time, whatever becomes of the others; and errors name the address."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import asyncpg
import pytest

from holdfast import Holdfast
from holdfast.errors import DatabaseUnavailable
from holdfast.store import connections as pool
from holdfast.store import servers
from holdfast.store.embedded import EmbeddedPostgres
from tests.harness.homes import copy_home, new_folder
from tests.harness.slowness import Slowness
from tests.harness.waiting import until
from tests.lines import BlackHole, Line, over_lines


@pytest.fixture(autouse=True)
def _nothing_is_known_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "_good", {})
    monkeypatch.setattr(servers, "_HOST_SECONDS", 1.0)


@pytest.fixture
def black_hole() -> Iterator[BlackHole]:
    hole = BlackHole()
    yield hole
    hole.close()


@pytest.fixture
async def line(database_url: str) -> AsyncIterator[Line]:
    async with Line(database_url).running() as running:
        yield running


async def test_a_server_that_swallows_packets_costs_only_its_own_limit(
    database_url: str, line: Line, black_hole: BlackHole, slow: Slowness
) -> None:
    url = over_lines(database_url, black_hole.port, line.port)
    began = time.monotonic()
    conn = await servers.open_connection({"dsn": url})
    assert time.monotonic() - began < 3, "not the whole time"
    await conn.close()
    began = time.monotonic()
    conn = await servers.open_connection({"dsn": url})
    assert time.monotonic() - began < 0.5 * slow.factor, "the one that was good last is tried first"
    assert await conn.fetchval("select 1") == 1
    await conn.close()


async def test_a_server_that_takes_the_connection_and_says_nothing_is_left_too(database_url: str, line: Line) -> None:
    async with Line(database_url).running() as frozen:
        frozen.freeze()
        conn = await servers.open_connection({"dsn": over_lines(database_url, frozen.port, line.port)})
        await conn.close()
        assert frozen.accepted == 1


async def test_a_server_that_is_only_slow_gets_the_rest_of_the_time(database_url: str, black_hole: BlackHole) -> None:
    async with Line(database_url).running() as slow:
        slow.freeze()
        asyncio.get_running_loop().call_later(1.5, slow.thaw)
        conn = await servers.open_connection({"dsn": over_lines(database_url, slow.port, black_hole.port)})
        assert await conn.fetchval("select 1") == 1
        await conn.close()


async def test_all_hosts_away_is_told_in_time_and_by_name(database_url: str, black_hole: BlackHole) -> None:
    url = over_lines(database_url, black_hole.port, 1)
    began = time.monotonic()
    with pytest.raises(DatabaseUnavailable) as told:
        await servers.open_connection({"dsn": url}, 1.5)
    assert time.monotonic() - began < 3
    assert f"127.0.0.1:{black_hole.port}" in str(told.value)
    assert "127.0.0.1:1: nothing listens there; is it running?" in str(told.value)


async def test_a_missing_socket_is_told_in_words(tmp_path: Path) -> None:
    with pytest.raises(DatabaseUnavailable) as told:
        await servers.open_connection({"dsn": f"postgresql://u@/db?host={tmp_path}&port=5433"})
    assert str(told.value) == (
        f"PostgreSQL cannot be reached at {tmp_path}/.s.PGSQL.5433: nothing listens there; is it running?"
    )


@pytest.fixture
async def pair() -> AsyncIterator[tuple[EmbeddedPostgres, EmbeddedPostgres]]:
    """Two servers with the same login and data; which one takes writes is decided by the test."""
    home = new_folder("hf-pair-")
    first, second = (EmbeddedPostgres(copy_home(home / name)) for name in "ab")
    try:
        await asyncio.gather(asyncio.to_thread(first.start), asyncio.to_thread(second.start))
        yield first, second
        await asyncio.gather(asyncio.to_thread(first.stop), asyncio.to_thread(second.stop))
    finally:
        shutil.rmtree(home, ignore_errors=True)


@pytest.mark.slow
async def test_the_pool_leaves_a_server_that_takes_no_writes_any_more(
    pair: tuple[EmbeddedPostgres, EmbeddedPostgres], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "DOUBT_SECONDS", 0.2)
    first, second = pair
    await _set_read_only(second, True)
    async with AsyncExitStack() as stack:
        one, two = [await stack.enter_async_context(Line(server.url).running()) for server in pair]
        url = over_lines(first.url, two.port, one.port)
        app = await stack.enter_async_context(Holdfast(url))
        await app.enqueue("before")
        assert await _jobs(first) == 1
        assert await _jobs(second) == 0
        # A failover: the first is demoted with all its connections alive, the second takes over.
        await asyncio.sleep(0.3)
        await _set_read_only(second, False)
        await _set_read_only(first, True)

        began = time.monotonic()
        await app.enqueue("after")  # refused there, of which nothing was done, and sent to the other
        assert time.monotonic() - began < 3
        assert await _jobs(second) == 1


async def _set_read_only(server: EmbeddedPostgres, on: bool) -> None:
    conn = await asyncpg.connect(server.url)
    try:
        await conn.execute(f"alter system set default_transaction_read_only = {'on' if on else 'off'}")
        await conn.execute("select pg_reload_conf()")

        async def applied() -> bool:
            return bool((await conn.fetchval("show default_transaction_read_only") == "on") == on)

        await until(applied)
    finally:
        await conn.close()


async def _jobs(server: EmbeddedPostgres) -> int:
    conn = await asyncpg.connect(server.url)
    try:
        return int(await conn.fetchval("select count(*) from holdfast.jobs"))
    finally:
        await conn.close()

"""How long the server stays: while it is used, whichever way, and for the stay that was granted."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import asyncpg

from holdfast.store.embedded import status
from holdfast.store.embedded_locks import is_locked
from tests.store.embedded.kit import answers, eventually, keeper_pid, query, server_for


def look_again(home: Path, times: int = 4) -> None:
    """Let the keeper look so often; it looks four times a second."""
    deadline = time.monotonic() + times * 0.25 + 0.1
    while time.monotonic() < deadline:
        assert status(home).running
        time.sleep(0.02)


def while_connected(url: str, act: Callable[[asyncpg.Connection], Awaitable[object]]) -> None:
    async def run() -> None:
        connection = await asyncpg.connect(url)
        await act(connection)
        await connection.close()

    asyncio.run(run())


def test_connected_program_keeps_the_server(home: Path) -> None:
    server = server_for(home)
    url = server.start()

    async def outlast(connection: asyncpg.Connection) -> None:
        server.release()
        for _ in range(2):
            await asyncio.to_thread(look_again, home)
            assert await connection.fetchval("select 1") == 1

    while_connected(url, outlast)
    eventually(lambda: not status(home).running)


def test_prepared_transaction_keeps_the_server(home: Path) -> None:
    server = server_for(home, max_prepared_transactions="5")
    url = server.start()

    async def prepare(connection: asyncpg.Connection) -> None:
        await connection.execute("begin")
        await connection.execute("create table kept ()")
        await connection.execute("prepare transaction 'one'")

    while_connected(url, prepare)
    server.release()
    look_again(home, 6)
    query(url, "commit prepared 'one'")
    eventually(lambda: not status(home).running)


def test_stay_counts_from_the_hand_out(home: Path) -> None:
    """Asked for at any moment around the end of the last user, the URL is good."""
    for tenths in (0, 2, 3, 5):
        last = server_for(home)
        last.start()
        last.release()
        time.sleep(tenths / 10)
        with server_for(home) as server:
            server.stay(5)
            url = server.url
        # Without a connection, which would be a use of its own.
        look_again(home, 3)
        assert answers(url)
        server.stop()


def test_stay_is_renewed_by_connections_and_then_ends(home: Path) -> None:
    with server_for(home) as server:
        server.stay(1.5)
        url = server.url
    postmaster = status(home).pid
    for _ in range(5):
        time.sleep(0.8)
        assert answers(url)
        assert status(home).pid == postmaster
    eventually(lambda: not status(home).running)
    eventually(lambda: not (home / "postgres" / "stay").exists())


def test_new_keeper_heeds_the_stay_of_the_old(home: Path) -> None:
    with server_for(home) as server:
        server.stay(60)
        os.kill(keeper_pid(home), signal.SIGKILL)
        eventually(lambda: not is_locked(home / "postgres" / "keeper.lock"))
        server.start()
    look_again(home, 6)
    os.kill(keeper_pid(home), signal.SIGTERM)
    eventually(lambda: not status(home).running)


def test_stop_ends_the_stay_and_an_old_one_counts_for_nothing(home: Path) -> None:
    server = server_for(home)
    server.start()
    server.stay(60)
    server.stop()
    stay = home / "postgres" / "stay"
    assert not stay.exists()
    stay.write_text("60")
    os.utime(stay, (time.time() - 100, time.time() - 100))
    server.start()
    server.release()
    eventually(lambda: not status(home).running)

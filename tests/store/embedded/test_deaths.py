"""Deaths of keeper, postmaster, backends and users, at various moments."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import asyncpg
import pytest

from holdfast.store.embedded import status
from holdfast.store.embedded_locks import is_locked
from tests.store.embedded.kit import (
    User,
    answers,
    command_of,
    eventually,
    is_alive,
    keeper_pid,
    processes,
    query,
    restart,
    server_for,
    server_processes,
)


def test_killed_keeper_is_replaced_and_the_server_adopted(home: Path, join: Callable[[Path], User]) -> None:
    first = join(home)
    url = first.line()
    postmaster, keeper = status(home).pid, keeper_pid(home)
    os.kill(keeper, signal.SIGKILL)
    eventually(lambda: not is_alive(keeper))
    second = join(home)
    assert second.line() == url
    assert status(home).pid == postmaster
    assert keeper_pid(home) != keeper
    first.kill()
    second.kill()
    eventually(lambda: not status(home).running)


def test_stop_reaches_a_server_without_keeper(home: Path) -> None:
    server = server_for(home)
    server.start()
    keeper = keeper_pid(home)
    os.kill(keeper, signal.SIGKILL)
    eventually(lambda: not is_alive(keeper))
    server.stop()
    assert server_processes(home) == []


def test_killed_postmaster_is_started_again_with_its_data(home: Path) -> None:
    with server_for(home) as server:
        query(server.url, "create table kept as select 42 as number")
        restart(server)
        restart(server)
        assert query(server.url, "select number from kept") == 42


def test_busy_backend_of_a_killed_postmaster_does_not_block_the_restart(home: Path) -> None:
    async def busy(url: str, killed: int) -> None:
        connection = await asyncpg.connect(url)
        loop = "do $$ begin loop null; end loop; end $$"
        running = asyncio.create_task(connection.execute(loop))
        watcher = await asyncpg.connect(url)
        active = "select count(*) from pg_stat_activity where query like 'do %' and state = 'active'"
        while not await watcher.fetchval(active):
            await asyncio.sleep(0.01)
        os.kill(killed, signal.SIGKILL)
        with pytest.raises((OSError, asyncpg.PostgresError, asyncpg.InterfaceError)):
            await running
        watcher.terminate()

    with server_for(home) as server:
        killed = server.postmaster_pid()
        assert killed
        asyncio.run(busy(server.url, killed))
        eventually(lambda: answers(server.url))


def test_everything_killed_recovers(home: Path, join: Callable[[Path], User]) -> None:
    only = join(home)
    query(only.line(), "create table kept as select 42 as number")
    keeper = keeper_pid(home)
    os.kill(keeper, signal.SIGKILL)
    only.kill()
    killed = server_processes(home)
    assert len(killed) > 3
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    eventually(lambda: server_processes(home) == [])
    assert (home / "postgres" / "data" / "postmaster.pid").exists()
    with server_for(home) as server:
        assert query(server.url, "select number from kept") == 42


def test_stale_pid_of_another_process_is_not_taken_for_the_server(home: Path) -> None:
    data = home / "postgres" / "data"
    owner = data.stat().st_uid
    stranger = subprocess.Popen(["sleep", "100"], user=owner)
    try:
        pid_file = data / "postmaster.pid"
        pid_file.write_text(f"{stranger.pid}\n{data}\n1700000000\n5432\n{home}\n\n\nready   \n")
        os.chown(pid_file, owner, -1)
        assert not status(home).running
        with server_for(home) as server:
            assert answers(server.url)
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_cluster_whose_maker_was_killed_is_made_anew(empty_home: Path, join: Callable[[Path], User]) -> None:
    """Its initdb goes on for a while, and is waited for."""
    folder = empty_home / "postgres"
    first = join(empty_home)
    eventually(lambda: bool(list(folder.glob("data.new-*/base"))))
    initdb = next(pid for pid in processes() if f"--pgdata={folder}" in command_of(pid))
    os.kill(initdb, signal.SIGSTOP)
    first.kill()
    assert is_locked(folder / "start.lock")
    os.kill(initdb, signal.SIGCONT)
    with server_for(empty_home) as server:
        assert answers(server.url)
        assert list(folder.glob("data.new-*")) == []
    server.stop()
    assert list(folder.glob("data.new-*")) == []


def test_suspended_keeper_harms_nobody(home: Path, join: Callable[[Path], User]) -> None:
    server = server_for(home)
    url = server.start()
    keeper = keeper_pid(home)
    os.kill(keeper, signal.SIGSTOP)
    server.release()
    second = join(home)
    assert second.line() == url
    assert answers(url)
    os.kill(keeper, signal.SIGCONT)
    second.kill()
    eventually(lambda: server_processes(home) == [])

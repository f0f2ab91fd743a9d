"""Starting, sharing and stopping the embedded server."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import asyncpg
import pytest

from holdfast.store.embedded import EmbeddedError, EmbeddedPostgres, status
from holdfast.store.embedded_locks import is_locked
from tests.harness import warm
from tests.store.embedded.kit import (
    User,
    answers,
    eventually,
    is_alive,
    keeper_pid,
    mode,
    query,
    server_for,
    server_processes,
)

STARTS = """
import signal, sys
from pathlib import Path
from holdfast.store.embedded import EmbeddedPostgres

server = EmbeddedPostgres(Path(sys.argv[1]), stop_after_seconds=0.2)
print(server.start(), flush=True)
signal.pause()
"""


def test_start_gives_a_url_that_works_and_a_private_folder(empty_home: Path) -> None:
    with server_for(empty_home) as server:
        assert server.start() == server.url
        assert query(server.url, "select current_database() || ' ' || current_user") == "holdfast postgres"
        assert query(server.url, "show fsync") == "on"
        assert query(server.url, "show data_checksums") == "on"
        assert query(server.url, "show listen_addresses") == ""
    folder = empty_home / "postgres"
    assert [mode(empty_home), mode(folder), mode(folder / "data")] == [0o700] * 3
    assert mode(folder / "password") == 0o600


def test_wrong_password_is_refused(home: Path) -> None:
    with server_for(home) as server:
        password = (home / "postgres" / "password").read_text()
        with pytest.raises(asyncpg.InvalidPasswordError):
            query(server.url.replace(password, "guess"), "select 1")


def test_settings_reach_the_server(home: Path) -> None:
    with server_for(home, work_mem="7MB") as server:
        assert query(server.url, "show work_mem") == "7MB"


def test_status_tells_without_starting(empty_home: Path) -> None:
    assert not status(empty_home).running
    assert not empty_home.exists()
    with server_for(empty_home) as server:
        seen = status(empty_home)
        assert (seen.running, seen.pid, seen.version) == (True, server.postmaster_pid(), "18")
        assert (seen.url, seen.data_directory) == (server.url, empty_home / "postgres" / "data")
    server.stop()
    assert not status(empty_home).running
    assert status(empty_home).url is None


def test_data_survives_stop_and_start(home: Path) -> None:
    server = server_for(home)
    query(server.start(), "create table kept as select 42 as number")
    server.stop()
    assert server.postmaster_pid() is None
    assert query(server.start(), "select number from kept") == 42


def test_url_needs_a_start(home: Path) -> None:
    with pytest.raises(EmbeddedError, match="start"):
        _ = server_for(home).url


def test_twenty_processes_at_once_make_one_server(empty_home: Path, tmp_path: Path) -> None:
    script = tmp_path / "user.py"
    script.write_text(STARTS)
    outputs = [tmp_path / f"output-{number}" for number in range(20)]
    with ExitStack() as stack:
        for output in outputs:
            with output.open("wb") as file:
                user = warm.Process([str(script), str(empty_home)], env=os.environ, cwd=tmp_path, stdout=file)
            stack.callback(user.wait)
            stack.callback(user.kill)
        eventually(lambda: all(output.read_text().endswith("\n") for output in outputs), seconds=60)
        urls = {output.read_text() for output in outputs}
        assert len(urls) == 1, urls
        assert answers(urls.pop().strip())
    assert (empty_home / "postgres" / "server.log").read_text().count("starting PostgreSQL") == 1


def test_killed_user_leaves_no_server(home: Path, join: Callable[[Path], User]) -> None:
    only = join(home)
    assert only.line()
    keeper = keeper_pid(home)
    only.kill()
    eventually(lambda: not status(home).running and not is_alive(keeper))
    assert server_processes(home) == []


def test_server_stays_while_one_user_is_left(home: Path, join: Callable[[Path], User]) -> None:
    first, second = join(home), join(home)
    url = first.line()
    assert second.line() == url
    postmaster = status(home).pid
    first.kill()
    visitor = server_for(home)
    visitor.start()
    visitor.release()
    # The keeper looks four times a second: two looks find the second user still there.
    deadline = time.monotonic() + 0.8
    while time.monotonic() < deadline:
        assert status(home).pid == postmaster
        assert answers(url)


def test_users_may_come_while_the_server_is_stopping(home: Path) -> None:
    log = home / "postgres" / "server.log"
    server = EmbeddedPostgres(home, stop_after_seconds=0)
    for stops in range(8):
        assert answers(server.start())
        server.release()
        eventually(lambda stops=stops: log.read_text().count("stops the server") > stops)  # type: ignore[misc]
    assert answers(server.start())
    server.release()


def test_stopping_keeper_keeps_users_out_until_the_server_is_gone(home: Path) -> None:
    log = home / "postgres" / "server.log"
    server = EmbeddedPostgres(home, stop_after_seconds=0)
    server.start()
    stopping = server.postmaster_pid()
    # It still answers, and cannot end: that takes a checkpoint.
    checkpointer = query(server.url, "select pid from pg_stat_activity where backend_type = 'checkpointer'")
    assert isinstance(checkpointer, int)
    os.kill(checkpointer, signal.SIGSTOP)
    server.release()
    eventually(lambda: "stops the server" in log.read_text())
    assert is_locked(home / "postgres" / "users.lock")
    with ThreadPoolExecutor() as threads:
        arrival = threads.submit(server.start)
        os.kill(checkpointer, signal.SIGCONT)
        assert answers(arrival.result(timeout=30))
    assert server.postmaster_pid() != stopping
    server.release()


def test_short_visits_keep_the_server(home: Path) -> None:
    visitor = EmbeddedPostgres(home, stop_after_seconds=0.6)
    visitor.start()
    postmaster = visitor.postmaster_pid()
    deadline = time.monotonic() + 1.5
    while time.monotonic() < deadline:
        visitor.release()
        time.sleep(0.05)
        visitor.start()
        assert visitor.postmaster_pid() == postmaster
    visitor.release()


def test_interrupted_terminal_does_not_stop_the_server(home: Path, join: Callable[[Path], User]) -> None:
    only = join(home)
    assert only.line()
    postmaster = status(home).pid
    os.killpg(only.process.pid, signal.SIGINT)
    assert only.line() == "answer postgres"
    assert status(home).pid in (postmaster, None)


def test_sigterm_lets_the_keeper_wait_for_its_users(home: Path) -> None:
    with server_for(home) as server:
        os.kill(keeper_pid(home), signal.SIGTERM)
        deadline = time.monotonic() + 0.6
        while time.monotonic() < deadline:
            assert answers(server.url)
    eventually(lambda: not status(home).running)


def test_long_log_is_trimmed(home: Path) -> None:
    log = home / "postgres" / "server.log"
    log.write_bytes(b"x" * 11_000_000)
    with server_for(home):
        eventually(lambda: log.stat().st_size < 1_000_000)
    assert log.with_name("server.log.1").stat().st_size >= 11_000_000

"""One data folder, two process namespaces (as two containers with one volume): never two servers.

`server.lock` tells whether a server lives: on the other side, the process id in `postmaster.pid` means another process
or none.
"""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.store.embedded import EmbeddedError, EmbeddedPostgres, status
from holdfast.store.embedded_locks import is_locked
from holdfast.store.embedded_postmaster import find_holder
from tests.store.embedded.kit import (
    User,
    answers,
    eventually,
    is_alive,
    keeper_pid,
    query,
    server_for,
    server_processes,
)

INSIDE = ("unshare", "--pid", "--ipc", "--mount-proc", "--fork", "--kill-child")


@pytest.fixture
def join_inside() -> Iterator[Callable[[Path], User]]:
    """Users in a process namespace of their own."""
    if subprocess.run([*INSIDE, "true"], capture_output=True).returncode:
        pytest.skip("this user may not make process namespaces")
    users: list[User] = []

    def join(home: Path) -> User:
        users.append(User(home, INSIDE))
        return users[-1]

    yield join
    for each in users:
        each.kill()


def kill_keeper(home: Path) -> None:
    lock = home / "postgres" / "keeper.lock"
    keeper = find_holder(keeper_pid(home), lock)
    assert keeper
    os.kill(keeper, signal.SIGKILL)
    eventually(lambda: not is_locked(lock))


def starts(home: Path) -> int:
    return (home / "postgres" / "server.log").read_text().count("starting PostgreSQL")


def test_server_whose_keeper_died_outside_is_used_inside(home: Path, join_inside: Callable[[Path], User]) -> None:
    outside = server_for(home)
    url = outside.start()
    query(url, "create table kept as select 42 as number")
    postmaster = outside.postmaster_pid()
    kill_keeper(home)
    inside = join_inside(home)
    assert inside.line() == url, inside.refusal()
    assert (outside.postmaster_pid(), starts(home)) == (postmaster, 1)
    assert query(url, "select number from kept") == 42
    inside.kill()
    # The keeper inside cannot stop it. The next one outside can.
    outside.release()
    eventually(lambda: not is_locked(home / "postgres" / "keeper.lock"))
    assert outside.start() == url
    assert outside.postmaster_pid() == postmaster
    outside.release()
    eventually(lambda: server_processes(home) == [])


def test_server_whose_keeper_died_inside_is_adopted_outside(home: Path, join_inside: Callable[[Path], User]) -> None:
    inside = join_inside(home)
    url = inside.line()
    assert url, inside.refusal()
    kill_keeper(home)
    outside = server_for(home)
    assert outside.start() == url
    assert starts(home) == 1
    assert status(home).pid in server_processes(home)
    outside.stop()
    assert server_processes(home) == []


def test_users_inside_and_outside_share_a_server(home: Path, join_inside: Callable[[Path], User]) -> None:
    with server_for(home) as outside:
        inside = join_inside(home)
        assert inside.line() == outside.url, inside.refusal()
        inside.kill()
        assert answers(outside.url)
    eventually(lambda: server_processes(home) == [])


def test_stop_signals_no_stranger_who_has_the_keepers_number(home: Path) -> None:
    """The number that a keeper left may be anybody's on the other side."""
    with server_for(home), server_for(home) as server:
        keeper = keeper_pid(home)
        stranger = subprocess.Popen(["sleep", "100"])
        try:
            (home / "postgres" / "keeper.lock").write_text(f"{stranger.pid}\n")
            with pytest.raises(EmbeddedError, match="not seen from here"):
                server.stop()
            assert stranger.poll() is None
        finally:
            stranger.kill()
            stranger.wait()
            (home / "postgres" / "keeper.lock").write_text(f"{keeper}\n")


def test_orphaned_backend_keeps_the_lock_until_it_is_gone(home: Path) -> None:
    server = server_for(home)
    server.start()
    postmaster = server.postmaster_pid()
    assert postmaster
    backend = next(pid for pid in server_processes(home) if pid != postmaster)
    os.kill(backend, signal.SIGSTOP)
    kill_keeper(home)
    os.kill(postmaster, signal.SIGKILL)
    eventually(lambda: server_processes(home) == [backend])
    assert is_locked(home / "postgres" / "server.lock")
    # Who sees the orphan ends it before a new server starts.
    assert answers(server.start())
    assert not is_alive(backend)
    server.stop()
    assert not is_locked(home / "postgres" / "server.lock")


def test_server_that_cannot_be_reached_is_named(home: Path) -> None:
    """Something holds the lock and is neither seen nor heard: no second server."""
    lock = os.open(home / "postgres" / "server.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(EmbeddedError, match=r"another container.*HOLDFAST_HOME"):
            EmbeddedPostgres(home).start()
    finally:
        os.close(lock)
    assert server_processes(home) == []

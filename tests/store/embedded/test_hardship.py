"""Folders that are moved, copied, read-only, full, too deep or opened to others, and what a reboot leaves behind."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from holdfast.store.embedded import EmbeddedError, status
from tests.store.embedded.kit import (
    User,
    answers,
    eventually,
    is_alive,
    keeper_pid,
    needs_root,
    query,
    server_for,
    server_processes,
)


def test_home_moved_while_it_runs_stops_there_and_starts_at_its_new_place(home: Path) -> None:
    server = server_for(home)
    query(server.start(), "create table kept as select 42 as number")
    pids = [keeper_pid(home), *server_processes(home)]
    moved = home.rename(home.with_name("moved"))
    eventually(lambda: not any(is_alive(pid) for pid in pids))
    server.release()
    with server_for(moved) as again:
        assert query(again.url, "select number from kept") == 42
    again.stop()
    assert not home.exists()


def test_copy_of_a_running_home_is_warned_of_and_leaves_the_original_alone(
    home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with server_for(home) as original:
        query(original.url, "create table kept as select 42 as number")
        postmaster, keeper = original.postmaster_pid(), keeper_pid(home)
        copied = home.with_name("copied")
        subprocess.run(["cp", "-a", str(home), str(copied)], check=True)
        assert not status(copied).running
        with caplog.at_level(logging.WARNING), server_for(copied) as copy:
            assert copy.url != original.url
            assert answers(copy.url)
            assert "without stopping PostgreSQL first" in caplog.text
        copy.stop()
        assert (original.postmaster_pid(), keeper_pid(home)) == (postmaster, keeper)
        assert query(original.url, "select number from kept") == 42


def test_remains_of_a_reboot_are_cleared_away(home: Path) -> None:
    """Files name processes of before; their ids belong to strangers now."""
    folder = home / "postgres"
    stranger = subprocess.Popen(["sleep", "100"], user=(folder / "data").stat().st_uid)
    try:
        (folder / "run").mkdir(mode=0o700, exist_ok=True)
        for path in (folder / "run" / ".s.PGSQL.5432.lock", folder / "data" / "postmaster.pid"):
            path.write_text(f"{stranger.pid}\n{folder / 'data'}\n1700000000\n5432\n{folder / 'run'}\n\n\nready   \n")
        (folder / "run" / ".s.PGSQL.5432").write_text("")
        for name in ("keeper.lock", "users.lock", "start.lock", "server.lock"):
            (folder / name).write_text(f"{stranger.pid}\n")
        (folder / "stay").write_text("not a number")
        with server_for(home) as server:
            assert answers(server.url)
        server.stop()
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_data_folder_that_others_may_enter_is_refused_with_postgresqls_words(home: Path) -> None:
    (home / "postgres" / "data").chmod(0o777)
    with pytest.raises(EmbeddedError, match="invalid permissions"):
        server_for(home).start()
    assert server_processes(home) == []


def test_path_that_is_too_deep_for_postgresql_is_refused(empty_home: Path) -> None:
    deep = empty_home
    while len(str(deep)) < 1000:
        deep /= "long" * 20
    with pytest.raises(EmbeddedError, match=r"too long.*HOLDFAST_HOME"):
        server_for(deep).start()


@needs_root
@pytest.mark.parametrize("is_new", [True, False])
def test_read_only_file_system_is_named(home: Path, is_new: bool) -> None:
    if is_new:
        shutil.rmtree(home / "postgres")
    mount = f"mount --bind {home} {home} && mount -o remount,ro,bind {home}"
    refusal = _refusal_after(mount, home)
    assert "Read-only file system" in refusal
    assert "HOLDFAST_HOME" in refusal


@needs_root
def test_disk_that_is_full_at_the_start_is_named_and_nothing_is_harmed(home: Path) -> None:
    kept = home.rename(home.with_name("kept"))
    home.mkdir()
    size = sum(path.stat().st_blocks for path in kept.rglob("*")) * 512 + 2_000_000
    mount = f"mount -t tmpfs -o size={size} none {home} && cp -a {kept}/. {home} && ! cat /dev/zero > {home}/fill"
    assert "the disk is full" in _refusal_after(f"{{ {mount}; }} 2>/dev/null", home)
    with server_for(kept) as server:
        assert answers(server.url)
    server.stop()


def _refusal_after(mount: str, home: Path) -> str:
    """What a user is told in a mount namespace of its own."""
    prefix = ["unshare", "-m", "sh", "-c", f'{mount} && exec "$0" "$@"']
    if subprocess.run([*prefix, "true"], capture_output=True).returncode:
        pytest.skip("this container may not mount")
    refusal = User(home, prefix).refusal()
    assert os.path.ismount(home) is False
    assert "Traceback" not in refusal
    return refusal


def test_a_keeper_that_did_not_hear_is_told_again_to_stop(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that has just begun does not listen yet, and started in the background of a shell it ignores the signal."""
    told: list[int] = []

    def deaf_at_first(pid: int, number: int) -> None:
        if number == signal.SIGINT:
            told.append(pid)
        if len(told) != 1:
            kill(pid, number)

    with server_for(home), server_for(home) as server:
        query(server.url, "select 1")
        kill = os.kill
        monkeypatch.setattr("holdfast.store.embedded.os.kill", deaf_at_first)
        began = time.monotonic()
        server.stop()
    assert len(told) >= 2
    assert time.monotonic() - began < 30
    assert not list(server_processes(home))

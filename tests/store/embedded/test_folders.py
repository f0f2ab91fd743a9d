"""Home folders that are odd, gone, full, foreign or of another version."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from holdfast.store import embedded_binaries
from holdfast.store.embedded import EmbeddedError, EmbeddedPostgres
from tests.store.embedded.kit import (
    OLDER_BINARIES,
    User,
    answers,
    eventually,
    is_alive,
    keeper_pid,
    mode,
    needs_root,
    query,
    restart,
    server_for,
    server_processes,
)


def test_server_ends_with_its_folder(home: Path) -> None:
    with server_for(home) as server:
        restart(server)
        pids = [keeper_pid(home), *server_processes(home)]
        shutil.rmtree(home)
        eventually(lambda: not any(is_alive(pid) for pid in pids))


def test_unfinished_cluster_is_made_anew(empty_home: Path) -> None:
    half_made = empty_home / "postgres" / "data.new-1234"
    half_made.mkdir(parents=True, mode=0o700)
    (half_made / "PG_VERSION").write_text("18")
    with server_for(empty_home) as server:
        assert answers(server.url)
    assert not half_made.exists()


def test_long_path_gets_a_socket_elsewhere(home: Path) -> None:
    deep = home.parent / ("long-" * 12) / ("long-" * 12)
    deep.parent.mkdir()
    home.rename(deep)
    with server_for(deep) as server:
        assert answers(server.url)
        sockets = Path(server.url.partition("host=")[2].partition("&")[0])
        assert not sockets.is_relative_to(home.parent)
        assert mode(sockets) == 0o700
    server.stop()
    assert not sockets.exists()


def test_foreign_socket_folder_is_refused(empty_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = empty_home / ("long-" * 12) / ("long-" * 12)
    (deep / "postgres").mkdir(parents=True)
    monkeypatch.setattr(tempfile, "tempdir", str(empty_home.parent))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    sockets = embedded_binaries.prepare_socket_folder(deep / "postgres")
    sockets.chmod(0o777)
    with pytest.raises(EmbeddedError, match="private folder"):
        server_for(deep).start()


@pytest.mark.parametrize("name", ["with space", "a,b", 'quo"te', "naïve"])
def test_odd_paths_work(home: Path, name: str) -> None:
    server = server_for(home.rename(home.with_name(name)))
    assert answers(server.start())
    server.stop()


@pytest.mark.skipif(not OLDER_BINARIES.exists(), reason="PostgreSQL 15 is not installed")
def test_data_of_another_major_version_is_refused(empty_home: Path) -> None:
    older = EmbeddedPostgres(empty_home, binaries=OLDER_BINARIES)
    assert str(query(older.start(), "show server_version")).startswith("15")
    older.stop()
    with pytest.raises(EmbeddedError, match=r"PostgreSQL 15.*PostgreSQL 18.*HOLDFAST_HOME"):
        server_for(empty_home).start()


def test_missing_wheel_says_what_to_install(monkeypatch: pytest.MonkeyPatch, empty_home: Path) -> None:
    monkeypatch.setattr(sys, "path", [])
    with pytest.raises(EmbeddedError, match=r"holdfast\[embedded\].*HOLDFAST_DATABASE_URL"):
        server_for(empty_home).start()


def test_server_that_does_not_come_up_is_quoted(home: Path) -> None:
    with pytest.raises(EmbeddedError, match="invalid value for parameter"):
        server_for(home, shared_buffers="nonsense").start()
    assert server_processes(home) == []
    with server_for(home) as server:
        assert answers(server.url)


def test_home_that_is_a_file_is_refused(empty_home: Path) -> None:
    empty_home.write_text("")
    with pytest.raises(EmbeddedError, match="HOLDFAST_HOME"):
        server_for(empty_home).start()


@needs_root
def test_full_disk_is_named(empty_home: Path) -> None:
    empty_home.mkdir()
    mount = f"mount -t tmpfs -o size=15m none {empty_home}"
    if subprocess.run(["unshare", "-m", "sh", "-c", mount], capture_output=True, check=False).returncode:
        pytest.skip("this container may not mount")
    full = User(empty_home, ["unshare", "-m", "sh", "-c", f'{mount} && exec "$0" "$@"'])
    assert "the disk is full" in full.refusal()

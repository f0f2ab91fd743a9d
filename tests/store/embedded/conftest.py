"""Home folders for embedded servers: a finished cluster is made once and copied."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.store.embedded import EmbeddedPostgres
from tests.store.embedded.kit import User, eventually, make_parent


@pytest.fixture(scope="session")
def template() -> Iterator[Path]:
    """A home folder with a finished cluster: copying it is quicker than making one."""
    parent = make_parent()
    server = EmbeddedPostgres(parent / "home")
    server.start()
    server.stop()
    yield parent / "home"
    shutil.rmtree(parent)


@pytest.fixture
def empty_home() -> Iterator[Path]:
    parent = make_parent()
    home = parent / "home"
    yield home
    # A user that was killed while it began may leave a keeper that starts the server a moment after it was stopped.
    eventually(lambda: _removed(parent))


def _removed(parent: Path) -> bool:
    EmbeddedPostgres(parent / "home").stop()
    shutil.rmtree(parent, ignore_errors=True)
    return not parent.exists()


@pytest.fixture
def home(empty_home: Path, template: Path) -> Path:
    subprocess.run(["cp", "-a", str(template), str(empty_home)], check=True)
    (empty_home / "postgres" / "server.log").unlink()
    return empty_home


@pytest.fixture
def join() -> Iterator[Callable[[Path], User]]:
    users: list[User] = []

    def join(home: Path) -> User:
        users.append(User(home))
        return users[-1]

    yield join
    for each in users:
        each.kill()

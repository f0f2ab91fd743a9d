"""The pytest plugin of Holdfast: fixtures over `holdfast.testing`.

It stands outside the package because pytest imports its plugins at the start of every run: importing this module
loads neither Holdfast nor its drivers, and a project that uses none of the fixtures pays nothing for it. Everything
is made by the first test that asks for it: the server once per run, a migrated database once per process.
"""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from holdfast import Holdfast
    from holdfast.testing.jobs import Jobs
    from holdfast.testing.kit import Sandboxes

__all__ = [
    "holdfast_app",
    "holdfast_database_url",
    "holdfast_jobs",
    "holdfast_separate_jobs",
    "holdfast_server_url",
    "jobs",
]

_HOME = pytest.StashKey[Path]()
_SERVER = "PostgreSQL server to make Holdfast's test databases on (default: an embedded one)"


def pytest_addoption(parser: pytest.Parser) -> None:
    """How tests are told which app and which server to use."""
    group = parser.getgroup("holdfast")
    group.addoption("--holdfast-database-url", metavar="URL", help=_SERVER)
    parser.addini("holdfast_database_url", _SERVER)
    parser.addini("holdfast_app", "the Holdfast app under test, as module:name")


def pytest_configure(config: pytest.Config) -> None:
    """The folder of the embedded server is chosen once; the processes of pytest-xdist are told."""
    told = getattr(config, "workerinput", {}).get("holdfast_home")
    config.stash[_HOME] = Path(told or Path(tempfile.gettempdir()) / f"holdfast-{secrets.token_hex(6)}")


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a process of pytest-xdist where the server is."""
    node.workerinput["holdfast_home"] = str(node.config.stash[_HOME])


def pytest_unconfigure(config: pytest.Config) -> None:
    """The first process stops the embedded server, if there was one, and leaves nothing behind."""
    home = config.stash.get(_HOME, None)
    if home is not None and not hasattr(config, "workerinput") and home.exists():
        from holdfast.store.embedded import EmbeddedPostgres

        EmbeddedPostgres(home).stop()
        shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(scope="session")
def holdfast_app(pytestconfig: pytest.Config) -> Holdfast:
    """The app under test. Name it in the ini option `holdfast_app`, or override this fixture."""
    from holdfast.testing.kit import load_app

    name = pytestconfig.getini("holdfast_app")
    if not name:
        raise pytest.UsageError(
            "which app is to be tested? Set the ini option holdfast_app (such as myproject.jobs:hf), "
            "or override the fixture holdfast_app"
        )
    return load_app(name, pytestconfig.rootpath)


@pytest.fixture(scope="session")
def holdfast_server_url(pytestconfig: pytest.Config) -> Iterator[str]:
    """A server on which databases may be made: a login that may create databases, and roles unless they exist."""
    from holdfast.testing.kit import server

    given = (
        pytestconfig.getoption("holdfast_database_url")
        or os.environ.get("HOLDFAST_TEST_DATABASE_URL")
        or pytestconfig.getini("holdfast_database_url")
    )
    with server(given or None, pytestconfig.stash[_HOME]) as url:
        yield url


@pytest.fixture(scope="session")
def holdfast_database_url(holdfast_server_url: str) -> Iterator[str]:
    """The database of this process, used by one test after the other.

    Override it to test in a database of your own, where your tables are: Holdfast's schema is made there.
    """
    from holdfast.testing.kit import new_database

    with new_database(holdfast_server_url) as url:
        yield url


@pytest.fixture(scope="session")
def holdfast_sandboxes(holdfast_database_url: str) -> Iterator[Sandboxes]:
    """The engine in the database of this process, migrated once."""
    from holdfast.testing.kit import Sandboxes

    with closing(Sandboxes(holdfast_database_url)) as sandboxes:
        yield sandboxes


@pytest.fixture
def holdfast_jobs(holdfast_app: Holdfast, holdfast_sandboxes: Sandboxes) -> Iterator[Jobs]:
    """The app's jobs in an empty test database."""
    from holdfast.testing.kit import jobs_of

    with jobs_of(holdfast_app, holdfast_sandboxes.of(holdfast_app)) as found:
        yield found


@pytest.fixture
def jobs(holdfast_jobs: Jobs) -> Jobs:
    """Short for `holdfast_jobs`, unless the project has a fixture of that name."""
    return holdfast_jobs


@pytest.fixture
def holdfast_separate_jobs(holdfast_app: Holdfast, holdfast_server_url: str) -> Iterator[Jobs]:
    """The app's jobs in a database that no other test uses, made and dropped for this one."""
    from holdfast.testing.kit import Sandboxes, jobs_of, new_database

    with (
        new_database(holdfast_server_url) as url,
        closing(Sandboxes(url)) as sandboxes,
        jobs_of(holdfast_app, sandboxes.of(holdfast_app)) as found,
    ):
        yield found

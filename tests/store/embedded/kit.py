"""Users of an embedded server as processes, and questions to ask about it."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import asyncpg
import pytest

from holdfast.store.embedded import EmbeddedPostgres

OLDER_BINARIES = Path("/usr/lib/postgresql/15/bin")
NOBODY = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become other users")

USER_SCRIPT = """
import asyncio, signal, sys
from pathlib import Path
import asyncpg
from holdfast.store.embedded import EmbeddedError, EmbeddedPostgres

signal.signal(signal.SIGINT, signal.default_int_handler)  # a suite in the background ignores it, and so would we

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


def processes() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").glob("[0-9]*")]


def command_of(pid: int) -> str:
    try:
        return os.fsdecode((Path("/proc") / str(pid) / "cmdline").read_bytes())
    except (FileNotFoundError, ProcessLookupError):
        return ""


def parent_of(pid: int) -> int | None:
    try:
        return int((Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return None


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

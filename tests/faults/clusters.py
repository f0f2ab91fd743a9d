"""Bare PostgreSQL servers for tests: nobody watches over them, so that they can be killed, copied and promoted."""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import asyncpg

from holdfast.config import Config
from holdfast.store import embedded_binaries
from holdfast.store.migrate import migrate
from tests.harness.homes import copy_of, new_folder, run_apart
from tests.harness.waiting import until

__all__ = ["Cluster", "clusters"]

#: Nothing but commits writes to the disk: what a commit does not flush is lost with the server.
SETTINGS = {
    "listen_addresses": "",
    "port": "5432",
    "autovacuum": "off",
    "wal_writer_delay": "10s",
    "shared_buffers": "16MB",
    "max_wal_senders": "3",
}


class Cluster:
    """One data folder and its server, reached through a socket in a private folder."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._data = folder, folder / "data"
        self._binaries = embedded_binaries.find_binaries()
        embedded_binaries.prepare_folder(folder)
        self._identity = embedded_binaries.choose_identity(folder, folder, self._binaries)
        self._process: subprocess.Popen[bytes] | None = None
        #: What a test has to undo after the next start.
        self.undo: str | None = None

    @property
    def url(self) -> str:
        """The superuser's."""
        return f"postgresql://tester@/postgres?host={self._folder}&port=5432"

    @property
    def socket_folder(self) -> Path:
        """Where the server listens."""
        return self._folder

    def create(self) -> None:
        """Create data with the engine in it; only users that can enter the folder can connect."""
        copy_of("cluster", self._data, _make_data)

    def initialize(self) -> None:
        """Have data with nothing in it."""
        command = [str(self._binaries / "initdb"), f"--pgdata={self._data}", "--username=tester", "--auth=trust"]
        command += ["--encoding=UTF8", "--locale=C"]
        succeeded, _, complaint = self._identity.run([*command, "--locale=C", "-N"], folder=self._folder)
        assert succeeded, complaint

    def copy_to(self, other: Cluster) -> None:
        """Make the other one a standby, of this server's files while it is stopped."""
        owner = embedded_binaries.server_owner(other._folder)
        shutil.copytree(self._data, other._data)
        (other._data / "standby.signal").touch()
        for path in (other._data, *other._data.rglob("*")):
            os.chown(path, *owner)

    async def start(self, **settings: str) -> None:
        """Start the server, and wait until it takes connections."""
        options = SETTINGS | {"unix_socket_directories": str(self._folder)} | settings
        command = [*self._identity.prefix, str(self._binaries / "postgres"), "-D", str(self._data)]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*command, *(f"--{name}={value}" for name, value in options.items())],
                stdout=log,
                stderr=log,
                cwd=self._folder,
                env=embedded_binaries.server_environment(),
                user=self._identity.user,
                group=self._identity.group,
                extra_groups=None if self._identity.user is None else [],
                start_new_session=True,
            )
        await until(self._answers, what="PostgreSQL takes connections")

    def start_beside(self, command: list[str]) -> subprocess.Popen[bytes]:
        """Start another program as the server's own user; the caller ends it."""
        return subprocess.Popen(
            [*self._identity.prefix, *command],
            cwd=self._folder,
            user=self._identity.user,
            group=self._identity.group,
            extra_groups=None if self._identity.user is None else [],
        )

    def stop(self) -> None:
        """Stop it in good order."""
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)
            self._process.wait(30)
            self._process = None

    def kill(self) -> None:
        """End every process of it at once, as a crash does; nobody gets to write anything any more."""
        if self._process is None:
            return
        postmaster = self._process.pid
        self._process.send_signal(signal.SIGSTOP)
        children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()
        ends = []
        for process in map(int, children):
            with suppress(ProcessLookupError):
                ends.append(os.pidfd_open(process))
                os.kill(process, signal.SIGKILL)
        os.kill(postmaster, signal.SIGKILL)
        self._process.wait(30)
        self._process = None
        # Until the last of them is gone, no other server starts on its data.
        for end in ends:
            select.select([end], [], [], 30)
            os.close(end)

    async def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self._folder / "log").read_text()[-2000:]
        try:
            conn = await asyncpg.connect(self.url, timeout=5)
        except (OSError, asyncpg.PostgresError):
            return False
        await conn.close()
        return True


def _make_data(folder: Path) -> None:
    with clusters(1) as (cluster,):
        run_apart(_migrated(cluster))
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run(["cp", "-a", str(cluster._data), str(folder)], check=True)


async def _migrated(cluster: Cluster) -> None:
    cluster.initialize()
    await cluster.start()
    await migrate(Config.load(environment={}, database_url=cluster.url))
    cluster.stop()


@contextmanager
def clusters(count: int) -> Iterator[list[Cluster]]:
    """Servers without data, in folders short enough for sockets; what runs is killed at the end."""
    home = new_folder("hf-pg-")
    home.chmod(0o711)
    made = [Cluster(home / str(number)) for number in range(count)]
    try:
        yield made
    finally:
        for cluster in made:
            cluster.kill()
        shutil.rmtree(home, ignore_errors=True)

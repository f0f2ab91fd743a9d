"""The embedded PostgreSQL: a real server in the home folder, for users without a database URL.

Rules it keeps:

1. A user is a process that holds `users.lock` shared; the server runs while there is one, or a program is
   connected, or its stay lasts (see the keeper).
2. Nothing listens on the network: one socket in a folder 0700, and a random password beside it, 0600.
3. Durability is deliberate: fsync and synchronous commit stay on, and recovery is waited for.
4. A keeper is launched only under `start.lock`, so that any number of processes start one server. A server is
   started only under `server.lock`, which its processes hold for life (see the server).
5. Every failure is reported in one sentence, with PostgreSQL's own message and advice.

The folder `HOME/postgres` has `data`, `password`, `server.log`, `run` (the socket), `stay` and the four locks.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import fcntl
import functools
import logging
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from urllib.parse import quote

from holdfast.store import embedded_binaries, embedded_login
from holdfast.store.embedded_binaries import DATABASE, explain
from holdfast.store.embedded_error import EmbeddedError
from holdfast.store.embedded_keeper import STAY_FILE
from holdfast.store.embedded_locks import is_locked, open_file, wait_for_lock
from holdfast.store.embedded_postmaster import (
    SERVER_LOCK,
    STOP_STEPS,
    Postmaster,
    answers,
    end_process,
    find_holder,
    find_postmaster,
    read_postmaster,
    works_in,
)
from holdfast.store.embedded_sessions import login_of

__all__ = ["EmbeddedError", "EmbeddedPostgres", "EmbeddedStatus", "status"]

PATIENCE_SECONDS = 120.0
#: How often a keeper is told to stop until it does.
TOLD_AGAIN_SECONDS = 0.5
#: How often a keeper may be looked for in vain, because its process id is not there yet or the machine stood still.
UNSEEN_TIMES = 10
LAUNCHES = 3
#: How long a server that runs in another container may fail to answer here.
UNSEEN_SECONDS = 5.0
#: With less free space, a server that fails to start may have been unable even to write the reason.
LEAST_FREE_BYTES = 1_000_000
#: Runs the keeper without its package, which would load all of Holdfast and its dependencies.
BOOT = """
import sys, types
package = types.ModuleType("keeper")
package.__path__ = [sys.argv.pop(1)]
sys.modules["keeper"] = package
from keeper.embedded_keeper import main
sys.exit(main())
"""
SETTINGS = {
    "listen_addresses": "",
    "port": "5432",
    "unix_socket_permissions": "0700",
    "max_connections": "200",
    "shared_buffers": "256MB",
    "max_wal_size": "2GB",
    "client_connection_check_interval": "10s",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "cluster_name": "holdfast",
}

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedStatus:
    """What is known about a home folder's server without touching it."""

    running: bool
    pid: int | None
    version: str | None
    data_directory: Path
    url: str | None


def status(home: Path) -> EmbeddedStatus:
    """Look at the server of a home folder; starts and creates nothing."""
    folder = Path(os.path.realpath(home)) / "postgres"
    data = folder / "data"
    with _readable_errors(folder):
        postmaster = find_postmaster(data)
        if postmaster is not None and postmaster.pid is None and not answers(postmaster):
            postmaster = None
        return EmbeddedStatus(
            running=postmaster is not None,
            pid=postmaster.pid if postmaster else None,
            version=embedded_binaries.data_version(data),
            data_directory=data,
            url=_url(folder, postmaster) if postmaster else None,
        )


class EmbeddedPostgres:
    """One user's hold on the embedded server of a home folder.

    The hold ends with `release` or with the process, however it dies. A forked child that does not exec shares it: the
    server then stays until the child has ended too. `settings` and `stop_after_seconds` count only if this user starts
    the server.
    """

    def __init__(
        self,
        home: Path,
        *,
        binaries: Path | None = None,
        settings: Mapping[str, str] | None = None,
        stop_after_seconds: float = 1.0,
    ) -> None:
        self._folder = Path(os.path.realpath(home)) / "postgres"
        self._data = self._folder / "data"
        self._log = self._folder / "server.log"
        self._keeper_lock = self._folder / "keeper.lock"
        self._binaries = binaries
        self._settings = SETTINGS | dict(settings or {})
        self._stop_after_seconds = stop_after_seconds
        self._mutex = threading.RLock()
        self._hold: int | None = None
        self._url: str | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    @property
    def url(self) -> str:
        """The URL for asyncpg, psycopg and libpq."""
        if self._url is None:
            raise EmbeddedError("The embedded PostgreSQL was not started here: call start() first.")
        return self._url

    def start(self) -> str:
        """Become a user and return the URL once the server accepts connections. May be repeated."""
        with self._mutex, _readable_errors(self._folder):
            embedded_binaries.prepare_folder(self._folder)
            is_first = self._hold is None
            self._take_hold()
            try:
                postmaster = self._await_server()
                self._mend_login(postmaster)
                self._url = _url(self._folder, postmaster)
            except BaseException:
                if is_first:
                    self.release()
                raise
            return self._url

    def stay(self, seconds: float) -> None:
        """Keep the server, from now on, for this long after its last use, or until it is stopped."""
        with self._mutex, _readable_errors(self._folder):
            if self._hold is None:
                raise EmbeddedError("The embedded PostgreSQL was not started here: call start() first.")
            # While this process has the hold, no keeper reads the file.
            with os.fdopen(open_file(self._folder / STAY_FILE, os.O_WRONLY | os.O_TRUNC), "w") as file:
                file.write(str(seconds))

    def release(self) -> None:
        """Give up the hold; after the last one the keeper stops the server."""
        with self._mutex:
            if self._hold is not None:
                # Not LOCK_UN, which would take the hold from forked children as well.
                os.close(self._hold)
            self._hold = self._url = None

    def stop(self) -> None:
        """Stop the server now, even if others use it, and wait until it is gone."""
        with self._mutex, _readable_errors(self._folder):
            self.release()
            if not self._folder.exists():
                return
            with self._start_lock():
                self._stop_keeper()
                (self._folder / STAY_FILE).unlink(missing_ok=True)
                postmaster = find_postmaster(self._data)
                if postmaster is not None and postmaster.pid is not None:
                    alive = functools.partial(works_in, postmaster.pid, self._data)
                    end_process(postmaster.pid, alive, STOP_STEPS)
                elif postmaster is not None and answers(postmaster):
                    raise EmbeddedError(f"PostgreSQL in {self._folder} runs in another container: stop it there.")

    def postmaster_pid(self) -> int | None:
        """The process id of the running server."""
        postmaster = find_postmaster(self._data)
        return postmaster.pid if postmaster else None

    def _take_hold(self) -> None:
        if self._hold is not None:
            return
        hold = open_file(self._folder / "users.lock", os.O_RDWR)
        # A keeper that is stopping the server has this lock until both are gone.
        if not wait_for_lock(hold, fcntl.LOCK_SH, seconds=PATIENCE_SECONDS):
            os.close(hold)
            raise EmbeddedError(f"PostgreSQL in {self._folder} is stopping and does not end: see {self._log}.")
        os.utime(hold)
        self._hold = hold

    def _await_server(self) -> Postmaster:
        """Wait until the server answers; a keeper is launched if there is none."""
        launches = 0
        log_start = self._log_size()
        progress: tuple[int | None, int] = (0, 0)
        began = news_at = time.monotonic()
        while time.monotonic() < news_at + PATIENCE_SECONDS:
            postmaster = find_postmaster(self._data)
            if not is_locked(self._keeper_lock):
                if launches == LAUNCHES or (launches and "gives up" in self._log_since(log_start)):
                    break
                launches += self._launch()
            elif postmaster is not None and postmaster.status == "ready" and answers(postmaster):
                return postmaster
            elif postmaster is not None and postmaster.pid is None and time.monotonic() > began + UNSEEN_SECONDS:
                break
            elif postmaster is not None and progress != (postmaster.pid, self._log_size()):
                # A recovery that makes progress writes to the log; so does a server that dies and is restarted.
                if postmaster.pid == progress[0]:
                    news_at = time.monotonic()
                if news_at > began + 1:
                    logger.info("Waiting for PostgreSQL: %s", explain(self._log_since(progress[1])))
                progress = (postmaster.pid, self._log_size())
            time.sleep(0.01)
        raise EmbeddedError(self._reason(log_start))

    def _reason(self, log_start: int) -> str:
        """Why the server did not start."""
        if is_locked(self._folder / SERVER_LOCK) and self.postmaster_pid() is None:
            return (
                f"PostgreSQL runs already in {self._folder}, and neither its process nor its socket can be reached "
                "from here: it may run in another container. Stop it there, or set HOLDFAST_HOME to another folder."
            )
        reason = explain(self._log_since(log_start), is_full=shutil.disk_usage(self._folder).free < LEAST_FREE_BYTES)
        return f"PostgreSQL did not come up, see {self._log}: {reason}"

    def _launch(self) -> bool:
        """Start a keeper, with everything that it needs; False if another process was faster."""
        with self._start_lock() as lock:
            if is_locked(self._keeper_lock):
                return False
            binaries = self._binaries or embedded_binaries.find_binaries()
            sockets = embedded_binaries.prepare_socket_folder(self._folder)
            identity = embedded_binaries.choose_identity(self._folder, sockets, binaries)
            # Programs that outlive a killed process keep the lock, so that nobody works on files that they write.
            identity = dataclasses.replace(identity, lock=lock)
            embedded_binaries.prepare_data(self._folder, binaries, identity)
            self._warn_of_a_copy()
            command = [*identity.prefix, str(binaries / "postgres"), *self._server_options(sockets)]
            keeper = [sys.executable, "-I", "-S", "-c", BOOT, str(Path(__file__).parent)]
            keeper += [str(self._folder), str(sockets), str(binaries), str(self._stop_after_seconds)]
            keeper += [str(identity.user or "-"), str(identity.group or "-")]
            log_start = self._log_size()
            log = open_file(self._log, os.O_RDWR | os.O_APPEND)
            try:
                done = subprocess.run(
                    [*keeper, *command],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    cwd="/",
                    env=embedded_binaries.server_environment(),
                    start_new_session=True,
                    check=False,
                )
            finally:
                os.close(log)
            if done.returncode:
                reason = explain(self._log_since(log_start))
                raise EmbeddedError(f"PostgreSQL's keeper could not start, see {self._log}: {reason}")
            return True

    def _warn_of_a_copy(self) -> None:
        left = read_postmaster(self._data)
        if left is not None and os.path.realpath(left.data) != str(self._data):
            logger.warning(
                "%s was moved or copied from %s without stopping PostgreSQL first. A copy of the files of a running "
                "server may be damaged: check it with `holdfast verify`, or copy it again after `holdfast db stop`.",
                self._folder,
                left.data,
            )

    def _mend_login(self, postmaster: Postmaster) -> None:
        """Repair the login of data folders from the first releases."""
        if embedded_login.is_mended(self._data):
            return
        with self._start_lock():
            if not embedded_login.is_mended(self._data):
                binaries = self._binaries or embedded_binaries.find_binaries()
                embedded_login.mend(self._folder, binaries, postmaster)

    def _server_options(self, sockets: Path) -> list[str]:
        # The setting is a list: if quoted, the path may contain any character.
        quoted = str(sockets).replace('"', '""')
        settings = {"unix_socket_directories": f'"{quoted}"'} | self._settings
        options = ["-D", str(self._data)]
        return options + [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]

    def _stop_keeper(self) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        told_at, number, unseen = 0.0, "?", 0
        while is_locked(self._keeper_lock):
            if time.monotonic() > deadline:
                raise EmbeddedError(
                    f"PostgreSQL in {self._folder} does not stop, see {self._log}. "
                    f"Is its keeper, process {number}, suspended?"
                )
            # Repeatedly: a keeper that has just started becomes another process, and may not listen yet.
            if time.monotonic() >= told_at + TOLD_AGAIN_SECONDS:
                told_at, number = time.monotonic(), self._keeper_lock.read_text().strip()
                # Here the number may belong to another process: the keeper may run in another container.
                keeper = find_holder(int(number), self._keeper_lock) if number.isdigit() else None
                unseen = 0 if keeper is not None else unseen + 1
                if keeper is not None:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(keeper, signal.SIGINT)
                elif unseen > UNSEEN_TIMES and is_locked(self._keeper_lock):
                    raise EmbeddedError(
                        f"The keeper of PostgreSQL in {self._folder} (process {number}) is not seen from here: "
                        "stop it in the container, or as the user, that started it."
                    )
            time.sleep(0.01)

    @contextlib.contextmanager
    def _start_lock(self) -> Iterator[int]:
        lock = open_file(self._folder / "start.lock", os.O_RDWR)
        try:
            if not wait_for_lock(lock, fcntl.LOCK_EX, seconds=PATIENCE_SECONDS):
                raise EmbeddedError(f"Another start of PostgreSQL in {self._folder} does not end.")
            yield lock
        finally:
            os.close(lock)

    def _log_size(self) -> int:
        return self._log.stat().st_size if self._log.exists() else 0

    def _log_since(self, position: int) -> str:
        if not self._log.exists():
            return ""
        text = self._log.read_bytes()
        return text[position if position <= len(text) else 0 :].decode(errors="replace")


def _url(folder: Path, postmaster: Postmaster) -> str:
    password = (folder / "password").read_text()
    host = quote(postmaster.socket_folder, safe="/")
    return f"postgresql://{login_of(folder / 'data')}:{password}@/{DATABASE}?host={host}&port={postmaster.port}"


@contextlib.contextmanager
def _readable_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        advice = "make it writable for this user, or set HOLDFAST_HOME to another folder"
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            advice = "free some space, or set HOLDFAST_HOME to another disk"
        reason = f"The embedded PostgreSQL cannot use {error.filename or folder} ({error.strerror})"
        raise EmbeddedError(f"{reason}: {advice}.") from error

"""The keeper: the process that starts the embedded server, restarts it, and stops it after its last user.

`holdfast.store.embedded` runs this file by its path, detached, in its own session. It imports the standard
library alone, so that it is up in milliseconds and stays small. The rules it keeps:

1. One keeper per folder: it holds `keeper.lock` exclusively for as long as it lives.
2. Every user holds `users.lock` shared. The keeper stops an unused server while it holds that lock
   exclusively, until it exits: who has the shared lock knows that no keeper is about to stop the server.
3. All locks are flocks, which vanish with their process: after any kill -9 the locks still tell the truth.
4. A running server whose keeper was killed is adopted. A server that dies in use is started again, with
   growing pauses; one that never came up ends the keeper, and the log says why.
5. SIGINT stops the server now. SIGTERM, which a service manager sends to everybody at once, only drops the
   wait after the last user, so that a draining worker keeps its database.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

POLL_SECONDS = 0.25
STARTING_POLL_SECONDS = 0.02
STOP_STEPS = ((signal.SIGINT, 30.0), (signal.SIGQUIT, 10.0), (signal.SIGKILL, 10.0))
ORPHAN_STEPS = ((signal.SIGQUIT, 2.0), (signal.SIGKILL, 2.0))
LONGEST_PAUSE_SECONDS = 5.0
LOG = 2
LOG_LIMIT_BYTES = 10_000_000
_KNOWS_FOLDERS = Path("/proc/self/cwd").exists()


@dataclass(frozen=True, slots=True, kw_only=True)
class Postmaster:
    """A server, as its `postmaster.pid` describes it."""

    pid: int
    port: int
    socket_folder: str
    status: str


def find_postmaster(data: Path) -> Postmaster | None:
    """The live server of a data folder; a stale `postmaster.pid` counts for nothing."""
    postmaster = read_postmaster(data)
    return postmaster if postmaster is not None and works_in(postmaster.pid, data) else None


def read_postmaster(data: Path) -> Postmaster | None:
    """What `postmaster.pid` says, whether or not that server still lives."""
    try:
        lines = os.fsdecode((data / "postmaster.pid").read_bytes()).split("\n")
        lines += [""] * (8 - len(lines))
        return Postmaster(pid=int(lines[0]), port=int(lines[3] or 0), socket_folder=lines[4], status=lines[7].strip())
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None


def works_in(pid: int, data: Path) -> bool:
    """Whether a process lives and, where the system can tell, has the data folder as its working folder."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, PermissionError):
        return False
    if not _KNOWS_FOLDERS:
        return True
    try:
        return Path(f"/proc/{pid}/cwd").samefile(data)
    except PermissionError:
        return True
    except OSError:
        return False


def end_process(pid: int, alive: Callable[[], bool], steps: Sequence[tuple[signal.Signals, float]]) -> None:
    """Send ever harder signals, each with its seconds to take effect, until the process is gone."""
    for step, seconds in steps:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, step)
        deadline = time.monotonic() + seconds
        while alive():
            if time.monotonic() > deadline:
                break
            time.sleep(0.01)
        else:
            return


def open_file(path: Path, flags: int) -> int:
    """Open or create a private file, never through a link; what root makes belongs to the folder's owner."""
    fd = os.open(path, flags | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    if os.geteuid() == 0:
        owner = path.parent.stat()
        os.fchown(fd, owner.st_uid, owner.st_gid)
    return fd


def wait_for_lock(fd: int, kind: int, *, seconds: float) -> bool:
    """Take a flock, or give up after the given time."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(fd, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.01)
        else:
            return True


def is_locked(path: Path) -> bool:
    """Whether some process holds a lock file exclusively."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        return not wait_for_lock(fd, fcntl.LOCK_SH, seconds=0)
    finally:
        os.close(fd)


class Server:
    """The postmaster of one data folder: a child of this keeper, or one that an earlier keeper left."""

    def __init__(self, data: Path, sockets: Path, command: Sequence[str], user: int | None, group: int | None) -> None:
        self._data = data
        self._sockets = sockets
        self._command = command
        self._user = user
        self._group = group
        self._child: subprocess.Popen[bytes] | None = None
        self._pid = 0

    def start(self) -> None:
        """Adopt the server that runs already, or start one."""
        self._child = None
        postmaster = find_postmaster(self._data)
        if postmaster is not None:
            self._pid = postmaster.pid
            _say(f"adopts the server with process id {self._pid}")
            return
        try:
            self._clear_remains()
            self._child = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                cwd=self._data.parent,
                user=self._user,
                group=self._group,
                extra_groups=None if self._user is None else [],
                umask=0o077,
            )
            self._pid = self._child.pid
        except OSError as error:
            _say(f"cannot start the server: {error}")

    def alive(self) -> bool:
        """Whether the server's process lives, ready or not."""
        if self._child is not None:
            return self._child.poll() is None
        return self._pid > 0 and works_in(self._pid, self._data)

    def came_up(self) -> bool:
        """Whether this server, dead or alive, left word that it had been ready."""
        postmaster = read_postmaster(self._data)
        return postmaster is not None and postmaster.pid == self._pid and postmaster.status in ("ready", "stopping")

    def stop(self) -> None:
        """Stop the server and wait until it is gone: fast, then immediate, then by force."""
        if self.alive():
            end_process(self._pid, self.alive, STOP_STEPS)
        if self._sockets.parent != self._data.parent:
            with contextlib.suppress(OSError):
                self._sockets.rmdir()

    def _clear_remains(self) -> None:
        """Remove what a killed server left and PostgreSQL would stumble over, where the system can tell."""
        if not _KNOWS_FOLDERS:
            return
        for entry in Path("/proc").glob("[0-9]*"):
            pid = int(entry.name)
            with contextlib.suppress(OSError):
                if (entry / "exe").readlink().name == "postgres" and (entry / "cwd").samefile(self._data):
                    end_process(pid, functools.partial(works_in, pid, self._data), ORPHAN_STEPS)
        # PostgreSQL takes any process with the old id for its server: a zombie, or a stranger after a reboot.
        for remains in (self._data / "postmaster.pid", *self._sockets.glob(".s.PGSQL.*")):
            remains.unlink(missing_ok=True)


class Keeper:
    """Watches over one server and its users; `run` lasts as long as the server is wanted."""

    def __init__(self, folder: Path, server: Server, *, lock: int, stop_after_seconds: float) -> None:
        self._old_log = folder / "server.log.1"
        self._server = server
        self._lock = lock
        self._stop_after_seconds = stop_after_seconds
        self._users = open_file(folder / "users.lock", os.O_RDWR)
        self._last_arrival = 0
        self._alone_since: float | None = None
        self._came_up = False
        self._started_at = 0.0
        self._pause_seconds = 0.0

    def run(self) -> int:
        """Keep the server until nobody uses it or SIGINT comes; 1 when it never came up."""
        wakeups = _signal_pipe()
        self._start_server()
        while not self._folder_is_gone():
            select.select([wakeups], [], [], POLL_SECONDS if self._came_up else STARTING_POLL_SECONDS)
            signals = _drain(wakeups)
            if signal.SIGINT in signals:
                break
            if signal.SIGTERM in signals:
                self._stop_after_seconds = 0.0
            if self._nobody_is_left():
                break
            if not self._server_stands():
                return 1
            self._trim_log()
        _say("stops the server")
        self._server.stop()
        return 0

    def _start_server(self) -> None:
        self._started_at = time.monotonic()
        self._server.start()
        self._came_up = self._came_up or self._server.came_up()

    def _folder_is_gone(self) -> bool:
        # Whatever is at the same path now belongs to another keeper.
        return os.fstat(self._lock).st_nlink == 0

    def _nobody_is_left(self) -> bool:
        """True once no user was seen for the whole wait; `users.lock` is then held until the exit."""
        if not wait_for_lock(self._users, fcntl.LOCK_EX, seconds=0):
            self._alone_since = None
            return False
        # A user who came and went between two looks has touched the file.
        arrival = os.fstat(self._users).st_mtime_ns
        if self._alone_since is None or arrival != self._last_arrival:
            self._alone_since = time.monotonic()
            self._last_arrival = arrival
        if time.monotonic() - self._alone_since >= self._stop_after_seconds:
            return True
        fcntl.flock(self._users, fcntl.LOCK_UN)
        return False

    def _server_stands(self) -> bool:
        """Start a dead server again when its pause is over; False when it never came up at all."""
        self._came_up = self._came_up or self._server.came_up()
        if self._server.alive():
            return True
        if not self._came_up:
            _say("gives up: the server ended before it was ready")
            return False
        up_seconds = time.monotonic() - self._started_at
        if up_seconds > 2 * LONGEST_PAUSE_SECONDS:
            self._pause_seconds = 0.0
        if up_seconds >= self._pause_seconds:
            _say("starts the server again: it ended while in use")
            self._pause_seconds = min(2 * self._pause_seconds or 0.5, LONGEST_PAUSE_SECONDS)
            self._start_server()
        return True

    def _trim_log(self) -> None:
        # The server writes to a descriptor that it never reopens: move the text away, not the file.
        size = os.fstat(LOG).st_size
        if size > LOG_LIMIT_BYTES:
            flags = os.O_WRONLY | os.O_TRUNC
            with contextlib.suppress(OSError), os.fdopen(open_file(self._old_log, flags), "wb") as old_log:
                old_log.write(os.pread(LOG, size, 0))
            os.ftruncate(LOG, 0)


def main() -> int:
    """Become a folder's keeper: `FOLDER SOCKETS STOP_AFTER_SECONDS USER GROUP COMMAND…` (`-`: no user)."""
    folder, sockets, stop_after_seconds, user, group, *command = sys.argv[1:]
    lock = open_file(Path(folder) / "keeper.lock", os.O_RDWR)
    if not wait_for_lock(lock, fcntl.LOCK_EX, seconds=2):
        return 0
    # Nobody waits for a keeper's exit status: its parent ends here, with the lock and the id in place.
    child = os.fork()
    if child:
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{child}\n".encode(), 0)
        os._exit(0)
    server = Server(
        Path(folder) / "data",
        Path(sockets),
        command,
        None if user == "-" else int(user),
        None if group == "-" else int(group),
    )
    return Keeper(Path(folder), server, lock=lock, stop_after_seconds=float(stop_after_seconds)).run()


def _signal_pipe() -> int:
    """A descriptor on which the numbers of arriving signals can be read."""
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD):
        signal.signal(number, lambda *_: None)
    return reader


def _drain(reader: int) -> bytes:
    try:
        return os.read(reader, 1024)
    except BlockingIOError:
        return b""


def _say(text: str) -> None:
    now = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime())
    with contextlib.suppress(OSError):
        os.write(LOG, f"{now} UTC [{os.getpid()}] KEEPER:  {text}\n".encode())


if __name__ == "__main__":
    sys.exit(main())

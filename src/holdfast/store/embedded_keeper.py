"""The keeper: the process that starts the embedded server, restarts it, and stops it after its last use.

`holdfast.store.embedded` starts it detached, in its own session, with the standard library alone, so that it
is up in milliseconds and stays small. The rules it keeps:

1. One keeper per folder: it holds `keeper.lock` exclusively for as long as it lives.
2. Every process of Holdfast that uses the server holds `users.lock` shared. The keeper decides to stop an unused
   server while it holds that lock exclusively, and keeps it until it exits: a process that has the shared lock knows
   that no keeper is about to stop the server.
3. Connected programs use it, too. If the URL was handed out (the file `stay`), the server stays for that many seconds
   after the last use, including a connection that came and went.
4. All locks are flocks, which vanish with their process: after any kill -9 the locks are still correct.
5. A running server whose keeper was killed is adopted. A server that dies in use is started again, with
   growing pauses; one that never started ends the keeper, and the log says why.
6. SIGINT stops the server now. SIGTERM, which a service manager sends to all processes at once, only drops the
   wait after the last use, so that a draining worker keeps its database.
7. If the folder was moved or removed, the server is stopped: a folder at its old path belongs to another keeper.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import sys
import time
from pathlib import Path

from .embedded_locks import open_file, wait_for_lock
from .embedded_server import EmbeddedServer
from .embedded_sessions import NoAnswerError, look_at_use

POLL_SECONDS = 0.25
STARTING_POLL_SECONDS = 0.02
LONGEST_PAUSE_SECONDS = 5.0
#: How often a server that nobody holds is asked for its connections, and how long it may fail to answer.
QUESTION_SECONDS = (2.0, 30.0)
SILENCE_SECONDS = 20.0
STAY_FILE = "stay"
STAY_REFRESH_SECONDS = 60.0
LOG = 2
LOG_LIMIT_BYTES = 10_000_000


class Uses:
    """Finds out from the locks, the granted stay and the server itself whether a server is still in use."""

    def __init__(self, folder: Path, server: EmbeddedServer, binaries: Path, stop_after_seconds: float) -> None:
        self._folder = folder
        self._server = server
        self._binaries = binaries
        self._stop_after_seconds = stop_after_seconds
        self._users = open_file(folder / "users.lock", os.O_RDWR)
        self._stay_seconds = 0.0
        self._last_grant = self._last_arrival = 0
        self._last_use = self._refreshed_at = time.monotonic()
        self._next_question = 0.0
        self._sessions: int | None = None
        self._silent_since: float | None = None
        self._drop_outdated_stay()

    def drop_wait(self) -> None:
        """Stop waiting after the last use."""
        self._stop_after_seconds = 0.0
        self.end_stay()

    def end_stay(self) -> None:
        """Forget that the URL was handed out."""
        self._stay_seconds = 0.0
        with contextlib.suppress(OSError):
            (self._folder / STAY_FILE).unlink(missing_ok=True)

    def are_over(self) -> bool:
        """True once there was no use for the whole wait; `users.lock` is then held until the exit."""
        if not wait_for_lock(self._users, fcntl.LOCK_EX, seconds=0):
            self._used()
            return False
        self._notice_arrivals()
        wait = max(self._stop_after_seconds, self._stay_seconds)
        shortest, longest = QUESTION_SECONDS
        is_uncounted = self._stay_seconds > 0 and self._sessions is None
        if is_uncounted or time.monotonic() >= max(self._next_question, self._last_use + min(wait, longest)):
            if self._is_connected():
                self._used()
                self._next_question = time.monotonic() + max(shortest, min(wait, longest))
            elif time.monotonic() >= self._last_use + wait:
                return True
            else:
                self._next_question = time.monotonic() + min(wait, longest)
        fcntl.flock(self._users, fcntl.LOCK_UN)
        return False

    def _used(self) -> None:
        self._last_use = time.monotonic()
        self._next_question = 0.0
        if self._stay_seconds and self._last_use > self._refreshed_at + STAY_REFRESH_SECONDS:
            # For a keeper that may have to take over.
            self._refreshed_at = self._last_use
            with contextlib.suppress(OSError):
                os.utime(self._folder / STAY_FILE)
                self._last_grant = (self._folder / STAY_FILE).stat().st_mtime_ns

    def _notice_arrivals(self) -> None:
        """Notice users that came and went between two looks: they have touched a file."""
        arrival = os.fstat(self._users).st_mtime_ns
        try:
            grant = (self._folder / STAY_FILE).stat().st_mtime_ns
        except OSError:
            grant = 0
        if grant != self._last_grant and grant:
            with contextlib.suppress(OSError, ValueError):
                self._stay_seconds = float((self._folder / STAY_FILE).read_text())
        if (arrival, grant) != (self._last_arrival, self._last_grant):
            self._last_arrival, self._last_grant = arrival, grant
            self._used()

    def _is_connected(self) -> bool:
        """Whether the server says that it is in use; one that is not ready has no connections."""
        postmaster = self._server.ready()
        if postmaster is None:
            return False
        try:
            use = look_at_use(self._folder, self._binaries, postmaster)
        except NoAnswerError as fault:
            self._silent_since = self._silent_since or time.monotonic()
            if time.monotonic() < self._silent_since + SILENCE_SECONDS:
                return True
            say(f"cannot tell who is connected: {fault}")
            return False
        self._silent_since = None
        came = self._sessions is not None and use.sessions != self._sessions and self._stay_seconds > 0
        self._sessions = use.sessions
        return use.open > 0 or came

    def _drop_outdated_stay(self) -> None:
        """Drop the stay that a killed server left, if its time is over."""
        try:
            age = time.time() - (self._folder / STAY_FILE).stat().st_mtime
            is_outdated = age > float((self._folder / STAY_FILE).read_text())
        except (OSError, ValueError):
            is_outdated = True
        if is_outdated:
            self.end_stay()


class Keeper:
    """Watches one server and its uses; `run` lasts as long as the server is needed."""

    def __init__(self, folder: Path, server: EmbeddedServer, uses: Uses, *, lock: int) -> None:
        self._lock_path = folder / "keeper.lock"
        self._old_log = folder / "server.log.1"
        self._server = server
        self._uses = uses
        self._lock = lock
        self._came_up = False
        self._started_at = 0.0
        self._pause_seconds = 0.0

    def run(self) -> int:
        """Keep the server until nobody uses it or SIGINT arrives; returns 1 if it never started."""
        wakeups = _signal_pipe()
        self._start_server()
        while not self._folder_is_gone():
            select.select([wakeups], [], [], POLL_SECONDS if self._came_up else STARTING_POLL_SECONDS)
            signals = _drain(wakeups)
            if signal.SIGINT in signals:
                break
            if signal.SIGTERM in signals:
                self._uses.drop_wait()
            if self._uses.are_over():
                break
            if not self._server_stands():
                return 1
            self._trim_log()
        say("stops the server")
        if not self._server.stop():
            say("leaves the server, which runs in another container")
        elif not self._folder_is_gone():
            self._uses.end_stay()
        return 0

    def _start_server(self) -> None:
        self._started_at = time.monotonic()
        self._server.start()
        self._came_up = self._came_up or self._server.came_up()

    def _folder_is_gone(self) -> bool:
        try:
            return not os.path.samestat(os.fstat(self._lock), self._lock_path.stat())
        except OSError:
            return True

    def _server_stands(self) -> bool:
        """Restart a dead server when its pause is over; False if it never started at all."""
        self._came_up = self._came_up or self._server.came_up()
        if self._server.alive():
            return True
        if not self._came_up:
            say("gives up: the server ended before it was ready")
            return False
        up_seconds = time.monotonic() - self._started_at
        if up_seconds > 2 * LONGEST_PAUSE_SECONDS:
            self._pause_seconds = 0.0
        if up_seconds >= self._pause_seconds:
            say("starts the server again: it ended while in use")
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
    """Become a folder's keeper: `FOLDER SOCKETS BINARIES STOP_AFTER_SECONDS USER GROUP COMMAND…` (`-`: no user)."""
    folder, sockets, binaries, stop_after_seconds, user, group, *command = sys.argv[1:]
    home = Path(folder)
    lock = open_file(home / "keeper.lock", os.O_RDWR)
    if not wait_for_lock(lock, fcntl.LOCK_EX, seconds=2):
        return 0
    try:
        _leave_number(lock, os.getpid())
    except OSError as error:
        say(f"cannot leave its process id: {error.strerror}")
        return 1
    # Nobody waits for a keeper's exit status: its parent ends here, once the lock and the id are in place.
    child = os.fork()
    if child:
        _leave_number(lock, child)
        os._exit(0)
    server = EmbeddedServer(
        home,
        Path(sockets),
        command,
        user=None if user == "-" else int(user),
        group=None if group == "-" else int(group),
        say=say,
    )
    return Keeper(home, server, Uses(home, server, Path(binaries), float(stop_after_seconds)), lock=lock).run()


def say(text: str) -> None:
    """Write a line to the server's log."""
    now = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime())
    with contextlib.suppress(OSError):
        os.write(LOG, f"{now} UTC [{os.getpid()}] KEEPER:  {text}\n".encode())


def _leave_number(lock: int, number: int) -> None:
    """Write a process id with a fixed width: the second one needs no more space on a disk that has become full."""
    os.pwrite(lock, f"{number:<20}\n".encode(), 0)


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

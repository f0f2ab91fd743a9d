"""Starts, adopts and stops the postmaster of one data folder, for the keeper.

Two servers on one data folder would destroy it, so `server.lock` must be held to start one. The postmaster
inherits the locked descriptor, and so do all of its children: the kernel releases the lock when the last of them is
gone, whichever was killed before, and in whichever container they run. The keeper keeps no copy of it.

The keeper imports this module outside its package and without site-packages: standard library only.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from .embedded_locks import is_locked, open_file, wait_for_lock
from .embedded_postmaster import (
    KNOWS_PROCESSES,
    ORPHAN_STEPS,
    SERVER_LOCK,
    STOP_STEPS,
    Postmaster,
    answers,
    end_process,
    find_postmaster,
    read_postmaster,
    server_processes,
    works_in,
)

#: How long the remains of a server, or a server that is not visible from here, may keep the lock.
PATIENCE_SECONDS = 5.0


class EmbeddedServer:
    """The postmaster of one data folder: a child of this keeper, or one that an earlier keeper left."""

    def __init__(
        self,
        folder: Path,
        sockets: Path,
        command: Sequence[str],
        *,
        user: int | None,
        group: int | None,
        say: Callable[[str], None],
    ) -> None:
        self._data = folder / "data"
        self._lock_path = folder / SERVER_LOCK
        self._sockets = sockets
        self._command = command
        self._user = user
        self._group = group
        self._say = say
        self._child: subprocess.Popen[bytes] | None = None
        self._pid: int | None = None
        self._is_elsewhere = False
        self._working_folder: os.stat_result | None = None
        self._lock_for_another: int | None = None

    def start(self) -> None:
        """Adopt the server that runs already, or start one."""
        self._child = self._pid = None
        self._is_elsewhere = False
        if self._lock_for_another is not None:
            os.close(self._lock_for_another)
            self._lock_for_another = None
        lock = None
        try:
            self._working_folder = self._data.stat()
            lock = open_file(self._lock_path, os.O_RDWR)
            if not self._take(lock):
                return
            postmaster = find_postmaster(self._data)
            if postmaster is not None and postmaster.pid is not None:
                # A server of an earlier release does not hold the lock, so the keeper holds it instead.
                self._adopt(postmaster)
                self._lock_for_another, lock = lock, None
                return
            self._clear_remains()
            self._child = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                cwd=self._data.parent,
                user=self._user,
                group=self._group,
                extra_groups=None if self._user is None else [],
                umask=0o077,
                pass_fds=(lock,),
            )
            self._pid = self._child.pid
        except OSError as error:
            self._say(f"cannot start the server: {error}")
        finally:
            if lock is not None:
                os.close(lock)

    def alive(self) -> bool:
        """Whether the server's process lives, ready or not."""
        if self._child is not None:
            return self._child.poll() is None
        if self._is_elsewhere:
            return is_locked(self._lock_path)
        return self._pid is not None and works_in(self._pid, self._working_folder or self._data)

    def came_up(self) -> bool:
        """Whether this server, dead or alive, has recorded that it was ready."""
        postmaster = self._word()
        return postmaster is not None and postmaster.status in ("ready", "stopping")

    def ready(self) -> Postmaster | None:
        """The server, if it is ready to be asked."""
        postmaster = self._word() if self.alive() else None
        return postmaster if postmaster is not None and postmaster.status == "ready" else None

    def stop(self) -> bool:
        """Stop the server and wait until it is gone: fast, then immediate, then by force; False if it is not ours."""
        if self._is_elsewhere:
            return False
        if self._pid is not None and self.alive():
            end_process(self._pid, self.alive, STOP_STEPS)
        self._end_orphans()
        if self._sockets.parent != self._data.parent:
            with contextlib.suppress(OSError):
                self._sockets.rmdir()
        return True

    def _word(self) -> Postmaster | None:
        """The content of `postmaster.pid`, if it is about this server."""
        postmaster = read_postmaster(self._data)
        if self._child is not None:
            return postmaster if postmaster is not None and postmaster.pid == self._pid else None
        return postmaster if self._pid is not None or self._is_elsewhere else None

    def _take(self, lock: int) -> bool:
        """Take the server's lock; False if a server has it, which is adopted, or something else for too long."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not wait_for_lock(lock, fcntl.LOCK_EX, seconds=0.05):
            postmaster = find_postmaster(self._data)
            if postmaster is not None and (postmaster.pid is not None or answers(postmaster)):
                self._adopt(postmaster)
                return False
            # Without a `postmaster.pid` it may be a server that has only just started.
            if postmaster is not None:
                self._end_orphans()
            if time.monotonic() > deadline:
                self._say(f"cannot start the server: {self._lock_path} is held by another that is not seen from here")
                return False
        return True

    def _adopt(self, postmaster: Postmaster) -> None:
        self._pid = postmaster.pid
        self._is_elsewhere = postmaster.pid is None
        where = "of another container" if self._is_elsewhere else f"with process id {self._pid}"
        self._say(f"adopts the server {where}")

    def _clear_remains(self) -> None:
        """Remove files of a killed server that would confuse PostgreSQL, if the system can tell."""
        if not KNOWS_PROCESSES:
            return
        self._end_orphans()
        # PostgreSQL takes any process with the old id for its server: a zombie, or another process after a reboot.
        for remains in (self._data / "postmaster.pid", *self._sockets.glob(".s.PGSQL.*")):
            remains.unlink(missing_ok=True)

    def _end_orphans(self) -> None:
        with contextlib.suppress(OSError):
            for pid in server_processes(self._data):
                end_process(pid, functools.partial(works_in, pid, self._data), ORPHAN_STEPS)

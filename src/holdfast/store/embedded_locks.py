"""The lock files of the embedded server: flocks, which the kernel releases with the last process that holds them.

The keeper imports this module too, outside its package and without site-packages: standard library only.
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path


def open_file(path: Path, flags: int) -> int:
    """Open or create a private file, never through a link; files that root creates belong to the folder's owner."""
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

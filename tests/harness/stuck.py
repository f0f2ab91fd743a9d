"""A call in C that never returns: it keeps the interpreter's lock, and no signal ends it but SIGKILL.

An endless loop does the same, and takes a core from the tests beside it.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

__all__ = ["wait_in_c", "waits_in_c"]

FUTEX_WAIT_PRIVATE = "0x80"


def wait_in_c() -> None:
    """Wait for a lock that this very thread holds. `PyDLL` does not let go of the interpreter's lock meanwhile."""
    library, lock = ctypes.PyDLL(None), ctypes.create_string_buffer(256)
    library.pthread_mutex_init(lock, None)
    library.pthread_mutex_lock(lock)
    library.pthread_mutex_lock(lock)


def waits_in_c(pid: int) -> bool:
    """Whether the main thread of a process has come to that lock: nothing of Python waits for one without a time."""
    call = Path(f"/proc/{pid}/syscall").read_text().split()
    return call[2:3] == [FUTEX_WAIT_PRIVATE]

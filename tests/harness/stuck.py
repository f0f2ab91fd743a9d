"""A call in C that never returns: it keeps the interpreter's lock, and no signal ends it but SIGKILL.

An endless loop does the same, and takes a core from the tests beside it.
"""

from __future__ import annotations

import ctypes

__all__ = ["wait_in_c"]


def wait_in_c() -> None:
    """Wait for a lock that this very thread holds. `PyDLL` does not let go of the interpreter's lock meanwhile."""
    library, lock = ctypes.PyDLL(None), ctypes.create_string_buffer(256)
    library.pthread_mutex_init(lock, None)
    library.pthread_mutex_lock(lock)
    library.pthread_mutex_lock(lock)

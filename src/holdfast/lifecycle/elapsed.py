"""A clock for leases: nobody sets it, and it runs on while the machine sleeps, as the database's clock does elsewhere.

On Linux the monotonic clock stands still during a suspend. A worker that wakes from one would think that its leases are
as good as before, and begin what others have long ended.
"""

from __future__ import annotations

import time

__all__ = ["elapsed"]

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def elapsed() -> float:
    """Seconds since some moment in the past; the same for all processes of one host."""
    return time.clock_gettime(_CLOCK)

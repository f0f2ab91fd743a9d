"""The clock for leases. Nobody can set it, and it goes on while the machine sleeps, as the database's clock does.

On Linux the monotonic clock stops during a suspend. A worker that wakes from one would believe that its leases are
still valid, and start jobs that others have long ended.
"""

from __future__ import annotations

import time

__all__ = ["elapsed"]

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def elapsed() -> float:
    """Seconds since some moment in the past; the same for all processes of one host."""
    return time.clock_gettime(_CLOCK)

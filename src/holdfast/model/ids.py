"""Job ids: UUIDs of version 7, which sort by the time they were made."""

from __future__ import annotations

import os
import time
from uuid import UUID

__all__ = ["new_job_id"]


def new_job_id() -> UUID:
    """A new id: 48 bits of milliseconds, 12 of microseconds, 62 random ones."""
    milliseconds, nanoseconds = divmod(time.time_ns(), 1_000_000)
    fraction = nanoseconds * 4096 // 1_000_000
    random = int.from_bytes(os.urandom(8)) & 0x3FFF_FFFF_FFFF_FFFF
    return UUID(int=milliseconds << 80 | 0x7 << 76 | fraction << 64 | 0x2 << 62 | random)

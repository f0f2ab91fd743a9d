"""Job ids: UUIDs of version 7, which sort by the time they were made."""

from __future__ import annotations

import os
import struct
import time
from uuid import UUID, SafeUUID

__all__ = ["new_job_id", "new_job_ids"]

_RANDOM_BITS = 42
_RANDOM = (1 << _RANDOM_BITS) - 1
_LONGEST = 1 << 62 - _RANDOM_BITS

#: `UUID(int=...)` checks what is known to be right here, and takes three times as long.
_set_int, _set_safety = vars(UUID)["int"].__set__, vars(UUID)["is_safe"].__set__


def new_job_id() -> UUID:
    """A new id: 48 bits of milliseconds, 12 of microseconds, 62 random ones."""
    return _uuid(_now() | int.from_bytes(os.urandom(8)) & 0x3FFF_FFFF_FFFF_FFFF)


def new_job_ids(count: int) -> list[UUID]:
    """New ids of one moment, each larger than the one before: 20 of the random bits are its place."""
    if count > _LONGEST:
        raise ValueError(f"at most {_LONGEST} ids at a time")
    if count == 1:
        return [new_job_id()]
    now = _now()
    chances = struct.unpack(f"{count}Q", os.urandom(8 * count))
    return [_uuid(now | place << _RANDOM_BITS | chance & _RANDOM) for place, chance in enumerate(chances)]


def _now() -> int:
    """Time, version and variant of an id."""
    milliseconds, nanoseconds = divmod(time.time_ns(), 1_000_000)
    return milliseconds << 80 | 0x7 << 76 | (nanoseconds * 4096 // 1_000_000) << 64 | 0x2 << 62


def _uuid(number: int) -> UUID:
    made = UUID.__new__(UUID)
    _set_int(made, number)
    _set_safety(made, SafeUUID.unknown)
    return made

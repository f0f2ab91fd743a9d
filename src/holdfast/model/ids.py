"""Job ids: UUIDs of version 7, which sort by the time they were made."""

from __future__ import annotations

import os
import struct
import time
from uuid import UUID, SafeUUID

__all__ = ["new_job_id", "new_job_id_bytes", "new_job_ids"]

#: How many of the 62 random bits of an id stay random in a batch; the others encode the position in it.
_RANDOM_BITS = 42
_RANDOM = (1 << _RANDOM_BITS) - 1
_LONGEST = 1 << 62 - _RANDOM_BITS
_VARIANT = 0x2 << 62
_HALVES = struct.Struct(">QQ")

#: `UUID(bytes=...)` checks what is known to be right here, and takes three times as long.
_set_int, _set_safety = vars(UUID)["int"].__set__, vars(UUID)["is_safe"].__set__


def new_job_id() -> UUID:
    """A new id: 48 bits of milliseconds, 12 of microseconds, 62 random ones."""
    return _uuid(_first_half() << 64 | _VARIANT | int.from_bytes(os.urandom(8)) & 0x3FFF_FFFF_FFFF_FFFF)


def new_job_ids(count: int) -> list[UUID]:
    """New ids of one moment, each larger than the one before."""
    return [_uuid(int.from_bytes(number)) for number in new_job_id_bytes(count)]


def new_job_id_bytes(count: int) -> list[bytes]:
    """The same as the bytes that they consist of."""
    if count > _LONGEST:
        raise ValueError(f"at most {_LONGEST} ids at a time")
    first, pack = _first_half(), _HALVES.pack
    if count == 1:
        return [pack(first, _VARIANT | int.from_bytes(os.urandom(8)) & 0x3FFF_FFFF_FFFF_FFFF)]
    chances = struct.unpack(f"{count}Q", os.urandom(8 * count))
    places = range(_VARIANT, _VARIANT + (count << _RANDOM_BITS), 1 << _RANDOM_BITS)
    return [pack(first, place | chance & _RANDOM) for place, chance in zip(places, chances, strict=True)]


def _first_half() -> int:
    """Time and version of an id."""
    milliseconds, nanoseconds = divmod(max(0, time.time_ns()), 1_000_000)
    return milliseconds << 16 | 0x7 << 12 | nanoseconds * 4096 // 1_000_000


def _uuid(number: int) -> UUID:
    made = UUID.__new__(UUID)
    _set_int(made, number)
    _set_safety(made, SafeUUID.unknown)
    return made

"""What handlers note: how many ran, when the first began and the last did, and how long each job had waited.

Every process that runs handlers keeps a file of its own in the folder that BENCH_TALLY names, mapped into
memory, so that noting costs no system call and the measuring process reads along without disturbing anybody.
The clock is the machine's monotonic one, which all processes share.
"""

from __future__ import annotations

import mmap
import os
import random
import string
import struct
import threading
import time
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Reading", "note", "read", "stamped"]

_HEAD = struct.Struct("<qqq")
_WAIT = struct.Struct("<q")
_ROOM = 1_000_000
_NOISE = "".join(random.Random(1).choices(string.ascii_letters + string.digits, k=100_000))

_lock = threading.Lock()
_mine: _Tally | None = None


class _Tally:
    def __init__(self, folder: Path) -> None:
        self.pid = os.getpid()
        self._waits_too = os.environ.get("BENCH_WAITS") == "1"
        size = _HEAD.size + (_WAIT.size * _ROOM if self._waits_too else 0)
        file = os.open(folder / str(self.pid), os.O_RDWR | os.O_CREAT, 0o600)
        os.ftruncate(file, size)
        self._memory = mmap.mmap(file, size)
        os.close(file)
        self._count = self._first = 0

    def note(self, text: str) -> None:
        now = time.monotonic_ns()
        if not self._count:
            self._first = now
        if self._waits_too:
            _WAIT.pack_into(self._memory, _HEAD.size + _WAIT.size * self._count, now - int(text[:20]))
        self._count += 1
        _HEAD.pack_into(self._memory, 0, self._count, self._first, now)


def note(text: str) -> None:
    """What every handler of every system calls, with its payload, and all that it does."""
    global _mine  # noqa: PLW0603 - one tally a process, also after a fork
    with _lock:
        if _mine is None or _mine.pid != os.getpid():
            _mine = _Tally(Path(os.environ["BENCH_TALLY"]))
        _mine.note(text)


def stamped(size: int) -> str:
    """A payload of so many characters that says when it was made, the rest of it hardly to be compressed."""
    start = random.randrange(len(_NOISE) - size)
    return f"{time.monotonic_ns():020d}{_NOISE[start : start + size - 20]}"


@dataclass(frozen=True)
class Reading:
    """All tallies of a folder together; times in seconds."""

    count: int
    first: float
    last: float
    waits: list[float]

    @property
    def per_second(self) -> float:
        """Handlers begun per second, from the first to the last."""
        return (self.count - 1) / (self.last - self.first) if self.count > 1 else 0.0


def read(folder: Path, *, waits: bool = False) -> Reading:
    """What was noted so far."""
    heads, seconds = [], []
    for file in folder.iterdir():
        data = file.read_bytes() if waits else _beginning(file)
        if len(data) < _HEAD.size:
            continue
        count, first, last = _HEAD.unpack_from(data)
        if count:
            heads.append((count, first, last))
        if waits:
            seconds += [_WAIT.unpack_from(data, _HEAD.size + _WAIT.size * i)[0] / 1e9 for i in range(count)]
    if not heads:
        return Reading(0, 0.0, 0.0, [])
    counts, firsts, lasts = zip(*heads, strict=True)
    return Reading(sum(counts), min(firsts) / 1e9, max(lasts) / 1e9, seconds)


def _beginning(file: Path) -> bytes:
    with file.open("rb") as opened:
        return opened.read(_HEAD.size)

"""What a worker's process says of itself every second, for probes in another thread or process.

Two clocks tell more than any flag: a process that is frozen, or a thread that has died, says nothing more.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import NamedTuple

__all__ = ["Figures", "VitalSigns", "resident_bytes"]

_BYTES = 512
#: How long the lease keeper's thread may be silent. It says something every second, and nothing that it does blocks it.
_KEEPER_SECONDS = 15.0
#: How much longer than any handler may run the event loop may be silent. By then the worker should be replaced.
_LOOP_SECONDS = 30.0


class Figures(NamedTuple):
    """How a worker is now."""

    running: dict[str, int]
    slots: dict[str, int]
    used: dict[str, int]
    unsettled: int
    lag_seconds: float


class VitalSigns(NamedTuple):
    """What the lease keeper's thread knows of its worker; moments are of this machine's monotonic clock."""

    pid: int
    keeper_at: float
    loop_at: float
    #: How long handlers may run, and with them block the event loop.
    longest_seconds: float
    #: Why the worker claims no jobs; empty if it does.
    unready: str

    def write(self, path: Path) -> None:
        """Replace what was said before, in one step."""
        text = json.dumps(self).encode().ljust(_BYTES)
        number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.pwrite(number, text, 0)
        finally:
            os.close(number)

    @classmethod
    def read(cls, path: Path) -> VitalSigns | None:
        """What was said last; None if nothing was."""
        try:
            return cls(*json.loads(path.read_bytes()))
        except (FileNotFoundError, ValueError):
            return None

    def fault(self) -> str | None:
        """Why the process is not alive; None if it is."""
        now = time.monotonic()
        if now - self.keeper_at > _KEEPER_SECONDS:
            return f"the thread that keeps leases has been silent for {now - self.keeper_at:.0f} s"
        if now - self.loop_at > self.longest_seconds + _LOOP_SECONDS:
            return f"the event loop has been blocked for {now - self.loop_at:.0f} s"
        return None


def resident_bytes() -> int:
    """The memory of this process that is in use."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        import resource

        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024
    return pages * os.sysconf("SC_PAGE_SIZE")

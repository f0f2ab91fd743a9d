"""Leases that were spared, brought nearer or met after the clock was set, and for how long nobody has renewed them.

Whoever lives renews a lease several times within its length, which changes its expiry. One that has kept the same
expiry for twice its length of real time, while the database was in touch, belongs to nobody, whatever the clocks
say and however often they are set: so repeated breaks cannot put off recovery for ever.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

__all__ = ["Watch"]

_MOST = 20_000
_MARGIN_SECONDS = 1.0


@dataclass(slots=True)
class _Entry:
    expires_at: datetime
    lease_seconds: float
    since: float


class Watch:
    """Leases under observation, by job and attempt."""

    def __init__(self) -> None:
        self._entries: dict[tuple[UUID, int], _Entry] = {}
        self._now = 0.0

    def pass_time(self, seconds: float) -> None:
        """The database was in touch for this long."""
        self._now += seconds

    def spared(self, job_id: UUID, attempt: int, expires_at: datetime, lease_seconds: float) -> None:
        """A lease that may not be judged by the clock."""
        entry = self._entries.get((job_id, attempt))
        if (entry is None or entry.expires_at != expires_at) and len(self._entries) < _MOST:
            self._entries[job_id, attempt] = _Entry(expires_at, lease_seconds, self._now)

    def clamped(
        self, job_id: UUID, attempt: int, was: datetime, expires_at: datetime, lease_seconds: float
    ) -> None:
        """A lease was brought nearer by ourselves, which is no renewal."""
        entry = self._entries.get((job_id, attempt))
        if entry is not None and entry.expires_at == was:
            entry.expires_at = expires_at
        else:
            self.spared(job_id, attempt, expires_at, lease_seconds)

    def ripe(self, most: int) -> list[tuple[UUID, int, datetime]]:
        """Those that nobody has renewed for twice their length."""
        return [
            (job_id, attempt, entry.expires_at)
            for (job_id, attempt), entry in self._entries.items()
            if self._now - entry.since > 2 * entry.lease_seconds + _MARGIN_SECONDS
        ][:most]

    def judged(self, leases: Iterable[tuple[UUID, int, datetime]]) -> None:
        """These were taken back, or renewed at last, or have ended: they are not watched any more."""
        for job_id, attempt, expires_at in leases:
            entry = self._entries.get((job_id, attempt))
            if entry is not None and entry.expires_at == expires_at:
                del self._entries[job_id, attempt]
